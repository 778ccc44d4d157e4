/* Memory that the ranks of a host share, and all-reduces of what lies in it. */
#include "conformance.h"

#include "comm/comm.h"
#include "comm/shm/shared_window.h"

enum { BLOCK_NBYTES = 3 << 20, COMMON_NBYTES = 1 << 20 };

static lk_status connect_shm(lk_comm **out, int rank, int size, void *context)
{
    const int *fd = context;
    lki_shm_options options = {.rank = rank, .size = size, .fd = *fd, .join_timeout_ms = 30000};
    return lki_comm_shm_create(out, &options);
}

static void run_ranks(int size, bool threads, rank_body body, int killed)
{
    int fd = -1;
    conformance suite = {.connect = connect_shm, .context = &fd, .rank_order = true};
    lkt_ok(lki_shm_memory_create(&fd, size, 0));
    if (threads)
        run_threads(size, body, &suite);
    else
        run_processes_but(size, killed, body, &suite);
    close(fd);
}

/* Everybody reads what everybody wrote, also when the comm is gone. */
static const char *reach_each_other(int rank, int size, void *context)
{
    conformance *suite = context;
    lk_comm *comm = NULL;
    lk_comm_window *window = NULL;
    rank_ok(suite->connect(&comm, rank, size, suite->context));
    rank_ok(lk_comm_share(comm, BLOCK_NBYTES, COMMON_NBYTES, &window));
    rank_check(window != NULL);
    int64_t *own = lk_comm_window_block(window, rank), *common = lk_comm_window_common(window);
    enum { LAST = BLOCK_NBYTES / sizeof *own - 1 };
    rank_check((uintptr_t)own % 4096 == 0 && own[0] == 0 && own[LAST] == 0 && common[rank] == 0);
    own[LAST] = 100 + rank;
    common[rank] = 200 + rank;
    rank_ok(lk_comm_barrier(comm));
    for (int r = 0; r < size; r++) {
        const int64_t *theirs = lk_comm_window_block(window, r);
        rank_check(theirs[0] == 0 && theirs[LAST] == 100 + r && common[r] == 200 + r);
    }
    lk_comm_free(comm);
    lk_comm_window_release(lk_comm_window_use(window));
    rank_check(own[LAST] == 100 + rank);
    lk_comm_window_release(window);
    lk_comm_window_release(NULL);
    return NULL;
}

static void blocks_are_reached_by_all(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size++) run_ranks(size, false, reach_each_other, -1);
    run_ranks(3, true, reach_each_other, -1);
}

static const char *ask_for_what_is_not_given(int rank, int size, void *context)
{
    conformance *suite = context;
    lk_comm *comm = NULL;
    lk_comm_window *window = NULL;
    rank_ok(suite->connect(&comm, rank, size, suite->context));
    rank_ok(lk_comm_share(comm, 1000, 0, &window)); /* not worth it */
    rank_check(!window);
    rank_ok(lk_comm_share(comm, BLOCK_NBYTES + (rank == 1), 0, &window)); /* different wishes */
    rank_check(!window);
    rank_ok(lk_comm_share(comm, (size_t)1 << 50, 0, &window)); /* more than there is */
    rank_check(!window);
    rank_ok(lk_comm_share(comm, BLOCK_NBYTES, 0, &window)); /* and all goes on */
    rank_check(window != NULL);
    lk_comm_window_release(window);
    lk_comm_free(comm);
    return NULL;
}

static void wishes_that_are_not_met(void **state)
{
    (void)state;
    run_ranks(2, false, ask_for_what_is_not_given, -1);
    run_ranks(3, true, ask_for_what_is_not_given, -1);
    lk_comm *alone = NULL;
    lk_comm_window *window = NULL;
    lkt_ok(lki_comm_self_create(&alone));
    lkt_ok(lk_comm_share(alone, BLOCK_NBYTES, 0, &window));
    assert_null(window);
    lk_comm_free(alone);
}

