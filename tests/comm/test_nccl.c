/* Ranks over NCCL, as processes that share the GPUs there are: with 2 and 4 ranks, memory of the host and of
 * the device, and when one of them dies. Skipped, with the reason, where there is no GPU. */
#include "conformance.h"

#include "comm/comm.h"
#include "comm/monitor.h"
#include "comm/store/store.h"
#include "device/open_plugin.h"

#include <lockstep/sys/engine.h>

#include <stdatomic.h>

typedef struct job {
    _Atomic int port; /* shared: published by rank 0 */
    int gpu_count;
} job;

typedef struct suite_context {
    conformance suite; /* first */
    job *job;
    rank_body body;
} suite_context;

/* What belongs to this rank's comm. */
static struct {
    lki_monitor *monitor;
    lk_comm *_Atomic comm;
    lki_store_client *store;
    int ranks[1];
} mine;

static void report_progress(void *context, int index, lk_comm_progress *out)
{
    lk_comm *comm = mine.comm;
    (void)context, (void)index;
    if (comm) lki_comm_progress_of(comm, out);
}

static void end_monitor(void *context)
{
    (void)context;
    mine.comm = NULL;
    lki_monitor_stop(mine.monitor);
    mine.monitor = NULL;
}

static lk_status connect_nccl(lk_comm **out, int rank, int size, void *context)
{
    suite_context *shared = context;
    lki_store_options where = {.host = "127.0.0.1",
                               .port = atomic_load(&shared->job->port),
                               .token = "t",
                               .rank = rank,
                               .world_size = size};
    mine.ranks[0] = rank;
    lki_monitor_options watched = {.host = "127.0.0.1",
                                   .port = where.port,
                                   .token = "t",
                                   .rank = rank,
                                   .world_size = size,
                                   .progress = report_progress,
                                   .ranks = mine.ranks,
                                   .rank_count = 1};
    lk_status status = lki_store_connect(&mine.store, &where);
    if (status == LK_OK) status = lki_monitor_start(&mine.monitor, &watched);
    if (status != LK_OK) return status;
    int gpus = shared->job->gpu_count;
    status = lki_comm_nccl_create(out, &(lki_comm_nccl_options){.rank = rank,
                                                                .size = size,
                                                                .store = mine.store,
                                                                .prefix = "nccl/",
                                                                .monitor = mine.monitor,
                                                                .device = rank % gpus,
                                                                .shares_gpu = size > gpus,
                                                                .on_free = end_monitor,
                                                                .join_timeout_ms = 60000});
    mine.comm = *out;
    return status;
}

static const char *body_with_store(int rank, int size, void *context)
{
    suite_context *shared = context;
    lki_store_server *server = NULL;
    if (rank == 0) {
        rank_ok(
            lki_store_server_start(&server, &(lki_store_server_options){.world_size = size, .token = "t"}));
        atomic_store(&shared->job->port, lki_store_server_port(server));
    }
    while (atomic_load(&shared->job->port) == 0) usleep(500);
    const char *failure = shared->body(rank, size, shared);
    lki_monitor_stop(mine.monitor);
    lki_store_close(mine.store);
    if (server) lki_store_server_stop(server, 5000);
    return failure;
}

/* A process that starts CUDA cannot fork ranks that use it: another one looks. */
static int count_gpus(char *why)
{
    struct {
        int count;
        char why[256];
    } *found = shared_zeros(sizeof *found);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        lki_cuda_versions versions = {0};
        found->count = lki_cuda_device_count(found->why);
        if (found->count) lki_cuda_plugin_get()->versions(&versions);
        if (found->count && !versions.nccl) snprintf(found->why, sizeof found->why, "NCCL is not installed");
        if (!versions.nccl) found->count = 0;
        _exit(0);
    }
    waitpid(pid, NULL, 0);
    int count = found->count;
    snprintf(why, 256, "%s", found->why[0] ? found->why : "the GPU part could not be asked");
    munmap(found, sizeof *found);
    return count;
}

static int gpus_or_skip(void)
{
    static int count = -1;
    static char why[256];
    if (count < 0) count = count_gpus(why);
    if (count > 0) return count;
    print_message("SKIPPED: no ranks over NCCL here: %s\n", why);
    skip();
    return 0;
}

static void run_suite(int size, rank_body body, int killed)
{
    suite_context shared = {
        .suite = {.connect = connect_nccl, .largest = 300000, .stall_ms = 3000, .stride = 5}, .body = body};
    int gpus = gpus_or_skip();
    shared.job = shared_zeros(sizeof *shared.job);
    shared.job->gpu_count = gpus;
    shared.suite.arrived = shared_zeros(sizeof(int));
    shared.suite.context = &shared;
    run_processes_but(size, killed, body_with_store, &shared);
    munmap(shared.job, sizeof *shared.job);
    munmap(shared.suite.arrived, sizeof(int));
}

