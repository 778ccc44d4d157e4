/* Ranks that were told different things, read different data or have different CPUs: the first two are told
 * before the first batch, over every comm; the last compute alike. And replicas that come apart all the same
 * are found out without being asked for. */
#define _GNU_SOURCE
#include "lktest.h"

#include <lockstep/lockstep.h>

#include "base/memory.h"
#include "base/status.h"
#include "case.h"
#include "comm/comm.h"
#include "engine/cpu_level.h"
#include "run/run.h"
#include "step/step.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *self_path;

/* What the last rank does otherwise. */
typedef struct difference {
    int samples, batch_size, epochs;
    uint64_t seed, data_seed;
    const char *precision, *device;
    bool drop_last, transposed;
    const char *sentence;
} difference;

typedef struct job {
    const difference *difference;
    const char *comm;
} job;

static lk_status never(lk_callback *callback, lk_runner *runner)
{
    (void)callback, (void)runner;
    return lki_fail(LK_ERR_INVALID, "a batch was trained");
}

static lk_status train_differently(void *context)
{
    static const difference none;
    const job *j = context;
    const difference *d = lk_rank() == lk_world_size() - 1 ? j->difference : &none;
    lk_runner *runner = lk_supervised_runner();
    lk_manual_seed(3);
    lk_status status = lk_train(
        runner, .model = lk_sequential(lk_linear(LKT_FEATURES, LKT_CLASSES)),
        .criterion = lk_cross_entropy_loss(), .optimizer = lk_sgd(.lr = 0.1),
        .loaders = lk_loaders(
            {"train", lk_loader(lkt_points(d->samples ? d->samples : 48, d->data_seed ? d->data_seed : 1),
                                .batch_size = d->batch_size ? d->batch_size : 8, .drop_last = d->drop_last)}),
        .callbacks = lk_callbacks(lk_on(batch_start, never, NULL)), .num_epochs = d->epochs ? d->epochs : 2,
        .seed = d->seed ? d->seed : 5, .precision = d->precision, .device = d->device ? d->device : "cpu",
        .comm = j->comm, .thread_count = 1);
    lk_runner_free(runner);
    if (status == LK_OK) return lki_fail(LK_ERR_INVALID, "rank %d has noticed nothing", lk_rank());
    if (strstr(lk_error(), j->difference->sentence)) return LK_OK;
    LKI_SCOPED char *text = lki_strdup(lk_error());
    return lki_fail(LK_ERR_INVALID, "rank %d says: %s", lk_rank(), text ? text : "");
}

#define TOLD "the ranks were told different things: "
static const difference differences[] = {
    {.seed = 6, .sentence = TOLD "rank 2 has seed 6 where rank 0 has seed 5"},
    {.epochs = 3, .sentence = TOLD "rank 2 has num_epochs 3 where rank 0 has num_epochs 2"},
    {.batch_size = 4,
     .sentence = TOLD "rank 2 has batch size 4 of loader \"train\" where rank 0 has batch size 8 of loader "
                      "\"train\""},
    {.samples = 47,
     .sentence = TOLD "rank 2 has 47 samples in loader \"train\" where rank 0 has 48 samples in loader "
                      "\"train\""},
    {.data_seed = 2, .sentence = TOLD "rank 2 has data with the hash "},
    {.drop_last = true, .sentence = TOLD "rank 2 has shuffle by default, drop_last on"},
    {.precision = "bf16", .sentence = TOLD "rank 2 has precision bf16 where rank 0 has precision f32"},
    {.device = "ref", .sentence = "device ref where rank 0 has "}, /* when they meet, or when they compare */
};
enum { DIFFERENCES = sizeof differences / sizeof *differences };

static void try_all(const char *comm)
{
    for (int i = 0; i < DIFFERENCES; i++) {
        job j = {&differences[i], comm};
        lk_status status = lk_distributed_run(train_differently, &j, .nproc = 3);
        if (status != LK_OK) fail_msg("over %s: %s", comm, lk_error());
    }
}

static void over_shared_memory(void **state)
{
    (void)state;
    try_all("shm");
}

static void over_gloo(void **state)
{
    (void)state;
    if (!lki_comm_has_gloo()) {
        print_message("built without Gloo\n");
        skip();
    }
    try_all("gloo");
}

/* One run of mpirun: the ranks go through all of them. MPI itself ends such ranks by MPI_Abort, whatever they
 * return, so that each says what it has found. */
