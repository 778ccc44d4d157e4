/* MPI behind the comm's ops: its non-blocking collectives, or messages between pairs of ranks
 * (mpi_pairs.h), on a communicator of our own. */
#include "comm/comm.h"
#include "comm/comm_own.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/all_reduce_choice.h"
#include "comm/mpi/mpi_internal.h"
#include "comm/mpi/mpi_pairs.h"
#include "comm/reduction.h"

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SPIN_COUNT = 5000,
    SPINS_A_PAUSE = 50,
    LOOKS_OF_WHO_WAITS = 20, /* about a microsecond, which is what a small message takes */
    DEFAULT_PART_NBYTES = 1 << 30,
};

/* Set when a comm ended badly: the peers may never come to a proper end. */
static atomic_bool spoiled;

typedef struct mpi_comm {
    lk_comm base;
    lki_comm own;
    MPI_Comm comm;
    MPI_Op half_ops[2][3]; /* of bf16 and f16: sum, max, min */
    MPI_Datatype half_types[2];
    void *staging[LK_COMM_MAX_REQUESTS]; /* of each request; grown, never given back before free */
    size_t staging_nbytes[LK_COMM_MAX_REQUESTS];
    MPI_Request messages[LK_COMM_MAX_REQUESTS][LKI_PAIRS_REQUESTS]; /* of each request */
    lk_comm_request *paired[LK_COMM_MAX_REQUESTS]; /* those that go by pairs and are under way, in order */
    int paired_count;
    int64_t piece_nbytes; /* of a message between a pair, at most */
    int64_t part_nbytes;  /* of one of MPI's own collectives, at most */
    int idle;             /* tests in a row that found nothing done */
    bool is_guest;        /* of a program that has MPI itself */
    lki_rollcall rollcall;
    atomic_bool aborted;
    char reason[256];
} mpi_comm;

/* What a request holds; lies in its scratch. */
typedef struct mpi_work {
    MPI_Request request; /* of MPI's own collective */
    lki_pairs pairs;
    int part_count; /* above 0: it goes as several, whose requests lie beside the messages */
    bool by_pairs, over;
} mpi_work;

_Static_assert(sizeof(mpi_work) <= sizeof(((lk_comm_request *)0)->scratch), "an MPI request fits");

static mpi_work *work_of(lk_comm_request *request)
{
    return (mpi_work *)request->scratch;
}

lk_status lki_mpi_fail(int code, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, text, &length);
    return lki_fail(LK_ERR_PEER, "%s: %s", what, text);
}

/* MPI has no 16-bit floats: ours are pairs of bytes with reductions of our own. */
#define HALF_OP(name, dtype, reduce)                                                                         \
    static void name(void *in, void *inout, int *count, MPI_Datatype *type)                                  \
    {                                                                                                        \
        const void *both[] = {in, inout};                                                                    \
        (void)type;                                                                                          \
        lki_reduce(inout, both, 2, *count, dtype, reduce, 1);                                                \
    }
HALF_OP(bf16_sum, LK_BF16, LK_REDUCE_SUM)
HALF_OP(bf16_max, LK_BF16, LK_REDUCE_MAX)
HALF_OP(bf16_min, LK_BF16, LK_REDUCE_MIN)
HALF_OP(f16_sum, LK_F16, LK_REDUCE_SUM)
HALF_OP(f16_max, LK_F16, LK_REDUCE_MAX)
HALF_OP(f16_min, LK_F16, LK_REDUCE_MIN)

static lk_status make_half_types(mpi_comm *self)
{
    static MPI_User_function *const functions[2][3] = {{bf16_sum, bf16_max, bf16_min},
                                                       {f16_sum, f16_max, f16_min}};
    for (int half = 0; half < 2; half++) {
        LKI_TRY(
            lki_mpi_check(MPI_Type_contiguous(2, MPI_BYTE, &self->half_types[half]), "MPI_Type_contiguous"));
        LKI_TRY(lki_mpi_check(MPI_Type_commit(&self->half_types[half]), "MPI_Type_commit"));
        for (int op = 0; op < 3; op++)
            LKI_TRY(lki_mpi_check(MPI_Op_create(functions[half][op], 1, &self->half_ops[half][op]),
                                  "MPI_Op_create"));
    }
    return LK_OK;
}

