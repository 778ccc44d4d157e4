#include "resume/rank_state.h"

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/state_values.h"
#include "resume/metric_state.h"
#include "run/run.h"
#include "step/step.h"

#include <lockstep/sys/comm.h>

#include <string.h>

/* ---- A state dict as one block of bytes ---- */

typedef struct entry_header {
    int64_t name_nbytes, data_nbytes;
    int64_t dtype, rank, dim[LK_MAX_DIMS];
} entry_header;

static int64_t packed_nbytes(const lk_state_dict *dict)
{
    int64_t nbytes = 0;
    for (int64_t i = 0; i < lk_state_dict_count(dict); i++)
        nbytes += (int64_t)(sizeof(entry_header) + strlen(lk_state_dict_name(dict, i)) + 1 +
                            lk_tensor_nbytes(lk_state_dict_tensor(dict, i)));
    return nbytes;
}

static void pack(const lk_state_dict *dict, char *out)
{
    for (int64_t i = 0; i < lk_state_dict_count(dict); i++) {
        const char *name = lk_state_dict_name(dict, i);
        const lk_tensor *tensor = lk_state_dict_tensor(dict, i);
        entry_header header = {.name_nbytes = (int64_t)strlen(name) + 1,
                               .data_nbytes = (int64_t)lk_tensor_nbytes(tensor),
                               .dtype = tensor->dtype,
                               .rank = tensor->shape.rank};
        memcpy(header.dim, tensor->shape.dim, sizeof header.dim);
        memcpy(out, &header, sizeof header);
        memcpy(out + sizeof header, name, (size_t)header.name_nbytes);
        if (header.data_nbytes)
            memcpy(out + sizeof header + header.name_nbytes, tensor->data, (size_t)header.data_nbytes);
        out += (int64_t)sizeof header + header.name_nbytes + header.data_nbytes;
    }
}

static lk_status unpack(lk_state_dict *dict, const char *data, int64_t nbytes)
{
    while (nbytes > 0) {
        entry_header header;
        if (nbytes < (int64_t)sizeof header) break;
        memcpy(&header, data, sizeof header);
        data += sizeof header;
        nbytes -= (int64_t)sizeof header;
        if (header.name_nbytes < 1 || header.name_nbytes > nbytes || header.data_nbytes < 0 ||
            header.data_nbytes > nbytes - header.name_nbytes || data[header.name_nbytes - 1] != 0 ||
            header.rank < 0 || header.rank > LK_MAX_DIMS || header.dtype < 0 || header.dtype > LK_BOOL)
            break;
        lk_shape shape = {.rank = (int)header.rank};
        memcpy(shape.dim, header.dim, sizeof shape.dim);
        lk_tensor *tensor = lk_tensor_create((lk_dtype)header.dtype, shape);
        if (!tensor) return lki_last_status();
        if ((int64_t)lk_tensor_nbytes(tensor) != header.data_nbytes) {
            lk_tensor_free(tensor);
            break;
        }
        if (header.data_nbytes) memcpy(tensor->data, data + header.name_nbytes, (size_t)header.data_nbytes);
        LKI_TRY(lk_state_dict_put(dict, data, tensor));
        data += header.name_nbytes + header.data_nbytes;
        nbytes -= header.name_nbytes + header.data_nbytes;
    }
    return nbytes == 0 ? LK_OK : lki_fail(LK_ERR_FORMAT, "a rank's share of the state is malformed");
}

/* ---- What is in it ---- */

/* Numbers of a step's that differ between the ranks, one for each of its parameters' (flat.count). */
typedef struct share {
    const char *kind;
    void *data; /* NULL: the step has none */
    lk_dtype dtype;
    bool is_worth_saving;
} share;

enum { SHARES = 2 };

static void shares_of(const lk_step *step, share shares[SHARES])
{
    const lki_flat *flat = &step->flat;
    float *residual = step->replicas.residual;
    shares[0] = (share){"sums", flat->sums ? lki_buffer_data(flat->sums) : NULL, flat->dtype,
                        step->update.accumulated > 0};
    shares[1] = (share){"residual", residual, LK_F32, residual != NULL};
    /* Of shards, sums are those of all ranks, and among the optimizer's state. */
    if (lki_shards_are_on(&step->shards)) shares[0].is_worth_saving = false;
}

