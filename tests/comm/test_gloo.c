/* Ranks over Gloo, meeting in our own store: as processes and threads, and when one of them dies. */
#include "conformance.h"

#include "comm/comm.h"
#include "comm/comm_own.h"
#include "comm/monitor.h"
#include "comm/store/store.h"

#include <stdatomic.h>

enum { PATIENCE_MS = 60000 }; /* a busy machine is slow, not wrong */

/* Rank 0 of the job holds the store, so each rank's comm comes with what belongs to it. */
typedef struct job {
    _Atomic int port; /* shared: published by rank 0 */
    _Atomic int left; /* ranks that are done with the store */
} job;

typedef struct suite_context {
    conformance suite; /* first */
    job *job;
    rank_body body;
    lki_monitor **monitors; /* by rank, for ranks as threads; each process fills its own */
    bool with_monitor;
} suite_context;

/* What the monitor's thread reads of the rank's comm, which the rank frees while that thread lives. */
typedef struct own_progress {
    pthread_mutex_t lock;
    lk_comm *comm;
} own_progress;

/* Called by the monitor's thread while the rank goes on: a number that is a moment old will do here. */
__attribute__((no_sanitize_thread)) static void report_progress(void *context, int index,
                                                                lk_comm_progress *out)
{
    own_progress *progress = context;
    (void)index;
    pthread_mutex_lock(&progress->lock);
    lk_comm *comm = progress->comm;
    if (comm) {
        uint64_t last = __atomic_load_n(&comm->own->last_seq, __ATOMIC_RELAXED);
        uint64_t finished = __atomic_load_n(&comm->own->finished_seq, __ATOMIC_RELAXED);
        *out = (lk_comm_progress){.started = last, .finished = finished, .known = true};
        if (last) out->kind = comm->own->records[last % LKI_COMM_RECORD_COUNT].kind;
    }
    pthread_mutex_unlock(&progress->lock);
}

typedef struct rank_context {
    suite_context *shared;
    lki_monitor *monitor;
    own_progress progress;
    lki_store_client *store;
} rank_context;

static _Thread_local rank_context mine = {.progress.lock = PTHREAD_MUTEX_INITIALIZER};

static void watch_progress(lk_comm *comm)
{
    pthread_mutex_lock(&mine.progress.lock);
    mine.progress.comm = comm;
    pthread_mutex_unlock(&mine.progress.lock);
}

static void forget_progress(lk_comm *comm)
{
    (void)comm;
    watch_progress(NULL);
}

static lk_status connect_gloo(lk_comm **out, int rank, int size, void *context)
{
    suite_context *shared = context;
    lki_store_options where = {.host = "127.0.0.1",
                               .port = atomic_load(&shared->job->port),
                               .token = "t",
                               .rank = rank,
                               .world_size = size};
    lk_status status = lki_store_connect(&mine.store, &where);
    if (status == LK_OK && shared->with_monitor) {
        static _Thread_local int ranks[1];
        ranks[0] = rank;
        lki_monitor_options options = {.host = "127.0.0.1",
                                       .port = where.port,
                                       .token = "t",
                                       .rank = rank,
                                       .world_size = size,
                                       .progress = report_progress,
                                       .ranks = ranks,
                                       .rank_count = 1,
                                       .context = &mine.progress};
        status = lki_monitor_start(&mine.monitor, &options);
    }
    if (status != LK_OK) return status;
    status = lki_comm_gloo_create(out, &(lki_gloo_options){.rank = rank,
                                                           .size = size,
                                                           .store = mine.store,
                                                           .prefix = "gloo/",
                                                           .monitor = mine.monitor,
                                                           .host = "127.0.0.1",
                                                           .name_wait_ms = PATIENCE_MS});
    watch_progress(*out);
    return status;
}