static MPI_Datatype type_of(const mpi_comm *self, lk_dtype dtype)
{
    switch (dtype) {
    case LK_F32: return MPI_FLOAT;
    case LK_F64: return MPI_DOUBLE;
    case LK_BF16: return self->half_types[0];
    case LK_F16: return self->half_types[1];
    case LK_I64: return MPI_INT64_T;
    case LK_I32: return MPI_INT32_T;
    case LK_U8:
    case LK_BOOL: return MPI_UINT8_T;
    }
    return MPI_BYTE;
}

static MPI_Op op_of(const mpi_comm *self, const lk_comm_op *op)
{
    int index = op->reduce == LK_REDUCE_MAX ? 1 : op->reduce == LK_REDUCE_MIN ? 2 : 0;
    if (op->dtype == LK_BF16) return self->half_ops[0][index];
    if (op->dtype == LK_F16) return self->half_ops[1][index];
    if (op->dtype == LK_BOOL && index == 0) return MPI_MAX; /* the sum of truths is "any" */
    return index == 1 ? MPI_MAX : index == 2 ? MPI_MIN : MPI_SUM;
}

static lk_status aborted(mpi_comm *self)
{
    return lki_fail(LK_ERR_PEER, "this rank gave up: %s", self->reason);
}

/* MPI counts in ints, and some of its algorithms multiply them by the number of ranks: what is larger than a
 * part goes as several collectives. All of them are begun at once, as every rank must begin them in the same
 * order. */
typedef struct parts {
    int64_t total, each; /* elements; of a rank's piece for an all-gather */
    int count;           /* at least 1, at most LKI_PAIRS_REQUESTS */
} parts;

static parts cut(const mpi_comm *self, const lk_comm_op *op, int64_t total)
{
    int64_t nbytes = (int64_t)lk_dtype_nbytes(op->dtype);
    if (op->kind == LK_COMM_ALL_GATHER) nbytes *= self->base.size;
    int64_t each = self->part_nbytes / nbytes, least = total / LKI_PAIRS_REQUESTS + 1;
    if (each < least) each = least;
    return (parts){total, each, total > each ? (int)((total + each - 1) / each) : 1};
}

typedef int (*begin_part)(mpi_comm *self, const lk_comm_op *op, const void *send, void *recv, int count,
                          MPI_Request *request);

static lk_status begin_parts(mpi_comm *self, lk_comm_request *request, const void *send, void *recv,
                             int64_t total, begin_part begin, const char *name)
{
    const lk_comm_op *op = &request->op;
    mpi_work *work = work_of(request);
    parts p = cut(self, op, total);
    size_t nbytes = lk_dtype_nbytes(op->dtype);
    if (p.each > INT_MAX)
        return lki_fail(LK_ERR_UNSUPPORTED, "MPI cannot carry %lld elements in one collective",
                        (long long)total);
    if (p.count == 1) return lki_mpi_check(begin(self, op, send, recv, (int)total, &work->request), name);
    MPI_Request *requests = self->messages[request->slot];
    for (int i = 0; i < p.count; i++) requests[i] = MPI_REQUEST_NULL;
    work->part_count = p.count;
    for (int i = 0; i < p.count; i++) {
        int64_t first = i * p.each, left = total - first;
        size_t offset = (size_t)first * nbytes;
        LKI_TRY(
            lki_mpi_check(begin(self, op, send ? (const char *)send + offset : NULL, (char *)recv + offset,
                                (int)(left < p.each ? left : p.each), &requests[i]),
                          name));
    }
    return LK_OK;
}

static int begin_all_reduce(mpi_comm *self, const lk_comm_op *op, const void *send, void *recv, int count,
                            MPI_Request *request)
{
    return MPI_Iallreduce(send == recv ? MPI_IN_PLACE : send, recv, count, type_of(self, op->dtype),
                          op_of(self, op), self->comm, request);
}

static int begin_broadcast(mpi_comm *self, const lk_comm_op *op, const void *send, void *recv, int count,
                           MPI_Request *request)
{
    (void)send;
    return MPI_Ibcast(recv, count, type_of(self, op->dtype), op->root, self->comm, request);
}

