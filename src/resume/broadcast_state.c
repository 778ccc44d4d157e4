#include "resume/broadcast_state.h"

#include "base/memory.h"
#include "base/status.h"
#include "run/run.h"

#include <lockstep/sys/comm.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SENTENCE_NBYTES = 512 };

static bool has_peers(const lk_runner *runner)
{
    const lk_comm *comm = runner->run->ranks.comm;
    return comm && comm->size > 1;
}

lk_status lki_take_word_of_master(lk_runner *runner, int64_t *value)
{
    return has_peers(runner) ? lk_comm_broadcast(runner->run->ranks.comm, value, 1, LK_I64, 0) : LK_OK;
}

lk_status lki_take_word_of_any(lk_runner *runner, int64_t *value)
{
    lk_comm *comm = runner->run->ranks.comm;
    return has_peers(runner) ? lk_comm_all_reduce(comm, value, 1, LK_I64, LK_REDUCE_MAX) : LK_OK;
}

/* What goes before a tensor. */
typedef struct tensor_header {
    int64_t dtype, rank, dim[LK_MAX_DIMS];
} tensor_header;

/* Rank 0's text, on every rank; NULL with the reason otherwise. The caller's to free. */
static char *share_text(lk_comm *comm, const char *text)
{
    int64_t nbytes = comm->rank == 0 ? (int64_t)strlen(text) + 1 : 0;
    if (lk_comm_broadcast(comm, &nbytes, 1, LK_I64, 0)) return NULL;
    char *copy = lki_calloc((size_t)nbytes, "a name in a checkpoint");
    if (!copy) return NULL;
    if (comm->rank == 0) memcpy(copy, text, (size_t)nbytes);
    if (lk_comm_broadcast(comm, copy, nbytes, LK_U8, 0) == LK_OK) return copy;
    lki_free(copy);
    return NULL;
}

/* The share of another rank. */
static bool is_others_share(const lk_comm *comm, const char *name)
{
    char *end = NULL;
    if (strncmp(name, "rank.", 5) != 0) return false;
    long rank = strtol(name + 5, &end, 10);
    return end != name + 5 && !*end && rank != comm->rank;
}

/* Whether it was saved by as many ranks, each of which then goes on with its own share. */
static bool has_as_many_ranks(const lk_comm *comm, const lk_state_dict *state)
{
    int64_t world_size = 0;
    return lk_state_dict_has(state, "runner.world_size") &&
           lk_state_dict_get_i64(state, "runner.world_size", &world_size) == LK_OK &&
           world_size == comm->size;
}

/* Every rank takes part in each broadcast, whether it keeps the numbers or not. */
static lk_status share_tensor(lk_comm *comm, lk_state_dict *state, int64_t index, bool leave_others)
{
    const lk_tensor *sent = comm->rank == 0 ? lk_state_dict_tensor(state, index) : NULL;
    tensor_header header = {0};
    if (sent) {
        header.dtype = sent->dtype;
        header.rank = sent->shape.rank;
        memcpy(header.dim, sent->shape.dim, sizeof header.dim);
    }
    LKI_SCOPED char *name = share_text(comm, sent ? lk_state_dict_name(state, index) : "");
    if (!name) return lki_last_status();
    LKI_TRY(lk_comm_broadcast(comm, &header, sizeof header, LK_U8, 0));
    if (sent) return lk_comm_broadcast(comm, sent->data, (int64_t)lk_tensor_nbytes(sent), LK_U8, 0);
    lk_shape shape = {.rank = (int)header.rank};
    memcpy(shape.dim, header.dim, sizeof shape.dim);
    lk_tensor *tensor = lk_tensor_create((lk_dtype)header.dtype, shape);
    if (!tensor) return lki_last_status();
    lk_status status = lk_comm_broadcast(comm, tensor->data, (int64_t)lk_tensor_nbytes(tensor), LK_U8, 0);
    if (status == LK_OK && leave_others && is_others_share(comm, name)) {
        lk_tensor_free(tensor);
        tensor = lk_tensor_create(LK_U8, LK_SHAPE(0));
    }
    if (status == LK_OK && tensor) return lk_state_dict_put(state, name, tensor);
    lk_tensor_free(tensor);
    return status ? status : lki_last_status();
}

static lk_status share_state(lk_comm *comm, lk_state_dict *state)
{
    int64_t counts[] = {lk_state_dict_string_count(state), lk_state_dict_count(state),
                        has_as_many_ranks(comm, state)};
    LKI_TRY(lk_comm_broadcast(comm, counts, 3, LK_I64, 0));
    for (int64_t i = 0; i < counts[0]; i++) {
        const char *own_name = comm->rank == 0 ? lk_state_dict_string_name(state, i) : "";
        LKI_SCOPED char *name = share_text(comm, own_name);
        LKI_SCOPED char *value =
            name ? share_text(comm, comm->rank == 0 ? lk_state_dict_get_string(state, own_name) : "") : NULL;
        if (!value) return lki_last_status();
        if (comm->rank != 0) LKI_TRY(lk_state_dict_put_string(state, name, value));
    }
    for (int64_t i = 0; i < counts[1]; i++) LKI_TRY(share_tensor(comm, state, i, counts[2] != 0));
    return LK_OK;
}

lk_state_dict *lki_load_on_all(lk_runner *runner, const char *path)
{
    lk_comm *comm = runner->run->ranks.comm;
    if (!has_peers(runner)) return lk_load_checkpoint(path);
    lk_state_dict *state = comm->rank == 0 ? lk_load_checkpoint(path) : lk_state_dict_create();
    char sentence[SENTENCE_NBYTES] = "";
    int64_t verdict = comm->rank == 0 && !state ? (int64_t)lki_last_status() : LK_OK;
    if (comm->rank == 0 && !state) snprintf(sentence, sizeof sentence, "%s", lk_error());
    lk_status status =
        state || comm->rank == 0 ? lk_comm_broadcast(comm, &verdict, 1, LK_I64, 0) : LK_ERR_NOMEM;
    if (status == LK_OK && verdict) {
        status = lk_comm_broadcast(comm, sentence, sizeof sentence, LK_U8, 0);
        if (status == LK_OK) {
            (void)lk_comm_barrier(comm); /* rank 0 leaves, which ends the comm, after all have the sentence */
            lki_fail((lk_status)verdict, "%s", sentence);
        }
        status = (lk_status)verdict;
    } else if (status == LK_OK) {
        status = share_state(comm, state);
    }
    if (status == LK_OK) return state;
    lk_state_dict_free(state);
    return NULL;
}
