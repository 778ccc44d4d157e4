/* lk_step_save and lk_step_restore: the step of a program with a loop of its own.
 *
 * Names in the file: "model.<path>", "optimizer.<state>.<path>", "scheduler.<number>", "step.format",
 * "step.ranks", "step.rank", and "step.each": a row of bytes per rank, with what differs between ranks. These
 * are the generator, buffers such as running statistics, gradients that are being accumulated, and what
 * compression has left out so far. */
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "checkpoint/state_values.h"
#include "resume/model_state.h"
#include "resume/scheduler_state.h"
#include "resume/step_state.h"
#include "step/step.h"
#include "tensor/random.h"

#include <lockstep/checkpoint.h>
#include <lockstep/random.h>

#include <string.h>

enum { FORMAT = 1 };

static bool has_peers(const lk_step *step)
{
    return step->options.comm && step->options.comm->size > 1;
}

/* ---- What differs between ranks ---- */

/* Copies a piece into the row, or out of it. */
typedef struct row {
    char *bytes; /* NULL: only counts */
    size_t nbytes;
    bool reads;
} row;

static void pass(row *r, void *piece, size_t nbytes)
{
    if (r->bytes && r->reads) memcpy(piece, r->bytes + r->nbytes, nbytes);
    if (r->bytes && !r->reads) memcpy(r->bytes + r->nbytes, piece, nbytes);
    r->nbytes += nbytes;
}

static lk_status pass_all(lk_step *step, row *r)
{
    pass(r, lki_step_generator(step), sizeof(lk_generator));
    for (int i = 0; i < step->params.count; i++) {
        lk_param *param = step->params.items[i].param;
        if (!param->is_buffer) continue;
        if (!r->reads) LKI_TRY(lki_param_pull(param));
        pass(r, param->value->data, lk_tensor_nbytes(param->value));
        if (r->reads) lki_param_push(param);
    }
    if (step->flat.sums) pass(r, lki_buffer_data(step->flat.sums), lki_buffer_nbytes(step->flat.sums));
    if (step->replicas.residual) pass(r, step->replicas.residual, sizeof(float) * (size_t)step->flat.count);
    return LK_OK;
}

/* (ranks, bytes); of this rank alone if the call is not collective. */
static lk_status save_each(lk_step *step, lk_state_dict *state, bool gathers)
{
    row counted = {0};
    LKI_TRY(pass_all(step, &counted));
    int64_t ranks = gathers ? step->options.comm->size : 1, nbytes = (int64_t)counted.nbytes;
    lk_tensor *mine = lk_tensor_create(LK_U8, LK_SHAPE(1, nbytes));
    if (!mine) return LK_ERR_NOMEM;
    row written = {.bytes = mine->data};
    lk_status status = pass_all(step, &written);
    if (!gathers || status) {
        if (status == LK_OK) return lk_state_dict_put(state, "step.each", mine);
        lk_tensor_free(mine);
        return status;
    }
    lk_tensor *all = lk_tensor_create(LK_U8, LK_SHAPE(ranks, nbytes));
    status =
        all ? lk_comm_all_gather(step->options.comm, mine->data, all->data, nbytes, LK_U8) : LK_ERR_NOMEM;
    lk_tensor_free(mine);
    if (status == LK_OK) return lk_state_dict_put(state, "step.each", all);
    lk_tensor_free(all);
    return status;
}

static lk_status restore_each(lk_step *step, const lk_state_dict *state, int64_t index)
{
    row counted = {0};
    lk_generator generator;
    const lk_tensor *all = lk_state_dict_get(state, "step.each");
    if (!all) return lki_last_status();
    LKI_TRY(pass_all(step, &counted));
    if (all->dtype != LK_U8 || all->shape.rank != 2 || all->shape.dim[0] <= index ||
        all->shape.dim[1] != (int64_t)counted.nbytes || counted.nbytes < sizeof generator)
        return lki_fail(LK_ERR_FORMAT,
                        "step.each is of another step: accumulation_steps, compress_gradients and the "
                        "model must be those of the step that was saved");
    row read = {.bytes = (char *)all->data + index * all->shape.dim[1], .reads = true};
    memcpy(&generator, read.bytes, sizeof generator);
    LKI_TRY(lki_generator_check(&generator, "step.each"));
    return pass_all(step, &read);
}

/* ---- The whole ---- */