/* By parameter: another run may have frozen others. "sums:generator.0.weight", and "sums:.0.weight" of the
 * runner's own step. */
static char *slice_name(const share *share, const char *key, const lki_slice *slice)
{
    return lki_format("%s:%s.%s", share->kind, key, slice->path);
}

static void *slice_data(const share *share, const lki_slice *slice)
{
    return (char *)share->data + (size_t)slice->offset * lk_dtype_nbytes(share->dtype);
}

static lk_status save_slice(lk_state_dict *own, const share *share, const lki_slice *slice, const char *key)
{
    LKI_SCOPED char *name = slice_name(share, key, slice);
    if (!name) return LK_ERR_NOMEM;
    return lk_state_dict_put(own, name,
                             lk_tensor_from(share->dtype, LK_SHAPE(slice->count), slice_data(share, slice)));
}

static lk_status save_step(lk_state_dict *own, const lk_step *step, const char *key)
{
    share shares[SHARES];
    if (!step) return LK_OK;
    shares_of(step, shares);
    for (int i = 0; i < SHARES; i++) {
        if (!shares[i].is_worth_saving) continue;
        for (int k = 0; k < step->flat.slice_count; k++)
            LKI_TRY(save_slice(own, &shares[i], &step->flat.slices[k], key));
    }
    return LK_OK;
}

/* Older checkpoints have the numbers of all parameters as one block. */
static lk_status restore_share(const lk_state_dict *own, const share *share, const lki_flat *flat,
                               const char *key)
{
    LKI_SCOPED char *whole = lki_format("%s:%s", share->kind, key);
    if (!whole) return LK_ERR_NOMEM;
    if (lk_state_dict_has(own, whole))
        return lki_state_dict_get_bytes(own, whole, share->data,
                                        (size_t)flat->count * lk_dtype_nbytes(share->dtype));
    for (int i = 0; i < flat->slice_count; i++) {
        const lki_slice *slice = &flat->slices[i];
        LKI_SCOPED char *name = slice_name(share, key, slice);
        if (!name) return LK_ERR_NOMEM;
        if (lk_state_dict_has(own, name))
            LKI_TRY(lki_state_dict_get_bytes(own, name, slice_data(share, slice),
                                             (size_t)slice->count * lk_dtype_nbytes(share->dtype)));
    }
    return LK_OK;
}

lk_status lki_rank_state_restore_step(lk_runner *runner, lk_step *step, const char *key)
{
    const lk_state_dict *own = runner->run->resuming.rank_state;
    share shares[SHARES];
    if (!own || !step || lki_shards_are_on(&step->shards)) return LK_OK;
    shares_of(step, shares);
    for (int i = 0; i < SHARES; i++)
        if (shares[i].data) LKI_TRY(restore_share(own, &shares[i], &step->flat, key));
    return LK_OK;
}

static lk_status save_own(lk_runner *runner, lk_state_dict *own)
{
    lki_run *run = runner->run;
    for (int i = 0; i < run->pass.count && run->inside_epoch; i++) {
        LKI_SCOPED char *prefix = lki_format("metric.%d.", i);
        if (!prefix) return LK_ERR_NOMEM;
        LKI_TRY(lki_metric_save(run->pass.metrics[i], own, prefix));
    }
    LKI_TRY(lki_own_metrics_save(runner, own));
    for (int i = 0; i < run->parts.count; i++)
        LKI_TRY(save_step(own, run->parts.items[i].step, run->parts.items[i].key));
    return save_step(own, runner->step, "");
}

