#include "comm/mpi/mpi_pairs.h"

#include "base/clock.h"
#include "base/status.h"
#include "comm/all_reduce_choice.h"
#include "comm/mpi/mpi_internal.h"
#include "comm/reduction.h"

/* Tags carry the collective and the round, as several collectives may be under way; they end below what every
 * MPI has, and begin above the roll call's. */
enum { PROBE_TAG = 7412, FIRST_TAG = 16384, TAGGED_COLLECTIVES = 512, TAGS_A_COLLECTIVE = 32 };

/* Open MPI sends up to 64 KiB at once over TCP, its header included. */
enum { SLOW_PIECE_NBYTES = 60000, FAST_PIECE_NBYTES = 1 << 30, SLOW_NS = 8000, PROBES = 5 };

/* A small collective takes a quarter of a microsecond: what it passes through is compiled in one piece. */
#define INLINE static inline __attribute__((always_inline))

typedef struct span {
    int64_t begin, count;
} span;

static bool halves(const lk_comm *base, const lk_comm_op *op)
{
    return lki_mpi_halves(base->size, (double)op->count * (double)lk_dtype_nbytes(op->dtype));
}

static int levels_of(int size)
{
    return __builtin_ctz((unsigned)size);
}

/* What a rank keeps of the data when it has been halved `level` times. */
static span share(const lk_comm *base, int64_t count, int rank, int level)
{
    span s = {0, count};
    for (int bit = base->size / 2; level > 0; level--, bit /= 2) {
        int64_t low = s.count / 2;
        s = rank & bit ? (span){s.begin + low, s.count - low} : (span){s.begin, low};
    }
    return s;
}

/* What happens in a round: two ranks send each other a span, and the receiver adds to what it has or keeps
 * it as it is. */
typedef struct exchange {
    int peer;
    span sent, received;
    bool reduces;
} exchange;

INLINE exchange exchange_of(const lki_pairs *pairs, const lk_comm *base, const lk_comm_op *op)
{
    int levels = levels_of(base->size), me = base->rank;
    span all = {0, op->count};
    if (pairs->rounds == levels) return (exchange){me ^ 1 << pairs->round, all, all, true};
    bool is_doubling = pairs->round >= levels;
    int level = is_doubling ? 2 * levels - 1 - pairs->round : pairs->round;
    int peer = me ^ base->size >> (level + 1);
    span mine = share(base, op->count, me, level + 1), theirs = share(base, op->count, peer, level + 1);
    return is_doubling ? (exchange){peer, mine, theirs, false} : (exchange){peer, theirs, mine, true};
}

/* The quickest of a few exchanges with the peer of each level, and of these the slowest. */
lk_status lki_pairs_probe(MPI_Comm comm, int rank, int size, int64_t *piece_nbytes)
{
    int64_t slowest_ns = 0;
    for (int bit = 1; bit < size; bit *= 2) {
        int64_t quickest_ns = INT64_MAX;
        for (int i = 0; i < PROBES; i++) {
            char mine = 0, theirs = 0;
            int64_t start_ns = lki_now_ns();
            LKI_TRY(lki_mpi_check(MPI_Sendrecv(&mine, 1, MPI_CHAR, rank ^ bit, PROBE_TAG, &theirs, 1,
                                               MPI_CHAR, rank ^ bit, PROBE_TAG, comm, MPI_STATUS_IGNORE),
                                  "MPI_Sendrecv"));
            int64_t ns = lki_now_ns() - start_ns;
            if (i > 0 && ns < quickest_ns) quickest_ns = ns; /* the first one waits for the peer to come */
        }
        if (quickest_ns > slowest_ns) slowest_ns = quickest_ns;
    }
    LKI_TRY(lki_mpi_check(MPI_Allreduce(MPI_IN_PLACE, &slowest_ns, 1, MPI_INT64_T, MPI_MAX, comm),
                          "MPI_Allreduce"));
    *piece_nbytes = slowest_ns > SLOW_NS ? SLOW_PIECE_NBYTES : FAST_PIECE_NBYTES;
    return LK_OK;
}

size_t lki_pairs_staging_nbytes(const lk_comm *base, const lk_comm_op *op)
{
    int64_t count = halves(base, op) ? op->count - op->count / 2 : op->count;
    return (size_t)count * lk_dtype_nbytes(op->dtype);
}

static char *at(const void *data, int64_t index, lk_dtype dtype)
{
    return (char *)data + (size_t)index * lk_dtype_nbytes(dtype);
}

typedef int (*transfer)(char *data, int count, const lki_pairs *pairs, int peer, int tag,
                        MPI_Request *request);

INLINE int receive(char *data, int count, const lki_pairs *pairs, int peer, int tag, MPI_Request *request)
{
    return MPI_Irecv(data, count, pairs->type, peer, tag, pairs->comm, request);
}

INLINE int send(char *data, int count, const lki_pairs *pairs, int peer, int tag, MPI_Request *request)
{
    return MPI_Isend(data, count, pairs->type, peer, tag, pairs->comm, request);
}

/* Begins the next messages of a span, of which pairs->moved elements are through, as many as there is room
 * for. */
