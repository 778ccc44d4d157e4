/* What every comm must do, whatever carries it. A test program of a backend says how a rank connects and
 * calls conformance_run for as many ranks as it likes. */
#ifndef LKT_CONFORMANCE_H
#define LKT_CONFORMANCE_H

#include "ranks.h"

#include "base/memory.h"
#include "tensor/element.h"

#include <lockstep/sys/comm.h>

typedef lk_status (*connect_rank)(lk_comm **out, int rank, int size, void *context);

typedef struct conformance {
    connect_rank connect;
    void *context;
    void (*forget)(lk_comm *comm); /* optional: whoever else looks at the comm lets go of it */
    int64_t largest;               /* elements of the largest array; 0: 200,000 */
    _Atomic int *arrived;          /* shared between the ranks: the barrier's witness */
    bool rank_order;               /* sums are made in rank order, to the bit */
    int stall_ms;                  /* the timeout of the stall; 0: 300 */
    int stride; /* of the sizes, for slow backends: each is still met by some dtype; 0: all */
} conformance;

static const int64_t conformance_counts[] = {0,  1,  2,   3,    7,    15,   16,    17,   63,
                                             64, 65, 255, 1000, 4099, 7850, 16385, 70001};
enum { CONFORMANCE_COUNTS = sizeof conformance_counts / sizeof *conformance_counts };

/* Small integers, so that every dtype holds them and their sums exactly. */
static double sample(int rank, int64_t i, lk_dtype dtype)
{
    if (dtype == LK_BOOL) return (rank + i) % 3 == 0;
    return (double)((rank * 5 + i * 3 + i / 11) % 17);
}

static double expected_value(int size, int64_t i, lk_dtype dtype, lk_reduce reduce)
{
    double value = sample(0, i, dtype);
    for (int r = 1; r < size; r++) {
        double next = sample(r, i, dtype);
        if (reduce == LK_REDUCE_MAX || (dtype == LK_BOOL && reduce == LK_REDUCE_SUM))
            value = value > next ? value : next;
        else if (reduce == LK_REDUCE_MIN)
            value = value < next ? value : next;
        else
            value += next;
    }
    return reduce == LK_REDUCE_AVG ? value / size : value;
}

static bool near(double actual, double expected, lk_dtype dtype)
{
    double tolerance = dtype == LK_F64 ? 1e-13 : dtype == LK_F32 ? 1e-6 : lk_dtype_is_float(dtype) ? 1e-2 : 0;
    double scale = fabs(expected) > 1 ? fabs(expected) : 1;
    return fabs(actual - expected) <= tolerance * scale;
}

static const char *check_all_reduce(lk_comm *comm, int rank, int64_t count, lk_dtype dtype, lk_reduce reduce,
                                    bool in_place)
{
    size_t nbytes = (size_t)count * lk_dtype_nbytes(dtype);
    char *send = lki_calloc(nbytes + 16, "send"), *recv = in_place ? send : lki_calloc(nbytes + 16, "recv");
    for (int64_t i = 0; i < count; i++) lki_store(dtype, send, i, sample(rank, i, dtype));
    memset(recv + nbytes, 0x5a, 16); /* nothing may be written beyond the end */
    rank_ok(lk_comm_run(comm, &(lk_comm_op){.kind = LK_COMM_ALL_REDUCE,
                                            .reduce = reduce,
                                            .dtype = dtype,
                                            .send = send,
                                            .recv = recv,
                                            .count = count}));
    for (int64_t i = 0; i < count; i++) {
        double actual = lki_load(dtype, recv, i), expected = expected_value(comm->size, i, dtype, reduce);
        if (!near(actual, expected, dtype)) {
            static _Thread_local char text[256];
            snprintf(text, sizeof text, "rank %d: %s %s of %lld: [%lld] is %g, expected %g", rank,
                     lk_dtype_name(dtype), lk_reduce_name(reduce), (long long)count, (long long)i, actual,
                     expected);
            return text;
        }
    }
    for (int i = 0; i < 16; i++) rank_check((unsigned char)recv[nbytes + i] == 0x5a);
    if (!in_place) lki_free(recv);
    lki_free(send);
    return NULL;
}