lk_status lki_rank_state_restore_metric(lk_runner *runner, int index)
{
    lki_run *run = runner->run;
    LKI_SCOPED char *prefix = lki_format("metric.%d.", index);
    LKI_SCOPED char *known = lki_format("metric.%d.classes", index);
    if (!prefix || !known) return LK_ERR_NOMEM;
    if (!run->resuming.rank_state) return LK_OK;
    if (lki_run_shards(runner) && run->resuming.inside_epoch && run->resuming.block_count == 0)
        return lk_metric_reset(run->pass.metrics[index]), LK_OK; /* others have what was seen */
    if (!lk_state_dict_has(run->resuming.rank_state, known)) return LK_OK;
    LKI_TRY(lki_metric_restore(run->pass.metrics[index], run->resuming.rank_state, prefix));
    for (int i = 1; i < run->resuming.block_count; i++) {
        LKI_SCOPED char *more = lki_format("more.%d.%s", i, prefix);
        if (!more) return LK_ERR_NOMEM;
        LKI_TRY(lki_metric_restore_more(run->pass.metrics[index], run->resuming.rank_state, more));
    }
    return LK_OK;
}

/* ---- Between the ranks ---- */

static bool has_share(const lk_step *step)
{
    share shares[SHARES];
    if (!step) return false;
    shares_of(step, shares);
    return shares[0].is_worth_saving || shares[1].is_worth_saving;
}

bool lki_rank_state_is_needed(const lk_runner *runner)
{
    const lki_run *run = runner->run;
    if (lki_run_shards(runner)) return run->inside_epoch; /* as many ranks as like may go on */
    if (!run->ranks.comm || runner->world_size == 1) return false;
    bool needed = run->inside_epoch || has_share(runner->step);
    for (int i = 0; i < run->parts.count; i++) needed = needed || has_share(run->parts.items[i].step);
    return needed;
}

/* One rank's after the other's. Rank 0, which writes them, keeps them; the others have room for one. */
static lk_status gather(lk_runner *runner, const lk_state_dict *own, lk_state_dict *state)
{
    lk_comm *comm = runner->run->ranks.comm ? runner->run->ranks.comm : lk_comm_alone();
    int64_t nbytes = packed_nbytes(own), longest = 0;
    LKI_SCOPED int64_t *sizes = LKI_NEW_ARRAY(int64_t, comm->size);
    if (!sizes) return LK_ERR_NOMEM;
    LKI_TRY(lk_comm_all_gather(comm, &nbytes, sizes, 1, LK_I64));
    for (int i = 0; i < comm->size; i++) longest = sizes[i] > longest ? sizes[i] : longest;
    LKI_SCOPED char *block = lki_calloc((size_t)longest + 1, "a rank's share of the state");
    if (!block) return LK_ERR_NOMEM;
    for (int i = 0; i < comm->size; i++) {
        LKI_SCOPED char *name = lki_format("rank.%d", i);
        if (!name) return LK_ERR_NOMEM;
        if (i == comm->rank) pack(own, block);
        LKI_TRY(lk_comm_broadcast(comm, block, sizes[i], LK_U8, i));
        if (comm->rank == 0)
            LKI_TRY(lk_state_dict_put(state, name, lk_tensor_from(LK_U8, LK_SHAPE(sizes[i]), block)));
    }
    return LK_OK;
}

lk_status lki_rank_state_save(lk_runner *runner, lk_state_dict *state)
{
    lk_state_dict *own = lk_state_dict_create();
    if (!own) return LK_ERR_NOMEM;
    lk_status status = save_own(runner, own);
    if (status == LK_OK) status = gather(runner, own, state);
    lk_state_dict_free(own);
    return status;
}

static lk_status restore_block(const lk_state_dict *state, int64_t rank, lk_state_dict *out)
{
    LKI_SCOPED char *name = lki_format("rank.%lld", (long long)rank);
    if (!name) return LK_ERR_NOMEM;
    if (!lk_state_dict_has(state, name)) return LK_OK;
    const lk_tensor *block = lk_state_dict_get(state, name);
    return unpack(out, block->data, (int64_t)lk_tensor_nbytes(block));
}