static const char *body_with_store(int rank, int size, void *context)
{
    suite_context *shared = context;
    lki_store_server *server = NULL;
    mine.shared = shared;
    if (rank == 0) {
        rank_ok(
            lki_store_server_start(&server, &(lki_store_server_options){.world_size = size, .token = "t"}));
        atomic_store(&shared->job->port, lki_store_server_port(server));
    }
    while (atomic_load(&shared->job->port) == 0) usleep(500);
    const char *failure = shared->body(rank, size, shared);
    forget_progress(NULL);
    lki_monitor_stop(mine.monitor);
    lki_store_close(mine.store);
    mine.monitor = NULL;
    mine.store = NULL;
    if (server) lki_store_server_stop(server, PATIENCE_MS);
    return failure;
}

static void run_suite(int size, bool threads, rank_body body, int killed, bool with_monitor)
{
    if (!lki_comm_has_gloo()) skip();
    suite_context shared = {.suite = {.connect = connect_gloo,
                                      .forget = forget_progress,
                                      .largest = 300000,
                                      .stall_ms = 3000,
                                      .stride = 5},
                            .body = body,
                            .with_monitor = with_monitor};
    shared.job = shared_zeros(sizeof *shared.job);
    shared.suite.arrived = shared_zeros(sizeof(int));
    shared.suite.context = &shared;
    if (threads)
        run_threads(size, body_with_store, &shared);
    else
        run_processes_but(size, killed, body_with_store, &shared);
    munmap(shared.job, sizeof *shared.job);
    munmap(shared.suite.arrived, sizeof(int));
}

static void conforms_as_processes(void **state)
{
    (void)state;
    run_suite(3, false, conformance_body, -1, false);
    run_suite(4, false, conformance_body, -1, true);
}

static void conforms_as_threads(void **state)
{
    (void)state;
    run_suite(2, true, conformance_body, -1, false);
}

static void steady_state(void **state)
{
    (void)state;
    run_suite(2, false, steady_body, -1, false);
}

static const char *hundred_megabytes(int rank, int size, void *context)
{
    conformance *suite = context;
    lk_comm *comm = NULL;
    rank_ok(suite->connect(&comm, rank, size, suite->context));
    RUN_PART(same_bits_everywhere(comm, rank, 25000003, false));
    end_comm(suite, comm);
    return NULL;
}

static void a_hundred_megabytes(void **state)
{
    (void)state;
    run_suite(2, false, hundred_megabytes, -1, false);
}

static void a_killed_rank_is_named(void **state)
{
    (void)state;
    run_suite(2, false, killed_body, 1, true);
    run_suite(4, false, killed_body, 1, true);
}

static void a_stall_names_who_is_behind(void **state)
{
    (void)state;
    run_suite(3, false, stalled_body, -1, true);
}

static void an_abort_reaches_all(void **state)
{
    (void)state;
    run_suite(3, false, aborted_body, -1, true);
}

static void nobody_to_meet(void **state)
{
    (void)state;
    if (!lki_comm_has_gloo()) skip();
    lki_store_server *server = NULL;
    lki_store_client *store = NULL;
    lk_comm *comm = NULL;
    lkt_ok(lki_store_server_start(&server, &(lki_store_server_options){.world_size = 2, .token = "t"}));
    lki_store_options where = {
        .host = "127.0.0.1", .port = lki_store_server_port(server), .token = "t", .world_size = 2};
    lkt_ok(lki_store_connect(&store, &where));
    lkt_fails(lki_comm_gloo_create(&comm, &(lki_gloo_options){.rank = 0,
                                                              .size = 2,
                                                              .store = store,
                                                              .prefix = "x/",
                                                              .host = "127.0.0.1",
                                                              .join_timeout_ms = 100}),
              LK_ERR_PEER, "could not connect rank 0 of 2");
    assert_null(comm);
    lki_store_close(store);
    lki_store_server_stop(server, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conforms_as_processes),  cmocka_unit_test(conforms_as_threads),
        cmocka_unit_test(steady_state),           cmocka_unit_test(a_hundred_megabytes),
        cmocka_unit_test(a_killed_rank_is_named), cmocka_unit_test(a_stall_names_who_is_behind),
        cmocka_unit_test(an_abort_reaches_all),   cmocka_unit_test(nobody_to_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