static const char *all_reduce_everything(lk_comm *comm, int rank, int stride)
{
    for (int dtype = LK_F32; dtype <= LK_BOOL; dtype++)
        for (int reduce = LK_REDUCE_SUM; reduce <= LK_REDUCE_MIN; reduce++)
            for (int c = 0; c < CONFORMANCE_COUNTS; c++) {
                if (reduce == LK_REDUCE_AVG && !lk_dtype_is_float((lk_dtype)dtype)) continue;
                if (stride && (c + dtype + reduce) % stride != 0) continue;
                const char *failure = check_all_reduce(comm, rank, conformance_counts[c], (lk_dtype)dtype,
                                                       (lk_reduce)reduce, (c + dtype) % 2 == 0);
                if (failure) return failure;
            }
    return NULL;
}

static const char *broadcast_from_each(lk_comm *comm, int rank)
{
    for (int root = 0; root < comm->size; root++)
        for (int c = 0; c < CONFORMANCE_COUNTS; c++) {
            int64_t count = conformance_counts[c];
            int32_t *data = lki_calloc((size_t)count * 4, "data");
            for (int64_t i = 0; i < count; i++) data[i] = rank == root ? (int32_t)(i * 7 + root) : -1;
            rank_ok(lk_comm_broadcast(comm, data, count, LK_I32, root));
            for (int64_t i = 0; i < count; i++) rank_check(data[i] == (int32_t)(i * 7 + root));
            lki_free(data);
        }
    return NULL;
}

static const char *all_gather_in_rank_order(lk_comm *comm, int rank)
{
    for (int c = 0; c < CONFORMANCE_COUNTS; c++)
        for (int in_place = 0; in_place < 2; in_place++) {
            int64_t count = conformance_counts[c];
            int64_t *all = lki_calloc((size_t)(count * comm->size) * 8, "all");
            int64_t *mine = in_place ? all + rank * count : lki_calloc((size_t)count * 8, "mine");
            for (int64_t i = 0; i < count; i++) mine[i] = rank * 1000003LL + i;
            rank_ok(lk_comm_all_gather(comm, mine, all, count, LK_I64));
            for (int r = 0; r < comm->size; r++)
                for (int64_t i = 0; i < count; i++) rank_check(all[r * count + i] == r * 1000003LL + i);
            if (!in_place) lki_free(mine);
            lki_free(all);
        }
    return NULL;
}

static const char *reduce_scatter_pieces(lk_comm *comm, int rank)
{
    static const lk_dtype dtypes[] = {LK_F32, LK_BF16, LK_I64, LK_U8};
    for (int d = 0; d < 4; d++)
        for (int c = 0; c < CONFORMANCE_COUNTS; c++)
            for (int in_place = 0; in_place < 2; in_place++) {
                int64_t count = conformance_counts[c];
                size_t nbytes = lk_dtype_nbytes(dtypes[d]);
                char *send = lki_calloc((size_t)(count * comm->size) * nbytes, "send");
                char *recv = in_place ? send + (size_t)(rank * count) * nbytes
                                      : lki_calloc((size_t)count * nbytes, "recv");
                for (int64_t i = 0; i < count * comm->size; i++)
                    lki_store(dtypes[d], send, i, sample(rank, i, dtypes[d]));
                rank_ok(lk_comm_reduce_scatter(comm, send, recv, count, dtypes[d], LK_REDUCE_SUM));
                for (int64_t i = 0; i < count; i++)
                    rank_check(near(lki_load(dtypes[d], recv, i),
                                    expected_value(comm->size, rank * count + i, dtypes[d], LK_REDUCE_SUM),
                                    dtypes[d]));
                if (!in_place) lki_free(recv);
                lki_free(send);
            }
    return NULL;
}

/* After the n-th barrier every rank has counted n times. */
static const char *barrier_orders(lk_comm *comm, int rank, _Atomic int *arrived)
{
    for (int round = 1; round <= 20; round++) {
        atomic_fetch_add(arrived, 1);
        rank_ok(lk_comm_barrier(comm));
        rank_check(atomic_load(arrived) >= round * comm->size);
        rank_ok(lk_comm_barrier(comm));
        rank_check(atomic_load(arrived) <= round * comm->size);
        rank_ok(lk_comm_barrier(comm));
    }
    return NULL;
}