static lk_status add_divided(lk_state_dict *sum, const lk_state_dict *part, double divisor)
{
    for (int64_t i = 0; i < lk_state_dict_count(part); i++) {
        const char *name = lk_state_dict_name(part, i);
        const lk_tensor *numbers = lk_state_dict_tensor(part, i);
        if (!lk_state_dict_has(sum, name))
            LKI_TRY(lk_state_dict_put(sum, name, lk_tensor_create(numbers->dtype, numbers->shape)));
        lk_tensor *total = lk_state_dict_get(sum, name);
        if (lk_tensor_count(total) != lk_tensor_count(numbers))
            return lki_fail(LK_ERR_FORMAT, "%s is of another size on another rank", name);
        for (int64_t k = 0; k < lk_tensor_count(numbers); k++)
            lk_tensor_set(total, k, lk_tensor_get(total, k) + lk_tensor_get(numbers, k) / divisor);
    }
    return LK_OK;
}

/* Where the number of ranks has changed, between two epochs, each goes on with the mean of all shares: the
 * next average over the ranks is then made of the same gradients. */
static lk_status restore_mean(const lk_state_dict *state, int64_t world_size, lk_state_dict *mean)
{
    lk_status status = LK_OK;
    for (int64_t rank = 0; rank < world_size && !status; rank++) {
        lk_state_dict *block = lk_state_dict_create();
        status = block ? restore_block(state, rank, block) : LK_ERR_NOMEM;
        if (!status) status = add_divided(mean, block, (double)world_size);
        lk_state_dict_free(block);
    }
    return status;
}

/* ---- Of shards ---- */

/* A rank's share of the metrics goes to the rank that has its first shard now. Where that gets several, those
 * after the first are "more.1.metric.0.part.0" and so on. */
static lk_status take_block(const lk_state_dict *block, int number, lk_state_dict *out)
{
    for (int64_t i = 0; i < lk_state_dict_count(block); i++) {
        LKI_SCOPED char *name = number ? lki_format("more.%d.%s", number, lk_state_dict_name(block, i))
                                       : lki_strdup(lk_state_dict_name(block, i));
        lk_tensor *copy = name ? lk_tensor_clone(lk_state_dict_tensor(block, i)) : NULL;
        if (!copy) return LK_ERR_NOMEM;
        LKI_TRY(lk_state_dict_put(out, name, copy));
    }
    return LK_OK;
}

static lk_status restore_shards(lk_runner *runner, const lk_state_dict *state, int64_t world_size)
{
    lki_resuming *resuming = &runner->run->resuming;
    lk_status status = LK_OK;
    resuming->block_count = 0;
    for (int64_t rank = 0; rank < world_size && !status; rank++) {
        if (rank * runner->world_size / world_size != runner->rank) continue;
        lk_state_dict *block = lk_state_dict_create();
        status = block ? restore_block(state, rank, block) : LK_ERR_NOMEM;
        if (!status) status = take_block(block, resuming->block_count++, resuming->rank_state);
        lk_state_dict_free(block);
    }
    return status;
}

lk_status lki_rank_state_restore(lk_runner *runner, const lk_state_dict *state)
{
    lki_run *run = runner->run;
    int64_t world_size;
    if (!lk_state_dict_has(state, "rank.0")) return LK_OK;
    LKI_TRY(lk_state_dict_get_i64(state, "runner.world_size", &world_size));
    lk_state_dict_free(run->resuming.rank_state);
    run->resuming.rank_state = lk_state_dict_create();
    if (!run->resuming.rank_state) return LK_ERR_NOMEM;
    if (lki_run_shards(runner))
        LKI_TRY(restore_shards(runner, state, world_size));
    else if (world_size == runner->world_size)
        LKI_TRY(restore_block(state, runner->rank, run->resuming.rank_state));
    else
        LKI_TRY(restore_mean(state, world_size, run->resuming.rank_state));
    for (int i = 0; i < run->pass.count; i++) LKI_TRY(lki_rank_state_restore_metric(runner, i));
    for (int i = 0; i < run->parts.count; i++)
        LKI_TRY(lki_rank_state_restore_step(runner, run->parts.items[i].step, run->parts.items[i].key));
    return lki_rank_state_restore_step(runner, runner->step, "");
}