INLINE lk_status begin_pieces(lki_pairs *pairs, const lk_comm_request *request, const exchange *e, char *data,
                              int64_t count, transfer begin)
{
    const lk_comm_op *op = &request->op;
    int64_t piece = pairs->piece, at_most = piece * (LKI_PAIRS_REQUESTS / 2);
    int64_t end = count - pairs->moved < at_most ? count : pairs->moved + at_most;
    int tag = FIRST_TAG + (int)(request->seq % TAGGED_COLLECTIVES) * TAGS_A_COLLECTIVE + pairs->round;
    for (int64_t i = pairs->moved; i < end || i == 0; i += piece) { /* nothing is a message, too */
        int length = (int)(end - i < piece ? end - i : piece);
        LKI_TRY(lki_mpi_check(begin(at(data, i, op->dtype), length, pairs, e->peer, tag,
                                    &pairs->requests[pairs->request_count]),
                              begin == receive ? "MPI_Irecv" : "MPI_Isend"));
        pairs->request_count++;
    }
    return LK_OK;
}

static lk_status post(lki_pairs *pairs, const lk_comm *base, const lk_comm_request *request)
{
    const lk_comm_op *op = &request->op;
    exchange e = exchange_of(pairs, base, op);
    const void *from = pairs->round == 0 ? op->send : op->recv;
    char *to = e.reduces ? pairs->staging : at(op->recv, e.received.begin, op->dtype);
    pairs->request_count = 0;
    LKI_TRY(begin_pieces(pairs, request, &e, to, e.received.count, receive));
    pairs->receive_count = pairs->request_count;
    return begin_pieces(pairs, request, &e, at(from, e.sent.begin, op->dtype), e.sent.count, send);
}

/* The lower rank's comes first, on both ranks. The last sum is an average's only one that is divided. */
static void add_up(const lki_pairs *pairs, const lk_comm *base, const lk_comm_op *op, const exchange *e)
{
    if (!e->reduces || e->received.count == 0) return;
    const void *mine = at(pairs->round == 0 ? op->send : op->recv, e->received.begin, op->dtype);
    const void *both[2] = {mine, pairs->staging};
    if (e->peer < base->rank) both[0] = pairs->staging, both[1] = mine;
    bool is_last = pairs->round + 1 == levels_of(base->size);
    lk_reduce reduce = op->reduce == LK_REDUCE_AVG && !is_last ? LK_REDUCE_SUM : op->reduce;
    lki_reduce(at(op->recv, e->received.begin, op->dtype), both, 2, e->received.count, op->dtype, reduce,
               base->size);
}

static int first_error(const MPI_Status *statuses, int count)
{
    for (int i = 0; i < count; i++)
        if (statuses[i].MPI_ERROR != MPI_SUCCESS && statuses[i].MPI_ERROR != MPI_ERR_PENDING)
            return statuses[i].MPI_ERROR;
    return MPI_ERR_OTHER;
}

/* Whether the messages under way are through; one of another length is a disagreement. */
static lk_status look(const lki_pairs *pairs, int64_t expected, int *through)
{
    MPI_Status statuses[LKI_PAIRS_REQUESTS];
    int code = MPI_Testall(pairs->request_count, pairs->requests, through, statuses);
    if (code == MPI_ERR_IN_STATUS) code = first_error(statuses, pairs->request_count);
    LKI_TRY(lki_mpi_check(code, "MPI_Testall"));
    if (!*through) return LK_OK;
    int64_t left = expected - pairs->moved, piece = pairs->piece;
    for (int i = 0; i < pairs->receive_count; i++, left -= piece) {
        int count = 0, length = (int)(left < piece ? left : piece);
        MPI_Get_count(&statuses[i], pairs->type, &count);
        if (count != length)
            return lki_fail(LK_ERR_PEER, "ranks disagree: rank %d sent %d elements where %d were expected",
                            statuses[i].MPI_SOURCE, count, length);
    }
    return LK_OK;
}

lk_status lki_pairs_start(lki_pairs *pairs, const lk_comm *base, const lk_comm_request *request)
{
    pairs->piece = pairs->piece_nbytes / (int64_t)lk_dtype_nbytes(request->op.dtype);
    pairs->round = 0;
    pairs->rounds = levels_of(base->size) * (halves(base, &request->op) ? 2 : 1);
    pairs->moved = 0;
    return post(pairs, base, request);
}

lk_status lki_pairs_advance(lki_pairs *pairs, const lk_comm *base, const lk_comm_request *request, int looks,
                            bool *done)
{
    int64_t batch = pairs->piece * (LKI_PAIRS_REQUESTS / 2);
    *done = false;
    for (;;) {
        int through = 0;
        exchange e = exchange_of(pairs, base, &request->op);
        for (int i = 0; i < looks && !through; i++) LKI_TRY(look(pairs, e.received.count, &through));
        if (!through) return LK_OK;
        pairs->moved += batch;
        if (pairs->moved >= e.received.count && pairs->moved >= e.sent.count) {
            add_up(pairs, base, &request->op, &e);
            pairs->moved = 0;
            if (++pairs->round == pairs->rounds) break;
        }
        LKI_TRY(post(pairs, base, request));
    }
    *done = true;
    return LK_OK;
}