static lk_comm_op in_window(const lk_comm_window *window, void *data, int64_t count, lk_dtype dtype,
                            lk_reduce reduce)
{
    return (lk_comm_op){.kind = LK_COMM_ALL_REDUCE,
                        .reduce = reduce,
                        .dtype = dtype,
                        .send = data,
                        .recv = data,
                        .count = count,
                        .window = window};
}

/* A stretch of the block, the same on every rank; what lies before and behind it stays. */
static const char *check_stretch(lk_comm *comm, int rank, const lk_comm_window *window, int64_t count,
                                 lk_dtype dtype, lk_reduce reduce)
{
    enum { OFFSET = 128 };
    size_t nbytes = lk_dtype_nbytes(dtype) * (size_t)count;
    char *block = lk_comm_window_block(window, rank);
    memset(block, 7, BLOCK_NBYTES);
    lk_tensor data = {.dtype = dtype, .shape = LK_SHAPE(count), .stride = {1}, .data = block + OFFSET};
    for (int64_t i = 0; i < count; i++) lk_tensor_set(&data, i, sample(rank, i, dtype));
    lk_comm_op op = in_window(window, data.data, count, dtype, reduce);
    rank_ok(lk_comm_run(comm, &op));
    for (int64_t i = 0; i < count; i++)
        rank_check(near(lk_tensor_get(&data, i), expected_value(comm->size, i, dtype, reduce), dtype));
    for (int i = 0; i < OFFSET; i++) rank_check(block[i] == 7 && block[OFFSET + nbytes + (size_t)i] == 7);
    rank_ok(lk_comm_barrier(comm)); /* before the block is filled anew */
    return NULL;
}

/* Sums of numbers whose rounding shows the order: the bits of rank order, whether through slots or not. */
static const char *same_bits(lk_comm *comm, int rank, const lk_comm_window *window, int64_t count)
{
    float *data = lk_comm_window_block(window, rank);
    for (int64_t i = 0; i < count; i++) data[i] = awkward(rank, i);
    lk_comm_op op = in_window(window, data, count, LK_F32, LK_REDUCE_SUM);
    rank_ok(lk_comm_run(comm, &op));
    for (int64_t i = 0; i < count; i++) {
        float sum = awkward(0, i);
        for (int r = 1; r < comm->size; r++) sum += awkward(r, i);
        rank_check(data[i] == sum);
    }
    return NULL;
}

/* The comm of the suite, and a window of it. */
static const char *join(lk_comm **comm, lk_comm_window **window, int rank, int size, conformance *suite)
{
    rank_ok(suite->connect(comm, rank, size, suite->context));
    rank_ok(lk_comm_share(*comm, BLOCK_NBYTES, 0, window));
    rank_check(*window != NULL);
    return NULL;
}

/* Many at a time, beside collectives that go through slots, looked after in between. */
static const char *many_at_a_time(lk_comm *comm, int rank, const lk_comm_window *window)
{
    enum { MANY = 20, COUNT = 30000, ROUNDS = 5 };
    lk_comm_request *requests[2 * MANY];
    float *data = lk_comm_window_block(window, rank), small[MANY];
    for (int round = 0; round < ROUNDS; round++) {
        for (int k = 0; k < MANY; k++) {
            float *piece = data + k * COUNT;
            for (int i = 0; i < COUNT; i++) piece[i] = (float)(rank + k + round);
            lk_comm_op op = in_window(window, piece, COUNT, LK_F32, LK_REDUCE_SUM);
            rank_ok(lk_comm_start(comm, &op, &requests[2 * k]));
            small[k] = (float)(rank * k);
            op = in_window(window, &small[k], 1, LK_F32, LK_REDUCE_SUM);
            rank_ok(lk_comm_start(comm, &op, &requests[2 * k + 1]));
        }
        for (int k = 2 * MANY - 1; k >= 0; k--) rank_ok(lk_comm_wait(comm, requests[k]));
        for (int k = 0; k < MANY; k++) {
            int ranks = comm->size * (comm->size - 1) / 2;
            rank_check(data[k * COUNT] == (float)(ranks + comm->size * (k + round)));
            rank_check(data[(k + 1) * COUNT - 1] == data[k * COUNT] && small[k] == (float)(ranks * k));
        }
        rank_ok(lk_comm_barrier(comm));
    }
    return NULL;
}

