/* The extremes of a job, with real processes: a model of 400 layers and 1.2 GB on two ranks over every comm,
 * and 600 ranks of a tiny one. */
#define _GNU_SOURCE
#include "lktest.h"

#include <lockstep/lockstep.h>

#include "base/memory.h"
#include "base/status.h"
#include "case.h"
#include "comm/comm.h"
#include "run/run.h"
#include "step/step.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LAYERS = 400, WIDTH = 866, LARGE_NBYTES_NEEDED_MB = 9000, MANY_RANKS = 600, MANY_STEPS = 10 };

static const char *self_path;

static long available_mb(void)
{
    char line[256];
    long kb = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %ld kB", &kb) == 1) break;
    if (file) fclose(file);
    return kb / 1024;
}

static void need_memory(void)
{
    if (available_mb() >= LARGE_NBYTES_NEEDED_MB) return;
    print_message("NOT TESTED: two copies of 1.2 GB of weights need %d MB, and %ld are free\n",
                  LARGE_NBYTES_NEEDED_MB, available_mb());
    skip();
}

/* ---- Many buckets ---- */

static lk_module *large_model(void)
{
    static lk_module *layers[LAYERS];
    lk_manual_seed(7);
    for (int i = 0; i < LAYERS; i++) layers[i] = lk_linear(WIDTH, WIDTH);
    return lk_sequential_with(layers, LAYERS);
}

static lk_dataset *large_points(void)
{
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(4, WIDTH)),
              *y = lk_tensor_create(LK_F32, LK_SHAPE(4, WIDTH));
    for (int64_t i = 0; x && y && i < 4 * WIDTH; i++) {
        lk_tensor_set(x, i, (double)(i % 13) / 13);
        lk_tensor_set(y, i, (double)(i % 7) / 7);
    }
    return lk_tensor_dataset({"features", x}, {"targets", y});
}

static lk_status look_at_buckets(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    int count = runner->step->replicas.ddp.bucket_count;
    return count > LK_COMM_MAX_REQUESTS ? LK_OK : lki_fail(LK_ERR_INVALID, "only %d buckets", count);
}

static lk_status train_large(void *context)
{
    lk_runner *runner = lk_supervised_runner();
    lk_status status =
        lk_train(runner, .model = large_model(), .criterion = lk_mse_loss(), .optimizer = lk_sgd(.lr = 1e-3),
                 .loaders = lk_loaders({"train", lk_loader(large_points(), .batch_size = 1)}),
                 .callbacks = lk_callbacks(lk_on(batch_end, look_at_buckets, NULL)), .num_epochs = 1,
                 .seed = 5, .device = "cpu", .comm = context, .check_replicas = 1, .thread_count = 1);
    bool trained = status == LK_OK && runner->batch_step == 2;
    lk_runner_free(runner);
    return status ? status : trained ? LK_OK : lki_fail(LK_ERR_INVALID, "another number of steps");
}

static void a_large_model_over_shared_memory(void **state)
{
    (void)state;
    need_memory();
    lkt_ok(lk_distributed_run(train_large, "shm", .nproc = 2));
}

static void a_large_model_over_gloo(void **state)
{
    (void)state;
    need_memory();
    if (!lki_comm_has_gloo()) {
        print_message("built without Gloo\n");
        skip();
    }
    lkt_ok(lk_distributed_run(train_large, "gloo", .nproc = 2));
}

static int be_a_large_rank(void)
{
    lk_status status = lk_distributed_run(train_large, "mpi", .nproc = 0);
    if (status != LK_OK) fprintf(stderr, "%s\n", lk_error());
    return status != LK_OK;
}

static void a_large_model_over_mpi(void **state)
{
    (void)state;
    need_memory();
    if (!lki_comm_has_mpi() || system("command -v mpirun >/dev/null 2>&1") != 0) {
        print_message("no MPI here\n");
        skip();
    }
    char command[2048];
    snprintf(command, sizeof command,
             "ASAN_OPTIONS=detect_leaks=0 timeout 280 mpirun --allow-run-as-root --oversubscribe -np 2 '%s' "
             "--large 1>&2",
             self_path);
    if (system(command) != 0) fail_msg("%s failed", command);
}

/* ---- Many ranks ---- */

static lk_status train_tiny(void *context)
{
    (void)context;
    lk_runner *runner = lk_supervised_runner();
    lk_manual_seed(3);
    lk_status status = lk_train(
        runner, .model = lk_sequential(lk_linear(LKT_FEATURES, LKT_CLASSES)),
        .criterion = lk_cross_entropy_loss(), .optimizer = lk_sgd(.lr = 0.1),
        .loaders = lk_loaders({"train", lk_loader(lkt_points(MANY_RANKS * MANY_STEPS, 1), .batch_size = 1)}),
        .num_epochs = 1, .seed = 5, .device = "cpu", .check_replicas = 5, .thread_count = 1);
    bool trained = status == LK_OK && runner->batch_step == MANY_STEPS && runner->world_size == MANY_RANKS;
    lk_runner_free(runner);
    return status ? status : trained ? LK_OK : lki_fail(LK_ERR_INVALID, "another number of steps or ranks");
}

static void six_hundred_ranks(void **state)
{
    (void)state;
    if (available_mb() < LARGE_NBYTES_NEEDED_MB) {
        print_message("NOT TESTED: %d processes need %d MB, and %ld are free\n", MANY_RANKS,
                      LARGE_NBYTES_NEEDED_MB, available_mb());
        skip();
    }
    lkt_ok(lk_distributed_run(train_tiny, NULL, .nproc = MANY_RANKS));
}

int main(int argc, char **argv)
{
    static char path[1024];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    self_path = length > 0 ? path : argv[0];
    if (argc == 2 && strcmp(argv[1], "--large") == 0) return be_a_large_rank();
    if (argc == 2) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_large_model_over_shared_memory),
        cmocka_unit_test(a_large_model_over_gloo),
        cmocka_unit_test(a_large_model_over_mpi),
        cmocka_unit_test(six_hundred_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