/* `count` elements of each rank's piece; the pieces lie op->count elements apart. */
static int begin_all_gather(mpi_comm *self, const lk_comm_op *op, const void *send, void *recv, int count,
                            MPI_Request *request)
{
    MPI_Datatype type = type_of(self, op->dtype), some = MPI_DATATYPE_NULL, piece = MPI_DATATYPE_NULL;
    size_t nbytes = lk_dtype_nbytes(op->dtype), apart = (size_t)op->count * nbytes;
    const void *mine = (const char *)recv + apart * (size_t)self->base.rank;
    if (send == mine) send = MPI_IN_PLACE;
    if (count == op->count) return MPI_Iallgather(send, count, type, recv, count, type, self->comm, request);
    int code = MPI_Type_contiguous(count, type, &some);
    if (code == MPI_SUCCESS) code = MPI_Type_create_resized(some, 0, (MPI_Aint)apart, &piece);
    if (code == MPI_SUCCESS) code = MPI_Type_commit(&piece);
    if (code == MPI_SUCCESS) code = MPI_Iallgather(send, count, type, recv, 1, piece, self->comm, request);
    if (some != MPI_DATATYPE_NULL) MPI_Type_free(&some);
    if (piece != MPI_DATATYPE_NULL) MPI_Type_free(&piece); /* MPI keeps it until the collective is over */
    return code;
}

/* Memory of the request's own. */
static lk_status take_staging(mpi_comm *self, const lk_comm_request *request, size_t nbytes, void **out)
{
    size_t slot = (size_t)request->slot;
    if (self->staging_nbytes[slot] < nbytes) {
        void *grown = lki_realloc(self->staging[slot], nbytes, "a collective over MPI");
        if (!grown) return LK_ERR_NOMEM;
        self->staging[slot] = grown;
        self->staging_nbytes[slot] = nbytes;
    }
    *out = self->staging[slot];
    return LK_OK;
}

/* In place, Open MPI sends all the data up and down a tree, whatever its size. From a copy, it halves and
 * doubles large data between four ranks and more, which moves a fraction of the bytes. */
static lk_status begin_plain(mpi_comm *self, lk_comm_request *request)
{
    const lk_comm_op *op = &request->op;
    size_t nbytes = (size_t)op->count * lk_dtype_nbytes(op->dtype);
    const void *send = op->send;
    if (op->send == op->recv && lki_mpi_halves(self->base.size, (double)nbytes)) {
        void *copy;
        LKI_TRY(take_staging(self, request, nbytes, &copy));
        memcpy(copy, op->send, nbytes);
        send = copy;
    }
    return begin_parts(self, request, send, op->recv, op->count, begin_all_reduce, "MPI_Iallreduce");
}

static lk_status begin_pairs(mpi_comm *self, lk_comm_request *request)
{
    mpi_work *work = work_of(request);
    size_t nbytes = lki_pairs_staging_nbytes(&self->base, &request->op);
    work->pairs.comm = self->comm;
    work->pairs.piece_nbytes = self->piece_nbytes;
    work->pairs.requests = self->messages[request->slot];
    work->pairs.type = type_of(self, request->op.dtype);
    work->by_pairs = true;
    LKI_TRY(take_staging(self, request, nbytes, &work->pairs.staging));
    LKI_TRY(lki_pairs_start(&work->pairs, &self->base, request));
    self->paired[self->paired_count++] = request;
    return LK_OK;
}

/* Reduces all of it aside: Open MPI's own reduce-scatter adds in an order that depends on the rank. */
static lk_status begin_reduce_scatter(mpi_comm *self, lk_comm_request *request)
{
    const lk_comm_op *op = &request->op;
    int64_t count = op->count * self->base.size;
    void *all;
    LKI_TRY(take_staging(self, request, (size_t)count * lk_dtype_nbytes(op->dtype), &all));
    return begin_parts(self, request, op->send, all, count, begin_all_reduce, "MPI_Iallreduce");
}

static lk_status mpi_start(lk_comm *comm, lk_comm_request *request)
{
    mpi_comm *self = (mpi_comm *)comm;
    const lk_comm_op *op = &request->op;
    mpi_work *work = work_of(request);
    work->request = MPI_REQUEST_NULL;
    self->idle = 0;
    if (atomic_load(&self->aborted)) return aborted(self);
    if (self->is_guest) LKI_TRY(lki_mpi_check_thread("a collective"));
    switch (op->kind) {
    case LK_COMM_ALL_REDUCE:
        return lki_mpi_goes_by_pairs(comm->size) ? begin_pairs(self, request) : begin_plain(self, request);
    case LK_COMM_BROADCAST:
        return begin_parts(self, request, NULL, op->recv, op->count, begin_broadcast, "MPI_Ibcast");
    case LK_COMM_ALL_GATHER:
        return begin_parts(self, request, op->send, op->recv, op->count, begin_all_gather, "MPI_Iallgather");
    case LK_COMM_REDUCE_SCATTER: return begin_reduce_scatter(self, request);
    case LK_COMM_BARRIER: return lki_mpi_check(MPI_Ibarrier(self->comm, &work->request), "MPI_Ibarrier");
    }
    return LK_OK;
}