static uint64_t hash_bytes(const void *data, size_t nbytes)
{
    uint64_t hash = 1469598103934665603ULL;
    for (size_t i = 0; i < nbytes; i++) hash = (hash ^ ((const unsigned char *)data)[i]) * 1099511628211ULL;
    return hash;
}

/* Numbers whose sum depends on the order of addition. */
static float awkward(int rank, int64_t i)
{
    uint32_t bits = (uint32_t)(i * 2654435761u) ^ ((uint32_t)rank * 40503u + 77u) * 2246822519u;
    bits ^= bits >> 13;
    return ((float)(bits % 20011) - 10005.0f) * (bits % 3 ? 1e-4f : 1.0f) * (bits % 7 ? 1.0f : 1e3f);
}

static const char *same_bits_everywhere(lk_comm *comm, int rank, int64_t count, bool rank_order)
{
    float *data = lki_calloc((size_t)count * 4, "data");
    uint64_t hashes[64];
    for (int64_t i = 0; i < count; i++) data[i] = awkward(rank, i);
    rank_ok(lk_comm_all_reduce(comm, data, count, LK_F32, LK_REDUCE_SUM));
    for (int64_t i = 0; rank_order && i < count; i++) {
        float sum = awkward(0, i);
        for (int r = 1; r < comm->size; r++) sum += awkward(r, i);
        rank_check(data[i] == sum);
    }
    uint64_t hash = hash_bytes(data, (size_t)count * 4);
    rank_ok(lk_comm_all_gather(comm, &hash, hashes, 1, LK_I64));
    for (int r = 0; r < comm->size; r++) rank_check(hashes[r] == hash);
    lki_free(data);
    return NULL;
}

enum { OUTSTANDING = 24 };

/* Many collectives of different kinds and sizes at once, waited for in an order of each rank's own. */
static const char *interleaved(lk_comm *comm, int rank, int rounds)
{
    lk_comm_request *requests[OUTSTANDING];
    float *data[OUTSTANDING];
    int64_t counts[OUTSTANDING];
    for (int round = 0; round < rounds; round++) {
        for (int k = 0; k < OUTSTANDING; k++) {
            counts[k] = conformance_counts[(k * 5 + round) % CONFORMANCE_COUNTS];
            data[k] = lki_calloc((size_t)counts[k] * 4 * (size_t)comm->size, "data");
            bool gather = k % 3 == 1;
            float *mine = gather ? data[k] + rank * counts[k] : data[k];
            for (int64_t i = 0; i < counts[k]; i++) mine[i] = (float)(rank + k + i % 100);
            lk_comm_op op = {.kind = gather  ? LK_COMM_ALL_GATHER
                                     : k % 3 ? LK_COMM_BROADCAST
                                             : LK_COMM_ALL_REDUCE,
                             .root = k % comm->size,
                             .dtype = LK_F32,
                             .send = mine,
                             .recv = data[k],
                             .count = counts[k]};
            rank_ok(lk_comm_start(comm, &op, &requests[k]));
        }
        for (int k = 0; k < OUTSTANDING; k++) {
            int which = (k * 7 + rank * 5) % OUTSTANDING; /* 7 and 24 share no factor: each once */
            bool done = false;
            if (k % 2) rank_ok(lk_comm_test(comm, requests[which], &done));
            if (!done) rank_ok(lk_comm_wait(comm, requests[which]));
        }
        for (int k = 0; k < OUTSTANDING; k++) {
            for (int64_t i = 0; i < counts[k]; i++) {
                float base = (float)(k + i % 100);
                if (k % 3 == 0)
                    rank_check(data[k][i] ==
                               base * (float)comm->size + (float)(comm->size * (comm->size - 1) / 2));
                if (k % 3 == 2) rank_check(data[k][i] == base + (float)(k % comm->size));
                if (k % 3 == 1)
                    for (int r = 0; r < comm->size; r++)
                        rank_check(data[k][r * counts[k] + i] == base + (float)r);
            }
            lki_free(data[k]);
        }
    }
    return NULL;
}

