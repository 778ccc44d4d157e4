#include "comm/mpi_pairs.h"

#include "base/status.h"
#include "comm/model.h"
#include "comm/mpi_internal.h"
#include "comm/reduce.h"

/* Tags carry the collective and the round, as several collectives may be under way; they end below what every
 * MPI has, and begin above the roll call's. */
enum { FIRST_TAG = 16384, TAGGED_COLLECTIVES = 512, TAGS_A_COLLECTIVE = 32 };

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

static exchange exchange_of(const lki_pairs *pairs, const lk_comm *base, const lk_comm_op *op)
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

size_t lki_pairs_staging_nbytes(const lk_comm *base, const lk_comm_op *op)
{
    int64_t count = halves(base, op) ? op->count - op->count / 2 : op->count;
    return (size_t)count * lk_dtype_nbytes(op->dtype);
}

static char *at(const void *data, int64_t index, lk_dtype dtype)
{
    return (char *)data + (size_t)index * lk_dtype_nbytes(dtype);
}

static lk_status post(lki_pairs *pairs, const lk_comm *base, const lk_comm_request *request)
{
    const lk_comm_op *op = &request->op;
    exchange e = exchange_of(pairs, base, op);
    const void *from = pairs->round == 0 ? op->send : op->recv;
    void *to = e.reduces ? pairs->staging : at(op->recv, e.received.begin, op->dtype);
    int tag = FIRST_TAG + (int)(request->seq % TAGGED_COLLECTIVES) * TAGS_A_COLLECTIVE + pairs->round;
    pairs->expected = (int)e.received.count;
    LKI_TRY(lki_mpi_check(
        MPI_Irecv(to, (int)e.received.count, pairs->type, e.peer, tag, pairs->comm, &pairs->requests[0]),
        "MPI_Irecv"));
    return lki_mpi_check(MPI_Isend(at(from, e.sent.begin, op->dtype), (int)e.sent.count, pairs->type, e.peer,
                                   tag, pairs->comm, &pairs->requests[1]),
                         "MPI_Isend");
}

/* The lower rank's comes first, on both ranks. The last sum is an average's only one that is divided. */
static void add_up(const lki_pairs *pairs, const lk_comm *base, const lk_comm_op *op)
{
    exchange e = exchange_of(pairs, base, op);
    if (!e.reduces || e.received.count == 0) return;
    const void *mine = at(pairs->round == 0 ? op->send : op->recv, e.received.begin, op->dtype);
    const void *both[2] = {mine, pairs->staging};
    if (e.peer < base->rank) both[0] = pairs->staging, both[1] = mine;
    bool is_last = pairs->round + 1 == levels_of(base->size);
    lk_reduce reduce = op->reduce == LK_REDUCE_AVG && !is_last ? LK_REDUCE_SUM : op->reduce;
    lki_reduce(at(op->recv, e.received.begin, op->dtype), both, 2, e.received.count, op->dtype, reduce,
               base->size);
}

/* Whether the messages of this round are through; a message of another length is a disagreement. */
static lk_status look(lki_pairs *pairs, int *through)
{
    MPI_Status statuses[2];
    int count = 0, code = MPI_Testall(2, pairs->requests, through, statuses);
    if (code == MPI_ERR_IN_STATUS)
        code = statuses[0].MPI_ERROR != MPI_SUCCESS && statuses[0].MPI_ERROR != MPI_ERR_PENDING
                   ? statuses[0].MPI_ERROR
                   : statuses[1].MPI_ERROR;
    LKI_TRY(lki_mpi_check(code, "MPI_Testall"));
    if (!*through) return LK_OK;
    MPI_Get_count(&statuses[0], pairs->type, &count);
    if (count == pairs->expected) return LK_OK;
    return lki_fail(LK_ERR_PEER, "ranks disagree: rank %d sent %d elements where %d were expected",
                    statuses[0].MPI_SOURCE, count, pairs->expected);
}

lk_status lki_pairs_start(lki_pairs *pairs, const lk_comm *base, const lk_comm_request *request)
{
    pairs->round = 0;
    pairs->rounds = levels_of(base->size) * (halves(base, &request->op) ? 2 : 1);
    return post(pairs, base, request);
}

lk_status lki_pairs_advance(lki_pairs *pairs, const lk_comm *base, const lk_comm_request *request, int looks,
                            bool *done)
{
    *done = false;
    for (;;) {
        int through = 0;
        for (int i = 0; i < looks && !through; i++) LKI_TRY(look(pairs, &through));
        if (!through) return LK_OK;
        add_up(pairs, base, &request->op);
        if (++pairs->round == pairs->rounds) break;
        LKI_TRY(post(pairs, base, request));
    }
    *done = true;
    return LK_OK;
}