static const char *reduce_in_windows(int rank, int size, void *context)
{
    static const lk_dtype dtypes[] = {LK_F32, LK_F64, LK_BF16, LK_F16, LK_I64, LK_I32, LK_U8, LK_BOOL};
    static const int64_t counts[] = {1, 8200, 16385, 70001, 300017};
    lk_comm *comm = NULL;
    lk_comm_window *window = NULL;
    RUN_PART(join(&comm, &window, rank, size, context));
    for (int d = 0; d < 8; d++)
        for (int c = 0; c < 5; c++) {
            lk_reduce reduce = lk_dtype_is_float(dtypes[d]) && c % 2 ? LK_REDUCE_AVG : LK_REDUCE_SUM;
            RUN_PART(
                check_stretch(comm, rank, window, counts[c], dtypes[d], c == 4 ? LK_REDUCE_MAX : reduce));
        }
    RUN_PART(same_bits(comm, rank, window, 600001));
    RUN_PART(many_at_a_time(comm, rank, window));
    lk_comm_window_release(window);
    lk_comm_free(comm);
    return NULL;
}

static void reductions_in_windows(void **state)
{
    (void)state;
    static const int sizes[] = {2, 3, 4, 7};
    for (int i = 0; i < 4; i++) run_ranks(sizes[i], false, reduce_in_windows, -1);
    run_ranks(2, true, reduce_in_windows, -1);
}

static const char *lie_elsewhere(int rank, int size, void *context)
{
    lk_comm *comm = NULL;
    lk_comm_window *window = NULL;
    RUN_PART(join(&comm, &window, rank, size, context));
    float *data = lk_comm_window_block(window, rank);
    lk_comm_op op = in_window(window, data + 64 * rank, 100000, LK_F32, LK_REDUCE_SUM);
    rank_check(lk_comm_run(comm, &op) == LK_ERR_PEER);
    rank_check(strstr(lk_error(), "ranks disagree") && strstr(lk_error(), "elsewhere in the window"));
    lk_comm_free(comm);
    lk_comm_window_release(window);
    return NULL;
}

static void other_places_are_an_error(void **state)
{
    (void)state;
    run_ranks(2, false, lie_elsewhere, -1);
}

static const char *die_in_between(int rank, int size, void *context)
{
    lk_comm *comm = NULL;
    lk_comm_window *window = NULL;
    RUN_PART(join(&comm, &window, rank, size, context));
    lk_comm_op op = in_window(window, lk_comm_window_block(window, rank), 500000, LK_F32, LK_REDUCE_AVG);
    for (int i = 0; i < 3; i++) rank_ok(lk_comm_run(comm, &op));
    if (rank == 1) raise(SIGKILL);
    rank_check(lk_comm_run(comm, &op) == LK_ERR_PEER);
    rank_check(strstr(lk_error(), "rank 1") != NULL);
    lk_comm_window_release(window);
    lk_comm_free(comm);
    return NULL;
}

static void a_killed_rank_is_named(void **state)
{
    (void)state;
    run_ranks(2, false, die_in_between, 1);
    run_ranks(4, false, die_in_between, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_reached_by_all), cmocka_unit_test(wishes_that_are_not_met),
        cmocka_unit_test(reductions_in_windows),     cmocka_unit_test(other_places_are_an_error),
        cmocka_unit_test(a_killed_rank_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
