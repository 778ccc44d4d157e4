/* The tree that adds the shards' gradients: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). With four ranks each
 * adds the innermost pair, with two all that is on its side of the outermost plus. Both are powers of two, so
 * a rank's shards are always a whole branch. */
#include "step/step.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/comm.h"

#include <string.h>

/* Numbers that are added up while they are in the caches, and those that travel in one message. */
enum { PIECE = 1024, MESSAGE = 1 << 18, LINE_NBYTES = 64 };

static void *grads_of(const lk_step *step)
{
    return lki_buffer_data(step->flat.grads);
}

/* left + right, in place of the right one. */
static void add(lk_dtype dtype, const void *left, void *right, int64_t count)
{
    if (dtype == LK_F64) {
        const double *a = left;
        double *b = right;
        for (int64_t i = 0; i < count; i++) b[i] = a[i] + b[i];
    } else {
        const float *a = left;
        float *b = right;
        for (int64_t i = 0; i < count; i++) b[i] = a[i] + b[i];
    }
}

/* Exact: the divisor is a power of two. */
static void divide(lk_dtype dtype, void *data, int64_t count, int divisor)
{
    if (dtype == LK_F64) {
        double *numbers = data, factor = 1.0 / divisor;
        for (int64_t i = 0; i < count; i++) numbers[i] *= factor;
    } else {
        float *numbers = data, factor = 1.0f / (float)divisor;
        for (int64_t i = 0; i < count; i++) numbers[i] *= factor;
    }
}

lk_status lki_shards_add(lk_step *step, int index)
{
    lki_shards *shards = &step->shards;
    const lki_flat *flat = &step->flat;
    size_t nbytes = (size_t)flat->count * lk_dtype_nbytes(flat->dtype);
    int level = 0;
    for (; index >> level & 1; level++) add(flat->dtype, shards->sums[level], grads_of(step), flat->count);
    if (index == shards->own - 1) return LK_OK;
    if (!shards->sums[level]) shards->sums[level] = lki_alloc_aligned(nbytes, "the gradients of a shard");
    if (!shards->sums[level]) return LK_ERR_NOMEM;
    memcpy(shards->sums[level], grads_of(step), nbytes);
    return LK_OK;
}

/* ---- Between the ranks ---- */

/* The upper part of the tree over `ranks` blocks, of at most PIECE numbers; into `out`. */
static void add_blocks(lk_dtype dtype, const char *const *blocks, int ranks, int64_t count, void *out)
{
    _Alignas(64) double sums[LKI_SHARD_LEVELS + 1][PIECE];
    size_t nbytes = (size_t)count * lk_dtype_nbytes(dtype);
    for (int r = 0; r < ranks; r++) {
        int level = 0;
        memcpy(out, blocks[r], nbytes);
        for (; r >> level & 1; level++) add(dtype, sums[level], out, count);
        if (r < ranks - 1) memcpy(sums[level], out, nbytes);
    }
}

typedef struct blocks {
    const char *const *of; /* (ranks): where each rank's numbers lie */
    int ranks, total;
    lk_dtype dtype;
} blocks;

/* The mean goes to `out`. */
static void average_piece(const blocks *all, int64_t begin, int64_t count, char *out)
{
    const char *at[1 << LKI_SHARD_LEVELS];
    size_t element = lk_dtype_nbytes(all->dtype);
    for (int r = 0; r < all->ranks; r++) at[r] = all->of[r] + (size_t)begin * element;
    add_blocks(all->dtype, at, all->ranks, count, out);
    divide(all->dtype, out, count, all->total);
}

/* Each rank averages its part of the numbers where they are, and writes it to all. */
static lk_status average_in_window(lk_step *step, lk_comm *comm)
{
    const lki_flat *flat = &step->flat;
    size_t element = lk_dtype_nbytes(flat->dtype);
    size_t offset = (size_t)((char *)grads_of(step) - (char *)lk_comm_window_block(flat->window, comm->rank));
    int64_t line = (int64_t)(LINE_NBYTES / element), lines = (flat->count + line - 1) / line;
    int64_t begin = lines * comm->rank / comm->size * line,
            end = lines * (comm->rank + 1) / comm->size * line;
    char *of[1 << LKI_SHARD_LEVELS];
    _Alignas(64) double mean[PIECE];
    blocks all = {(const char *const *)of, comm->size, step->shards.total, flat->dtype};
    if (end > flat->count) end = flat->count;
    for (int r = 0; r < comm->size; r++) of[r] = (char *)lk_comm_window_block(flat->window, r) + offset;
    LKI_TRY(lk_comm_barrier(comm)); /* all of them are there */
    for (; begin < end; begin += PIECE) {
        int64_t count = end - begin < PIECE ? end - begin : PIECE;
        average_piece(&all, begin, count, (char *)mean);
        for (int r = 0; r < comm->size; r++)
            memcpy(of[r] + (size_t)begin * element, mean, (size_t)count * element);
    }
    return lk_comm_barrier(comm);
}

/* Every rank gets everybody's numbers, and adds them up itself. */
static lk_status average_by_messages(lk_step *step, lk_comm *comm)
{
    const lki_flat *flat = &step->flat;
    size_t element = lk_dtype_nbytes(flat->dtype);
    const char *of[1 << LKI_SHARD_LEVELS];
    blocks all = {of, comm->size, step->shards.total, flat->dtype};
    int64_t room = flat->count < MESSAGE ? flat->count : MESSAGE;
    if (!step->shards.gathered)
        step->shards.gathered =
            lki_alloc_aligned((size_t)(room * comm->size) * element, "the gradients of all ranks");
    if (!step->shards.gathered) return LK_ERR_NOMEM;
    for (int64_t begin = 0; begin < flat->count; begin += room) {
        int64_t count = flat->count - begin < room ? flat->count - begin : room;
        char *own = (char *)grads_of(step) + (size_t)begin * element;
        LKI_TRY(lk_comm_all_gather(comm, own, step->shards.gathered, count, flat->dtype));
        for (int r = 0; r < comm->size; r++)
            of[r] = (const char *)step->shards.gathered + (size_t)(r * count) * element;
        for (int64_t i = 0; i < count; i += PIECE)
            average_piece(&all, i, count - i < PIECE ? count - i : PIECE, own + (size_t)i * element);
    }
    return LK_OK;
}

lk_status lki_shards_reduce(lk_step *step)
{
    lk_comm *comm = step->replicas.comm;
    if (comm) return step->flat.window ? average_in_window(step, comm) : average_by_messages(step, comm);
    divide(step->flat.dtype, grads_of(step), step->flat.count, step->shards.total);
    return LK_OK;
}