static const char *steady_state_allocates_nothing(lk_comm *comm, int rank)
{
    float data[1000] = {0};
    rank_ok(lk_comm_all_reduce(comm, data, 1000, LK_F32, LK_REDUCE_AVG));
    uint64_t before = lki_allocation_count();
    for (int i = 0; i < 50; i++) rank_ok(lk_comm_all_reduce(comm, data, 1000, LK_F32, LK_REDUCE_AVG));
    for (int i = 0; i < 20; i++) rank_ok(lk_comm_barrier(comm));
    rank_check(lki_allocation_count() - before <
               20); /* a monitor may say something new once; no collective allocates */
    return NULL;
}

static const char *bad_descriptions_leave_it_working(lk_comm *comm, int rank)
{
    int32_t one = 1;
    lk_comm_request *request;
    rank_check(lk_comm_all_reduce(comm, &one, -1, LK_I32, LK_REDUCE_SUM) == LK_ERR_INVALID);
    rank_check(lk_comm_all_reduce(comm, NULL, 1, LK_I32, LK_REDUCE_SUM) == LK_ERR_INVALID);
    rank_check(lk_comm_all_reduce(comm, &one, 1, LK_I32, LK_REDUCE_AVG) == LK_ERR_DTYPE);
    rank_check(lk_comm_broadcast(comm, &one, 1, LK_I32, comm->size) == LK_ERR_INVALID);
    rank_check(lk_comm_start(comm, &(lk_comm_op){.kind = (lk_comm_kind)99}, &request) == LK_ERR_INVALID &&
               !request);
    rank_ok(lk_comm_all_reduce(comm, &one, 1, LK_I32, LK_REDUCE_SUM));
    rank_check(one == comm->size);
    char text[256];
    lk_comm_history(comm, 2, text, sizeof text);
    rank_check(strstr(text, "all-reduce 1 i32 done") != NULL);
    return NULL;
}

static const char *pool_runs_out(lk_comm *comm, int rank)
{
    lk_comm_request *requests[LK_COMM_MAX_REQUESTS], *extra;
    int32_t values[LK_COMM_MAX_REQUESTS];
    lk_comm_op op = {.kind = LK_COMM_ALL_REDUCE, .dtype = LK_I32, .count = 1};
    for (int k = 0; k < LK_COMM_MAX_REQUESTS; k++) {
        values[k] = k + rank;
        op.send = op.recv = &values[k];
        rank_ok(lk_comm_start(comm, &op, &requests[k]));
    }
    rank_check(lk_comm_start(comm, &op, &extra) == LK_ERR_RANGE);
    for (int k = LK_COMM_MAX_REQUESTS - 1; k >= 0; k--) rank_ok(lk_comm_wait(comm, requests[k]));
    for (int k = 0; k < LK_COMM_MAX_REQUESTS; k++)
        rank_check(values[k] == k * comm->size + comm->size * (comm->size - 1) / 2);
    return NULL;
}

static inline void end_comm(const conformance *suite, lk_comm *comm)
{
    if (suite->forget) suite->forget(comm);
    lk_comm_free(comm);
}

#define RUN_PART(call)                                                                                       \
    do {                                                                                                     \
        const char *failure_ = (call);                                                                       \
        if (failure_) return failure_;                                                                       \
    } while (0)

static inline const char *conformance_body(int rank, int size, void *context)
{
    conformance *suite = context;
    lk_comm *comm = NULL;
    rank_ok(suite->connect(&comm, rank, size, suite->context));
    rank_check(comm->rank == rank && comm->size == size);
    RUN_PART(all_reduce_everything(comm, rank, suite->stride));
    RUN_PART(broadcast_from_each(comm, rank));
    RUN_PART(all_gather_in_rank_order(comm, rank));
    RUN_PART(reduce_scatter_pieces(comm, rank));
    RUN_PART(barrier_orders(comm, rank, suite->arrived));
    RUN_PART(same_bits_everywhere(comm, rank, 7850, suite->rank_order));
    RUN_PART(same_bits_everywhere(comm, rank, suite->largest ? suite->largest : 200000, suite->rank_order));
    RUN_PART(interleaved(comm, rank, suite->stride ? 3 : 10));
    RUN_PART(bad_descriptions_leave_it_working(comm, rank));
    RUN_PART(pool_runs_out(comm, rank));
    rank_ok(lk_comm_barrier(comm));
    end_comm(suite, comm);
    return NULL;
}