static void conforms_with_two(void **state)
{
    (void)state;
    run_suite(2, conformance_body, -1);
}

static void conforms_with_four(void **state)
{
    (void)state;
    run_suite(4, conformance_body, -1);
}

static void steady_state(void **state)
{
    (void)state;
    run_suite(2, steady_body, -1);
}

static const char *hundred_megabytes(int rank, int size, void *context)
{
    conformance *suite = context;
    lk_comm *comm = NULL;
    rank_ok(suite->connect(&comm, rank, size, suite->context));
    RUN_PART(same_bits_everywhere(comm, rank, 25000003, false));
    lk_comm_free(comm);
    return NULL;
}

static void a_hundred_megabytes(void **state)
{
    (void)state;
    run_suite(2, hundred_megabytes, -1);
}

/* Rank 1 alone has NaNs, negative zeros and infinities: every fifth element, by turns. */
static double odd_value(int rank, int64_t i)
{
    if (rank != 1 || i % 5) return (double)((i * 7 + rank * 3) % 23) - 11;
    return i % 15 == 0 ? NAN : i % 15 == 5 ? INFINITY : -INFINITY;
}

static const char *check_extreme(lk_comm *comm, int rank, lk_dtype dtype, lk_reduce reduce, bool scatters)
{
    enum { COUNT = 3001 };
    size_t width = lk_dtype_nbytes(dtype);
    int64_t all = scatters ? (int64_t)COUNT * comm->size : COUNT,
            first = scatters ? (int64_t)COUNT * rank : 0;
    char *send = lki_calloc((size_t)all * width, "send"), *recv = lki_calloc(COUNT * width, "recv");
    for (int64_t i = 0; i < all; i++) lki_store(dtype, send, i, odd_value(rank, i));
    rank_ok(scatters ? lk_comm_reduce_scatter(comm, send, recv, COUNT, dtype, reduce)
                     : lk_comm_run(comm, &(lk_comm_op){.kind = LK_COMM_ALL_REDUCE,
                                                       .reduce = reduce,
                                                       .dtype = dtype,
                                                       .send = send,
                                                       .recv = recv,
                                                       .count = COUNT}));
    for (int64_t i = 0; i < COUNT; i++) {
        double expected = odd_value(0, first + i), found = lki_load(dtype, recv, i);
        for (int r = 1; r < comm->size; r++) {
            double next = odd_value(r, first + i);
            bool wins = isnan(next) || (reduce == LK_REDUCE_MAX ? next > expected : next < expected);
            if (!isnan(expected) && wins) expected = next;
        }
        rank_check(isnan(expected) ? isnan(found) : found == expected);
        rank_check(lki_load(dtype, send, i) == odd_value(rank, i) || isnan(odd_value(rank, i)));
    }
    lki_free(send);
    lki_free(recv);
    return NULL;
}

static const char *extremes(int rank, int size, void *context)
{
    static const lk_dtype dtypes[] = {LK_F32, LK_F64, LK_BF16, LK_F16};
    conformance *suite = context;
    lk_comm *comm = NULL;
    rank_ok(suite->connect(&comm, rank, size, suite->context));
    for (int d = 0; d < 4; d++)
        for (int scatters = 0; scatters < 2; scatters++) {
            RUN_PART(check_extreme(comm, rank, dtypes[d], LK_REDUCE_MAX, scatters));
            RUN_PART(check_extreme(comm, rank, dtypes[d], LK_REDUCE_MIN, scatters));
        }
    lk_comm_free(comm);
    return NULL;
}

static void extremes_keep_a_nan(void **state)
{
    (void)state;
    run_suite(2, extremes, -1);
}

/* An all-reduce of memory on the GPU, which the host waits for; and its sums, exact in f32. */
static const char *on_the_device(int rank, int size, void *context)
{
    enum { COUNT = 100003 };
    suite_context *shared = context;
    conformance *suite = context;
    lk_comm *comm = NULL;
    rank_ok(suite->connect(&comm, rank, size, suite->context));
    rank_check(comm->ops->on_device);
    lk_engine *engine =
        lk_engine_open("cuda", LK_OPTIONS(lk_engine_options, .device = rank % shared->job->gpu_count));
    rank_check(engine != NULL);
    float *host = lki_calloc(COUNT * sizeof *host, "host");
    float *device = engine->ops->alloc(engine, COUNT * sizeof *host, "a test");
    rank_check(device != NULL);
    for (int round = 0; round < 3; round++) {
        for (int64_t i = 0; i < COUNT; i++) host[i] = (float)sample(rank + round, i, LK_F32);
        rank_ok(engine->ops->upload(engine, device, host, COUNT * sizeof *host));
        rank_ok(lk_comm_all_reduce(comm, device, COUNT, LK_F32, LK_REDUCE_SUM));
        rank_ok(engine->ops->download(engine, host, device, COUNT * sizeof *host));
        for (int64_t i = 0; i < COUNT; i++) {
            double expected = 0;
            for (int r = 0; r < size; r++) expected += sample(r + round, i, LK_F32);
            rank_check(host[i] == (float)expected);
        }
    }
    rank_ok(lk_comm_check(comm));
    engine->ops->release(engine, device);
    lk_engine_close(engine);
    lki_free(host);
    lk_comm_free(comm);
    return NULL;
}