static lk_status collect(lk_step *step, lk_state_dict *state, bool collective)
{
    const lk_comm *comm = step->options.comm;
    LKI_TRY(lk_step_pull(step));
    LKI_TRY(lk_state_dict_put_i64(state, "step.format", FORMAT));
    LKI_TRY(lk_state_dict_put_i64(state, "step.ranks", comm ? comm->size : 1));
    LKI_TRY(lk_state_dict_put_i64(state, "step.rank", collective || !comm ? -1 : comm->rank));
    LKI_TRY(lki_module_save(state, step->options.model, "model."));
    LKI_TRY(lki_step_save(step, state, "optimizer"));
    LKI_TRY(lki_scheduler_save(state, step->options.scheduler));
    return save_each(step, state, collective);
}

static lk_status check_file(const lk_step *step, const lk_state_dict *state, bool collective)
{
    int64_t format, ranks, rank, own_ranks = step->options.comm ? step->options.comm->size : 1;
    if (!lk_state_dict_has(state, "step.format"))
        return lki_fail(LK_ERR_FORMAT, "lk_step_save has not written this file");
    LKI_TRY(lk_state_dict_get_i64(state, "step.format", &format));
    LKI_TRY(lk_state_dict_get_i64(state, "step.ranks", &ranks));
    LKI_TRY(lk_state_dict_get_i64(state, "step.rank", &rank));
    if (format != FORMAT)
        return lki_fail(LK_ERR_UNSUPPORTED,
                        "the file has format %lld, and this version of Lockstep reads format %d",
                        (long long)format, FORMAT);
    if (ranks != own_ranks)
        return lki_fail(LK_ERR_FORMAT, "the step was saved by %lld ranks and cannot be restored by %lld",
                        (long long)ranks, (long long)own_ranks);
    if (ranks == 1) return LK_OK;
    if (collective != (rank < 0))
        return lki_fail(LK_ERR_FORMAT, "the file was saved %s .collective: restore it in the same way",
                        collective ? "without" : "with");
    if (!collective && rank != step->options.comm->rank)
        return lki_fail(LK_ERR_FORMAT, "the file is that of rank %lld", (long long)rank);
    return LK_OK;
}

static lk_status restore(lk_step *step, const lk_state_dict *state, bool collective)
{
    LKI_TRY(check_file(step, state, collective));
    LKI_TRY(lki_step_finish(step));
    LKI_TRY(lki_module_restore(state, step->options.model, "model."));
    LKI_TRY(lki_step_restore(step, state, "optimizer"));
    LKI_TRY(lki_scheduler_restore(state, step->options.scheduler));
    LKI_TRY(restore_each(step, state, collective ? step->options.comm->rank : 0));
    lki_backend_changed(step->backend); /* of all that was written on the host */
    return lki_step_params_changed(step);
}

/* Whether it went well on all ranks; those that it went well on say that it did not elsewhere. */
static lk_status agree(lk_step *step, bool collective, const char *what, const char *path, lk_status status)
{
    lki_error first = {0};
    int64_t failed = status != LK_OK;
    if (!collective) return status;
    lki_error_keep(&first, status);
    LKI_TRY(lk_comm_all_reduce(step->options.comm, &failed, 1, LK_I64, LK_REDUCE_SUM));
    if (status) return lki_error_restore(&first);
    return failed ? lki_fail(LK_ERR_PEER, "%s: another rank could not %s it", path, what) : LK_OK;
}

lk_status lk_step_save_with(lk_step *step, const char *path, const lk_step_file_options *given)
{
    LKI_TAKE(lk_step_file_options, options, given, lki_last_status());
    bool collective = options.collective && has_peers(step);
    lk_state_dict *state = lk_state_dict_create();
    lk_status status = state ? collect(step, state, collective) : LK_ERR_NOMEM;
    bool writes = !collective || step->options.comm->rank == 0;
    if (status == LK_OK && writes) status = lk_save_safetensors(path, state);
    lk_state_dict_free(state);
    return agree(step, collective, "save", path, status);
}

lk_status lk_step_restore_with(lk_step *step, const char *path, const lk_step_file_options *given)
{
    LKI_TAKE(lk_step_file_options, options, given, lki_last_status());
    bool collective = options.collective && has_peers(step);
    lk_state_dict *state = lk_load_safetensors(path);
    lk_status status = state ? restore(step, state, collective) : lki_last_status();
    if (status && state) status = lki_fail_prefix(status, "%s", path);
    lk_state_dict_free(state);
    return agree(step, collective, "restore", path, status);
}