static void finish(mpi_comm *self, lk_comm_request *request)
{
    const lk_comm_op *op = &request->op;
    bool reduces = op->kind == LK_COMM_ALL_REDUCE || op->kind == LK_COMM_REDUCE_SCATTER;
    if (op->kind == LK_COMM_REDUCE_SCATTER && op->count > 0) {
        size_t piece = (size_t)op->count * lk_dtype_nbytes(op->dtype);
        memcpy(op->recv, (char *)self->staging[request->slot] + piece * (size_t)self->base.rank, piece);
    }
    if (reduces && op->reduce == LK_REDUCE_AVG) lki_scale(op->recv, op->count, op->dtype, self->base.size);
}

/* Each as far as it goes: a peer may wait for any of them. */
static lk_status advance_pairs(mpi_comm *self, const lk_comm_request *wanted)
{
    int left = 0, looks = self->paired_count == 1 && wanted->op.blocking ? LOOKS_OF_WHO_WAITS : 1;
    for (int i = 0; i < self->paired_count; i++) {
        lk_comm_request *request = self->paired[i];
        mpi_work *work = work_of(request);
        LKI_TRY(lki_pairs_advance(&work->pairs, &self->base, request, looks, &work->over));
        if (!work->over) self->paired[left++] = request;
    }
    self->paired_count = left;
    return LK_OK;
}

static lk_status advance_own(mpi_comm *self, lk_comm_request *request)
{
    int flag = 0;
    mpi_work *work = work_of(request);
    if (work->part_count == 0)
        LKI_TRY(lki_mpi_check(MPI_Test(&work->request, &flag, MPI_STATUS_IGNORE), "MPI_Test"));
    else
        LKI_TRY(lki_mpi_check(
            MPI_Testall(work->part_count, self->messages[request->slot], &flag, MPI_STATUSES_IGNORE),
            "MPI_Testall"));
    if (flag) finish(self, request);
    work->over = flag;
    return LK_OK;
}

static lk_status mpi_test(lk_comm *comm, lk_comm_request *request, bool *done)
{
    mpi_comm *self = (mpi_comm *)comm;
    mpi_work *work = work_of(request);
    if (atomic_load_explicit(&self->aborted, memory_order_relaxed)) return aborted(self);
    if (self->paired_count > 0) LKI_TRY(advance_pairs(self, request));
    if (!work->by_pairs && !work->over) LKI_TRY(advance_own(self, request));
    *done = work->over;
    return LK_OK;
}

/* MPI makes progress while it is tested, so the core is given away only after a while. */
static lk_status mpi_pause(lk_comm *comm, lk_comm_request *request, int64_t deadline_ns)
{
    mpi_comm *self = (mpi_comm *)comm;
    bool done = false;
    (void)deadline_ns;
    for (int i = 0; i < SPINS_A_PAUSE && !done && self->idle <= SPIN_COUNT; i++, self->idle++)
        LKI_TRY(mpi_test(comm, request, &done));
    if (done) return LK_OK;
    lki_rollcall_turn(&self->rollcall, comm, request);
    if (self->idle <= SPIN_COUNT) return LK_OK;
    sched_yield();
    return LK_OK;
}

static void mpi_progress(lk_comm *comm, int rank, lk_comm_progress *out)
{
    lki_rollcall_progress(&((mpi_comm *)comm)->rollcall, rank, out);
}

/* MPI cannot end one collective: the peers are told by MPI_Abort when this rank leaves without a proper end,
 * which is what its launcher waits for; this rank itself stops here. */
static void mpi_abort(lk_comm *comm, const char *reason)
{
    mpi_comm *self = (mpi_comm *)comm;
    if (atomic_load(&self->aborted)) return;
    snprintf(self->reason, sizeof self->reason, "%s", reason);
    atomic_store(&self->aborted, true);
}