static void memory_of_the_device(void **state)
{
    (void)state;
    run_suite(2, on_the_device, -1);
}

/* An all-reduce as an op of a program: recorded once, replayed over new numbers. */
typedef struct recorded {
    lk_engine *engine;
    lk_attr attr;
    lk_call call;
    lk_tensor in;
    int layout;
    void *program;
    float *host;
} recorded;

enum { RECORDED_COUNT = 5003 };

static lk_status record_all_reduce(recorded *r, lk_comm *comm, int gpu)
{
    const size_t nbytes = RECORDED_COUNT * sizeof *r->host;
    r->engine = lk_engine_open("cuda", LK_OPTIONS(lk_engine_options, .device = gpu));
    r->host = lki_calloc(nbytes, "host");
    if (!r->engine || !r->host) return LK_ERR_NOMEM;
    const lk_engine_ops *ops = r->engine->ops;
    lk_tensor tensor = {.dtype = LK_F32, .shape = {.rank = 1, .dim = {RECORDED_COUNT}}};
    r->attr.exchange.comm = comm;
    r->in = tensor;
    r->in.data = ops->alloc(r->engine, nbytes, "a test");
    r->call = (lk_call){.op = LK_OP_ALL_REDUCE,
                        .attr = &r->attr,
                        .input_count = 1,
                        .output_count = 1,
                        .in = &r->in,
                        .in_layout = &r->layout,
                        .engine = r->engine};
    r->call.out[0] = tensor;
    r->call.out[0].data = ops->alloc(r->engine, nbytes, "a test");
    if (!r->in.data || !r->call.out[0].data) return LK_ERR_NOMEM;
    lk_status status = ops->prepare(r->engine, &r->call);
    if (status == LK_OK) status = r->call.run(&r->call); /* once as it is: what NCCL does once, it does now */
    if (status == LK_OK) status = ops->synchronize(r->engine, NULL);
    if (status == LK_OK) status = ops->record_begin(r->engine);
    if (status == LK_OK) status = r->call.run(&r->call);
    if (status == LK_OK) status = ops->record_end(r->engine, &r->program);
    return status;
}

static void free_recorded(recorded *r)
{
    const lk_engine_ops *ops = r->engine->ops;
    ops->program_free(r->engine, r->program);
    r->call.free_state(r->call.state);
    ops->release(r->engine, r->in.data);
    ops->release(r->engine, r->call.out[0].data);
    lk_engine_close(r->engine);
    lki_free(r->host);
}

static const char *replayed(int rank, int size, void *context)
{
    suite_context *shared = context;
    conformance *suite = context;
    const size_t nbytes = RECORDED_COUNT * sizeof(float);
    lk_comm *comm = NULL;
    recorded r = {0};
    rank_ok(suite->connect(&comm, rank, size, suite->context));
    rank_ok(record_all_reduce(&r, comm, rank % shared->job->gpu_count));
    for (int round = 0; round < 20; round++) {
        for (int64_t i = 0; i < RECORDED_COUNT; i++) r.host[i] = (float)sample(rank + round, i, LK_F32);
        rank_ok(r.engine->ops->upload(r.engine, r.in.data, r.host, nbytes));
        rank_ok(r.engine->ops->replay(r.engine, r.program, NULL));
        rank_ok(r.engine->ops->synchronize(r.engine, NULL));
        rank_ok(r.engine->ops->download(r.engine, r.host, r.call.out[0].data, nbytes));
        for (int64_t i = 0; i < RECORDED_COUNT; i++) {
            double expected = 0;
            for (int other = 0; other < size; other++) expected += sample(other + round, i, LK_F32);
            rank_check(r.host[i] == (float)expected);
        }
        if (round % 4 == 0) rank_ok(lk_comm_barrier(comm)); /* others may come in between */
    }
    free_recorded(&r);
    lk_comm_free(comm);
    return NULL;
}

static void part_of_a_recorded_program(void **state)
{
    (void)state;
    run_suite(2, replayed, -1);
}