static int be_a_rank(const char *folder)
{
    char path[1200];
    for (int i = 0; i < DIFFERENCES; i++) {
        job j = {&differences[i], "mpi"};
        if (lk_distributed_run(train_differently, &j, .nproc = 0) == LK_OK) continue;
        fprintf(stderr, "%s\n", lk_error());
        return 1;
    }
    snprintf(path, sizeof path, "%s/told.%s", folder, getenv("OMPI_COMM_WORLD_RANK"));
    FILE *file = fopen(path, "w");
    if (!file || fclose(file) != 0) return 1;
    for (int rank = 0; rank < 3; rank++) { /* the first one that ends ends all */
        snprintf(path, sizeof path, "%s/told.%d", folder, rank);
        while (access(path, F_OK) != 0) usleep(1000);
    }
    return 0;
}

static void over_mpi(void **state)
{
    (void)state;
    if (!lki_comm_has_mpi() || system("command -v mpirun >/dev/null 2>&1") != 0) {
        print_message("no MPI here\n");
        skip();
    }
    char command[4096];
    const char *folder = lkt_scratch_folder("same_mpi");
    snprintf(
        command, sizeof command,
        "ASAN_OPTIONS=detect_leaks=0 timeout 120 mpirun --allow-run-as-root --oversubscribe -np 3 '%s' "
        "--as-rank '%s' > '%s/out' 2>&1; cd '%s' && ls told.0 told.1 told.2 > /dev/null || { cat out >&2; "
        "exit 1; }",
        self_path, folder, folder, folder);
    if (system(command) != 0) fail_msg("%s failed", command);
}

/* ---- Resuming ---- */

typedef struct resume_job {
    const char *logdir, *resume; /* of rank 0 */
    const char *others;          /* what the others resume from */
    int epochs;
    const char *sentence; /* what all of them fail with; NULL: none does */
} resume_job;

static lk_status train_and_resume(void *context)
{
    const resume_job *j = context;
    lk_runner *runner = lk_supervised_runner();
    lk_manual_seed(lk_rank() + 1u); /* rank 0's weights are everybody's */
    lk_status status = lk_train(
        runner, .model = lk_sequential(lk_linear(LKT_FEATURES, 7), lk_tanh(), lk_linear(7, LKT_CLASSES)),
        .criterion = lk_cross_entropy_loss(), .optimizer = lk_adamw(.lr = 0.01),
        .loaders = lk_loaders({"train", lk_loader(lkt_points(96, 1), .batch_size = 8)}),
        .num_epochs = j->epochs, .seed = 5, .logdir = j->logdir, .compress_gradients = true,
        .resume = lk_rank() == 0 ? j->resume : j->others, .check_replicas = 1, .thread_count = 1);
    bool trained = status == LK_OK && runner->epoch_step == j->epochs;
    lk_runner_free(runner);
    if (j->sentence ? status != LK_OK && strstr(lk_error(), j->sentence) : trained) return LK_OK;
    LKI_SCOPED char *text = lki_strdup(status ? lk_error() : "nothing");
    return lki_fail(LK_ERR_INVALID, "rank %d says: %s", lk_rank(), text ? text : "");
}

/* Rank 0's file alone is read: the others may have none, or another run's. */
static void rank_0_resumes_for_all(void **state)
{
    (void)state;
    char first[1024], other[1024], saved[1100], foreign[1100];
    snprintf(first, sizeof first, "%s", lkt_scratch_folder("same_resume"));
    snprintf(other, sizeof other, "%s", lkt_scratch_folder("same_other"));
    snprintf(saved, sizeof saved, "%s/checkpoints/runner.last.safetensors", first);
    snprintf(foreign, sizeof foreign, "%s/checkpoints/runner.last.safetensors", other);
    lkt_ok(lk_distributed_run(train_and_resume, &((resume_job){.logdir = first, .epochs = 2}), .nproc = 3));
    lkt_ok(lk_distributed_run(train_and_resume, &((resume_job){.logdir = other, .epochs = 1}), .nproc = 3));
    lkt_ok(lk_distributed_run(
        train_and_resume,
        &((resume_job){.resume = saved, .others = "/nowhere/runner.safetensors", .epochs = 3}), .nproc = 3));
    lkt_ok(lk_distributed_run(train_and_resume,
                              &((resume_job){.resume = saved, .others = foreign, .epochs = 3}), .nproc = 2));
    lkt_ok(lk_distributed_run(train_and_resume,
                              &((resume_job){.resume = "/nowhere/runner.safetensors",
                                             .others = saved,
                                             .epochs = 3,
                                             .sentence = "/nowhere/runner.safetensors: "}),
                              .nproc = 2));
}

/* ---- Mixed CPUs ---- */

static lk_status look_at_kernels(lk_callback *callback, lk_runner *runner)
{
    const char *kernels = runner->engine->ops->kernels(runner->engine);
    if (strcmp(kernels, callback->context) == 0) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "rank %d computes with %s", runner->rank, kernels);
}