static void mpi_free(lk_comm *comm)
{
    mpi_comm *self = (mpi_comm *)comm;
    int finalised = 0;
    if (self->is_guest) MPI_Finalized(&finalised);
    if (finalised) { /* too late for MPI, which has given up what it had */
        lki_rollcall_fini(&self->rollcall, false);
        lki_free(self);
        return;
    }
    bool clean =
        self->own.free_count == LK_COMM_MAX_REQUESTS && !comm->own->broken && !atomic_load(&self->aborted);
    for (int half = 0; half < 2; half++) {
        for (int op = 0; op < 3; op++)
            if (self->half_ops[half][op] != MPI_OP_NULL) MPI_Op_free(&self->half_ops[half][op]);
        if (self->half_types[half] != MPI_DATATYPE_NULL) MPI_Type_free(&self->half_types[half]);
    }
    if (!clean) atomic_store(&spoiled, true);
    lki_rollcall_fini(&self->rollcall, clean);
    if (clean && self->comm != MPI_COMM_NULL)
        MPI_Comm_free(&self->comm); /* a collective: not with a broken peer */
    for (int i = 0; clean && i < LK_COMM_MAX_REQUESTS; i++)
        lki_free(self->staging[i]); /* with a broken peer MPI may still write there */
    lki_free(self);
}

static const lk_comm_ops mpi_ops = {
    LK_SIZE(lk_comm_ops),     .name = "mpi",      .start = mpi_start, .test = mpi_test, .pause = mpi_pause,
    .progress = mpi_progress, .abort = mpi_abort, .free = mpi_free,
};

static void finalise(void)
{
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (finalised) return;
    if (atomic_load(&spoiled))
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE); /* to finalise would wait for the others */
    MPI_Finalize();
}

bool lki_mpi_is_initialised(void)
{
    int initialised = 0;
    MPI_Initialized(&initialised);
    return initialised;
}

lk_status lki_mpi_initialise(void)
{
    int provided = 0;
    if (lki_mpi_is_initialised()) return LK_OK; /* by the program itself, which then finalises it too */
    LKI_TRY(lki_mpi_check(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread"));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    atexit(finalise);
    return LK_OK;
}

static lk_status make_communicator(MPI_Comm *out, const lki_mpi_options *options)
{
    MPI_Group world, ours;
    if (!options->ranks) return lki_mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, out), "MPI_Comm_dup");
    LKI_TRY(lki_mpi_check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group"));
    LKI_TRY(lki_mpi_check(MPI_Group_incl(world, options->count, options->ranks, &ours), "MPI_Group_incl"));
    lk_status status =
        lki_mpi_check(MPI_Comm_create_group(MPI_COMM_WORLD, ours, 0, out), "MPI_Comm_create_group");
    MPI_Group_free(&ours);
    MPI_Group_free(&world);
    return status;
}

lk_status lki_mpi_wrap(lk_comm **out, MPI_Comm comm, const lki_mpi_wrapping *wrapping)
{
    int rank = 0, size = 1;
    *out = NULL;
    mpi_comm *self = LKI_NEW(mpi_comm);
    if (!self) {
        MPI_Comm_free(&comm);
        return LK_ERR_NOMEM;
    }
    self->comm = comm;
    self->is_guest = wrapping->is_guest;
    self->part_nbytes = DEFAULT_PART_NBYTES;
    for (int half = 0; half < 2; half++) {
        self->half_types[half] = MPI_DATATYPE_NULL;
        for (int op = 0; op < 3; op++) self->half_ops[half][op] = MPI_OP_NULL;
    }
    lk_status status = make_half_types(self);
    if (status == LK_OK) status = lki_mpi_check(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    if (status == LK_OK) status = lki_mpi_check(MPI_Comm_size(comm, &size), "MPI_Comm_size");
    if (status == LK_OK) status = lki_rollcall_init(&self->rollcall, comm, size);
    if (status == LK_OK && lki_mpi_goes_by_pairs(size))
        status = lki_pairs_probe(comm, rank, size, &self->piece_nbytes);
    self->base.timeout_ms = wrapping->timeout_ms;
    lki_comm_init(&self->base, &self->own, &mpi_ops, rank, size);
    if (status != LK_OK) {
        mpi_free(&self->base);
        return status;
    }
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    *out = &self->base;
    return LK_OK;
}

lk_status lki_comm_mpi_create(lk_comm **out, const lki_mpi_options *options)
{
    MPI_Comm comm = MPI_COMM_NULL;
    *out = NULL;
    LKI_TRY(lki_mpi_initialise());
    LKI_TRY(make_communicator(&comm, options));
    LKI_TRY(lki_mpi_wrap(out, comm, &(lki_mpi_wrapping){.timeout_ms = options->timeout_ms}));
    if (options->part_nbytes) ((mpi_comm *)*out)->part_nbytes = options->part_nbytes;
    return LK_OK;
}