/* Rank 1 is killed while the others replay and wait for the GPU alone. */
static const char *killed_in_replay(int rank, int size, void *context)
{
    suite_context *shared = context;
    conformance *suite = context;
    lk_comm *comm = NULL;
    recorded r = {0};
    lk_status status = LK_OK;
    rank_ok(suite->connect(&comm, rank, size, suite->context));
    rank_ok(record_all_reduce(&r, comm, rank % shared->job->gpu_count));
    rank_ok(r.engine->ops->replay(r.engine, r.program, NULL));
    rank_ok(r.engine->ops->synchronize(r.engine, NULL));
    if (rank == 1) {
        usleep(500000); /* rank 0 has seen the end of the first one */
        raise(SIGKILL);
    }
    for (int i = 0; i < 3 && status == LK_OK; i++) {
        status = r.engine->ops->replay(r.engine, r.program, NULL);
        if (status == LK_OK) status = r.engine->ops->synchronize(r.engine, NULL);
    }
    rank_check(status == LK_ERR_PEER);
    rank_check(strstr(lk_error(), "rank 1") != NULL);
    free_recorded(&r);
    lk_comm_free(comm);
    return NULL;
}

static void a_killed_rank_ends_a_replay(void **state)
{
    (void)state;
    run_suite(2, killed_in_replay, 1);
}

static void a_killed_rank_is_named(void **state)
{
    (void)state;
    run_suite(2, killed_body, 1);
    run_suite(4, killed_body, 1);
}

static void a_stall_names_who_is_behind(void **state)
{
    (void)state;
    run_suite(3, stalled_body, -1);
}

static void an_abort_reaches_all(void **state)
{
    (void)state;
    run_suite(3, aborted_body, -1);
}

/* Rank 1 of 2 never comes: rank 0 says whom it has waited for. */
static const char *alone(int rank, int size, void *context)
{
    lki_store_server *server = NULL;
    lki_store_client *store = NULL;
    lk_comm *comm = NULL;
    (void)size, (void)context;
    rank_ok(lki_store_server_start(&server, &(lki_store_server_options){.world_size = 2, .token = "t"}));
    rank_ok(lki_store_connect(&store, &(lki_store_options){.host = "127.0.0.1",
                                                           .port = lki_store_server_port(server),
                                                           .token = "t",
                                                           .world_size = 2}));
    lki_comm_nccl_options options = {.size = 2, .store = store, .prefix = "x/", .join_timeout_ms = 1500};
    rank_check(lki_comm_nccl_create(&comm, &options) == LK_ERR_TIMEOUT && !comm);
    rank_check(strstr(lk_error(), "not come: rank 1") != NULL);
    lki_store_close(store);
    lki_store_server_stop(server, 1000);
    return NULL;
}

static void nobody_to_meet(void **state)
{
    (void)state;
    gpus_or_skip();
    run_processes(1, alone, NULL);
}

/* Without a GPU the failure is one line that says so, and nothing is left behind. */
static const char *without_gpu(int rank, int size, void *context)
{
    lki_store_server *server = NULL;
    lki_store_client *store = NULL;
    lk_comm *comm = NULL;
    (void)size, (void)context;
    setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    rank_ok(lki_store_server_start(&server, &(lki_store_server_options){.world_size = 2, .token = "t"}));
    rank_ok(lki_store_connect(&store, &(lki_store_options){.host = "127.0.0.1",
                                                           .port = lki_store_server_port(server),
                                                           .token = "t",
                                                           .world_size = 2}));
    lki_comm_nccl_options options = {.size = 2, .store = store, .prefix = "x/", .join_timeout_ms = 1500};
    rank_check(lki_comm_nccl_create(&comm, &options) != LK_OK && !comm);
    rank_check(strstr(lk_error(), "comm nccl: ") == lk_error());
    rank_check(strchr(lk_error(), '\n') == NULL);
    lki_store_close(store);
    lki_store_server_stop(server, 1000);
    return NULL;
}

static void no_gpu_is_one_line(void **state)
{
    (void)state;
    run_processes(1, without_gpu, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conforms_with_two),
        cmocka_unit_test(conforms_with_four),
        cmocka_unit_test(steady_state),
        cmocka_unit_test(a_hundred_megabytes),
        cmocka_unit_test(extremes_keep_a_nan),
        cmocka_unit_test(memory_of_the_device),
        cmocka_unit_test(part_of_a_recorded_program),
        cmocka_unit_test(a_killed_rank_ends_a_replay),
        cmocka_unit_test(a_killed_rank_is_named),
        cmocka_unit_test(a_stall_names_who_is_behind),
        cmocka_unit_test(an_abort_reaches_all),
        cmocka_unit_test(nobody_to_meet),
        cmocka_unit_test(no_gpu_is_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