/* A sum of squares, roots and divisions in the update: each level rounds them in its own way. */
static lk_status train_on_mixed_cpus(void *context)
{
    const char *const *levels = context;
    setenv("LOCKSTEP_CPU_LEVEL", levels[lk_rank()], 1);
    lk_runner *runner = lk_supervised_runner();
    lk_manual_seed(3);
    lk_status status = lk_train(
        runner, .model = lk_sequential(lk_linear(LKT_FEATURES, 37), lk_tanh(), lk_linear(37, LKT_CLASSES)),
        .criterion = lk_cross_entropy_loss(), .optimizer = lk_adamw(.lr = 0.01),
        .loaders = lk_loaders({"train", lk_loader(lkt_points(96, 1), .batch_size = 8)}),
        .callbacks = lk_callbacks(lk_optimizer_callback(.clip_norm = 0.1),
                                  lk_on(batch_end, look_at_kernels, (void *)(intptr_t)levels[3])),
        .num_epochs = 3, .seed = 5, .device = "cpu", .check_replicas = 1, .thread_count = 1);
    lk_runner_free(runner);
    unsetenv("LOCKSTEP_CPU_LEVEL");
    return status;
}

static void mixed_cpus_compute_alike(void **state)
{
    (void)state;
    lki_cpu_level here;
    lkt_ok(lki_cpu_level_of_machine(&here));
    const char *own = lki_cpu_level_name(here), *avx2 = here > LKI_CPU_LEVEL_AVX2 ? "avx2" : own;
    const char *wide[] = {own, avx2, own, avx2}, *narrow[] = {avx2, own, "base", "base"};
    lkt_ok(lk_distributed_run(train_on_mixed_cpus, wide, .nproc = 3));
    lkt_ok(lk_distributed_run(train_on_mixed_cpus, narrow, .nproc = 3));
}

/* ---- Replicas that come apart ---- */

typedef struct injection {
    int64_t at_batch;
    int check;
    bool expected;
} injection;

/* A flipped bit, as memory that fails has it. */
static lk_status flip_a_bit(lk_callback *callback, lk_runner *runner)
{
    const injection *i = callback->context;
    int64_t count;
    if (runner->rank != 1 || runner->batch_step != i->at_batch) return LK_OK;
    float *params = (float *)(uintptr_t)lk_step_flat_params(runner->step, &count);
    uint32_t bits;
    memcpy(&bits, &params[count - 1], sizeof bits);
    bits ^= 1;
    memcpy(&params[count - 1], &bits, sizeof bits);
    return LK_OK;
}

static lk_status train_apart(void *context)
{
    const injection *i = context;
    lk_runner *runner = lk_supervised_runner();
    lk_manual_seed(3);
    lk_status status = lk_train(
        runner, .model = lk_sequential(lk_linear(LKT_FEATURES, 3), lk_tanh(), lk_linear(3, LKT_CLASSES)),
        .criterion = lk_cross_entropy_loss(), .optimizer = lk_sgd(.lr = 0.01),
        .loaders = lk_loaders({"train", lk_loader(lkt_points(96, 1), .batch_size = 8)}),
        .callbacks = lk_callbacks(lk_on(batch_end, flip_a_bit, context)), .num_epochs = 3, .seed = 5,
        .check_replicas = i->check, .device = "cpu", .thread_count = 1);
    bool told =
        status == LK_ERR_PEER && strstr(lk_error(), "the replicas differ: the weights of rank 1 are not "
                                                    "those of rank 0 after ");
    lk_runner_free(runner);
    if (told == i->expected) return LK_OK;
    LKI_SCOPED char *text = lki_strdup(status ? lk_error() : "nothing");
    return lki_fail(LK_ERR_INVALID, "rank %d says: %s", lk_rank(), text ? text : "");
}

/* 18 updates: the end of the run is the first comparison of those by default. */
static void replicas_that_come_apart_are_found_out(void **state)
{
    (void)state;
    lkt_ok(lk_distributed_run(train_apart, &((injection){.at_batch = 7, .expected = true}), .nproc = 2));
    lkt_ok(lk_distributed_run(train_apart, &((injection){.at_batch = 18, .expected = true}), .nproc = 2));
    lkt_ok(lk_distributed_run(train_apart, &((injection){.at_batch = 7, .check = 5, .expected = true}),
                              .nproc = 2));
    lkt_ok(lk_distributed_run(train_apart, &((injection){.at_batch = 7, .check = -1}), .nproc = 2));
}

int main(int argc, char **argv)
{
    static char path[1024];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    self_path = length > 0 ? path : argv[0];
    if (argc == 3 && strcmp(argv[1], "--as-rank") == 0) return be_a_rank(argv[2]);
    if (argc == 2) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_shared_memory),
        cmocka_unit_test(over_gloo),
        cmocka_unit_test(over_mpi),
        cmocka_unit_test(rank_0_resumes_for_all),
        cmocka_unit_test(mixed_cpus_compute_alike),
        cmocka_unit_test(replicas_that_come_apart_are_found_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
