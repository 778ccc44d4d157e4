#include "train/rank_state.h"

#include "base/memory.h"
#include "base/status.h"
#include "train/step.h"

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

/* The gradients that a step has accumulated; NULL where it does not accumulate. */
static lk_tensor *pending_sums(const lk_step *step)
{
    if (!step || !step->flat.sums) return NULL;
    return lki_tensor_over(step->flat.sums, 0, step->flat.dtype, LK_SHAPE(step->flat.count));
}

static lk_status put_sums(lk_state_dict *own, const lk_step *step, const char *key)
{
    lk_tensor *sums = pending_sums(step);
    if (!sums) return LK_OK;
    LKI_SCOPED char *name = lki_format("sums:%s", key);
    if (name) return lk_state_dict_put(own, name, sums);
    lk_tensor_free(sums);
    return LK_ERR_NOMEM;
}

lk_status lki_rank_state_get_step(lk_runner *runner, lk_step *step, const char *key)
{
    const lk_state_dict *own = runner->run->rank_state;
    LKI_SCOPED char *name = lki_format("sums:%s", key);
    if (!name) return LK_ERR_NOMEM;
    if (!own || !lk_state_dict_has(own, name)) return LK_OK;
    lk_tensor *sums = pending_sums(step);
    lk_status status = sums ? lk_state_dict_copy_to(own, name, sums) : LK_OK;
    lk_tensor_free(sums);
    return status;
}

static lk_status put_own(lk_runner *runner, lk_state_dict *own)
{
    lki_run *run = runner->run;
    for (int i = 0; i < run->metric_count; i++) {
        LKI_SCOPED char *prefix = lki_format("metric.%d.", i);
        if (!prefix) return LK_ERR_NOMEM;
        LKI_TRY(lki_metric_save(run->metrics[i], own, prefix));
    }
    for (int i = 0; i < run->part_count; i++) LKI_TRY(put_sums(own, run->parts[i].step, run->parts[i].key));
    return put_sums(own, runner->step, "");
}

lk_status lki_rank_state_get_metric(lk_runner *runner, int index)
{
    lki_run *run = runner->run;
    LKI_SCOPED char *prefix = lki_format("metric.%d.", index);
    LKI_SCOPED char *known = lki_format("metric.%d.classes", index);
    if (!prefix || !known) return LK_ERR_NOMEM;
    if (!run->rank_state || !lk_state_dict_has(run->rank_state, known)) return LK_OK;
    return lki_metric_load(run->metrics[index], run->rank_state, prefix);
}

/* ---- Between the ranks ---- */

bool lki_rank_state_is_needed(const lk_runner *runner)
{
    return runner->run->inside_epoch && runner->run->comm && runner->world_size > 1;
}

/* Blocks of unequal size, padded to the longest. */
static lk_status gather(lk_runner *runner, const lk_state_dict *own, lk_state_dict *state)
{
    lk_comm *comm = runner->run->comm;
    int64_t nbytes = packed_nbytes(own), longest = 0;
    LKI_SCOPED int64_t *sizes = LKI_NEW_ARRAY(int64_t, comm->size);
    if (!sizes) return LK_ERR_NOMEM;
    LKI_TRY(lk_comm_all_gather(comm, &nbytes, sizes, 1, LK_I64));
    for (int i = 0; i < comm->size; i++) longest = sizes[i] > longest ? sizes[i] : longest;
    LKI_SCOPED char *block = lki_calloc((size_t)longest, "a rank's share of the state");
    LKI_SCOPED char *all = lki_calloc((size_t)(longest * comm->size), "the ranks' shares of the state");
    if (!block || !all) return LK_ERR_NOMEM;
    pack(own, block);
    LKI_TRY(lk_comm_all_gather(comm, block, all, longest, LK_U8));
    for (int i = 0; i < comm->size; i++) {
        LKI_SCOPED char *name = lki_format("rank.%d", i);
        if (!name) return LK_ERR_NOMEM;
        LKI_TRY(lk_state_dict_put(state, name, lk_tensor_from(LK_U8, LK_SHAPE(sizes[i]), all + longest * i)));
    }
    return LK_OK;
}

lk_status lki_rank_state_put(lk_runner *runner, lk_state_dict *state)
{
    lk_state_dict *own = lk_state_dict_create();
    if (!own) return LK_ERR_NOMEM;
    lk_status status = put_own(runner, own);
    if (status == LK_OK) status = gather(runner, own, state);
    lk_state_dict_free(own);
    return status;
}

lk_status lki_rank_state_get(lk_runner *runner, const lk_state_dict *state)
{
    lki_run *run = runner->run;
    LKI_SCOPED char *name = lki_format("rank.%d", runner->rank);
    if (!name) return LK_ERR_NOMEM;
    if (!lk_state_dict_has(state, name)) return LK_OK;
    const lk_tensor *block = lk_state_dict_get(state, name);
    lk_state_dict_free(run->rank_state);
    run->rank_state = lk_state_dict_create();
    if (!run->rank_state) return LK_ERR_NOMEM;
    LKI_TRY(unpack(run->rank_state, block->data, (int64_t)lk_tensor_nbytes(block)));
    for (int i = 0; i < run->metric_count; i++) LKI_TRY(lki_rank_state_get_metric(runner, i));
    for (int i = 0; i < run->part_count; i++)
        LKI_TRY(lki_rank_state_get_step(runner, run->parts[i].step, run->parts[i].key));
    return lki_rank_state_get_step(runner, runner->step, "");
}