/* Threads share the allocation counter, so this part is for processes. */
static inline const char *steady_body(int rank, int size, void *context)
{
    conformance *suite = context;
    lk_comm *comm = NULL;
    rank_ok(suite->connect(&comm, rank, size, suite->context));
    RUN_PART(steady_state_allocates_nothing(comm, rank));
    end_comm(suite, comm);
    return NULL;
}

/* Rank 1 is killed in the middle; all others must be told so, by its number. */
static inline const char *killed_body(int rank, int size, void *context)
{
    conformance *suite = context;
    lk_comm *comm = NULL;
    float data[1000] = {0};
    rank_ok(suite->connect(&comm, rank, size, suite->context));
    comm->timeout_ms = 200000; /* the end must come from the death, long before */
    for (int i = 0; i < 4; i++) rank_ok(lk_comm_all_reduce(comm, data, 1000, LK_F32, LK_REDUCE_SUM));
    lk_status status = lk_comm_all_reduce(comm, data, 1000, LK_F32,
                                          LK_REDUCE_SUM); /* the others may not have ended it yet */
    if (rank == 1) raise(SIGKILL);
    for (int i = 0; i < 3 && status == LK_OK; i++)
        status = lk_comm_all_reduce(comm, data, 1000, LK_F32, LK_REDUCE_SUM);
    rank_check(status == LK_ERR_PEER);
    rank_check(strstr(lk_error(), "rank 1") != NULL);
    rank_check(lk_comm_barrier(comm) == LK_ERR_PEER); /* broken for good, same sentence */
    rank_check(strstr(lk_error(), "rank 1") != NULL);
    end_comm(suite, comm);
    return NULL;
}

/* Until it is known here, too, that `rank` has finished #seq: what others hear of a rank may be half a second
 * old, and older on a busy machine. Ranks that hear nothing of each other do not wait for long. */
static inline void hear_of(lk_comm *comm, int rank, uint64_t seq)
{
    lk_comm_progress at = {0};
    for (int i = 0; comm->ops->progress && i < (at.known ? 60000 : 1500); i++) {
        comm->ops->progress(comm, rank, &at);
        if (at.known && at.finished >= seq) return;
        usleep(1000);
    }
}

/* Rank 1 stays away until the others have given up. */
static inline const char *stalled_body(int rank, int size, void *context)
{
    conformance *suite = context;
    lk_comm *comm = NULL;
    float data[10] = {0};
    rank_ok(suite->connect(&comm, rank, size, suite->context));
    rank_ok(lk_comm_all_reduce(comm, data, 10, LK_F32, LK_REDUCE_SUM));
    rank_ok(lk_comm_barrier(comm));
    if (rank == 1) {
        while (atomic_load(suite->arrived) < size - 1) usleep(1000);
    } else {
        hear_of(comm, 1, 2);
        comm->timeout_ms = suite->stall_ms ? suite->stall_ms : 300;
        lk_status status = lk_comm_all_reduce(comm, data, 10, LK_F32, LK_REDUCE_SUM);
        rank_check(status == LK_ERR_TIMEOUT ||
                   status == LK_ERR_PEER); /* PEER: another one gave up first, and said why */
        rank_check(strstr(lk_error(), "all-reduce #3 of 10 f32") != NULL);
        rank_check(strstr(lk_error(), "rank 1 is behind: it has finished #2 (barrier") != NULL);
        atomic_fetch_add(suite->arrived, 1);
    }
    end_comm(suite, comm);
    return NULL;
}

static inline const char *aborted_body(int rank, int size, void *context)
{
    conformance *suite = context;
    lk_comm *comm = NULL;
    float data[10] = {0};
    rank_ok(suite->connect(&comm, rank, size, suite->context));
    lk_status status =
        lk_comm_all_reduce(comm, data, 10, LK_F32, LK_REDUCE_SUM); /* the others may not have ended it yet */
    if (rank == size - 1) {
        rank_check(status == LK_OK);
        lk_comm_abort(comm, "the disk is full");
    }
    for (int i = 0; i < 3 && status == LK_OK; i++)
        status = lk_comm_all_reduce(comm, data, 10, LK_F32, LK_REDUCE_SUM);
    rank_check(status == LK_ERR_PEER);
    rank_check(strstr(lk_error(), "the disk is full") != NULL);
    end_comm(suite, comm);
    return NULL;
}

#endif
