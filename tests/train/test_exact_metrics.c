/* The same outputs give the same metrics, bit for bit, whatever the number of ranks, the batch size and the
 * comm. Outputs are the same because the model's products are of small integers, which no order of additions
 * rounds; losses, sigmoids and quotients of them are rounded as ever. */
#include "lktest.h"

#include <lockstep/lockstep.h>

#include "comm/comm.h"

enum { CLASSES = 7, SAMPLES = 1003, TRAIN = 997, CAPACITY = 1 << 16 };

/* Features in sixteenths; soft targets of the outputs' shape; a share of the labels is to be ignored. */
static lk_dataset *numbers(int64_t count, uint64_t seed)
{
    lk_generator generator;
    lk_generator_seed(&generator, seed);
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(count, CLASSES)),
              *y = lk_tensor_create(LK_I64, LK_SHAPE(count)),
              *some = lk_tensor_create(LK_I64, LK_SHAPE(count)),
              *soft = lk_tensor_create(LK_F32, LK_SHAPE(count, CLASSES)),
              *hard = lk_tensor_create(LK_F32, LK_SHAPE(count, CLASSES));
    for (int64_t i = 0; i < count * CLASSES; i++) {
        lk_tensor_set(x, i, (double)lk_randint(64, &generator) / 16 - 2);
        lk_tensor_set(soft, i, lk_generator_f32(&generator));
        lk_tensor_set(hard, i, lk_generator_f32(&generator) < 0.3f);
    }
    for (int64_t i = 0; i < count; i++) {
        lk_tensor_set(y, i, (double)lk_randint(CLASSES, &generator));
        lk_tensor_set(some, i, i % 11 ? (double)lk_randint(CLASSES - 1, &generator) : CLASSES - 1);
    }
    return lk_tensor_dataset({"features", x}, {"targets", y}, {"some", some}, {"soft", soft}, {"hard", hard});
}

static lk_module *integers(void)
{
    lk_module *model = lk_linear(CLASSES, CLASSES);
    for (int64_t i = 0; i < CLASSES * CLASSES; i++)
        lk_tensor_set(lk_module_param(model, "weight")->value, i, (double)(i * i % 5) - 2);
    for (int64_t i = 0; i < CLASSES; i++) lk_tensor_set(lk_module_param(model, "bias")->value, i, (double)i);
    return model;
}

typedef struct job {
    int ranks, batch_size;
    const char *comm, *device;
    lk_criterion *(*criterion)(void);
    const char *target_key;
    bool train_is_exact; /* the loss of a train loader too */
} job;

static lk_criterion *plain(void)
{
    return lk_cross_entropy_loss();
}

static lk_criterion *weighted(void)
{
    lk_tensor *weight = lk_tensor_create(LK_F32, LK_SHAPE(CLASSES));
    for (int i = 0; i < CLASSES; i++) lk_tensor_set(weight, i, 0.1 + 0.3 * i);
    lk_criterion *criterion = lk_cross_entropy_loss(.weight = weight, .ignore_index = CLASSES - 1);
    lk_tensor_free(weight);
    return criterion;
}

static lk_criterion *smoothed(void)
{
    return lk_cross_entropy_loss(.label_smoothing = 0.1);
}

static lk_criterion *squares(void)
{
    return lk_mse_loss();
}

static lk_criterion *bce(void)
{
    return lk_bce_with_logits_loss();
}

static lk_criterion *divergence(void)
{
    return lk_kl_div_loss(.reduction = LK_REDUCTION_BATCH_MEAN);
}

/* Of every kind. */
static int make_callbacks(lk_callback **out)
{
    int count = 0;
    out[count++] = lk_accuracy_callback(.num_classes = CLASSES, .target_key = "targets");
    out[count++] = lk_precision_recall_f1_support_callback(.num_classes = CLASSES, .target_key = "targets",
                                                           .compute_per_class_metrics = true);
    out[count++] =
        lk_auc_callback(.num_classes = CLASSES, .target_key = "targets", .compute_per_class_metrics = true);
    out[count++] =
        lk_multilabel_accuracy_callback(.prefix = "multi_", .target_key = "hard", .threshold = 1.5);
    out[count++] =
        lk_multilabel_precision_recall_f1_support_callback(.prefix = "multi_", .target_key = "hard",
                                                           .num_classes = CLASSES);
    out[count++] = lk_iou_callback(.target_key = "soft", .from_logits = true);
    out[count++] = lk_dice_callback(.target_key = "soft", .from_logits = true);
    out[count++] = lk_metric_callback(lk_r2_metric(.prefix = ""), NULL, "soft");
    out[count++] = lk_metric_callback(lk_mse_metric(.prefix = ""), NULL, "soft");
    out[count++] = lk_metric_callback(lk_mae_metric(.prefix = ""), NULL, "soft");
    return count;
}

static lk_runner *run(const job *j)
{
    lk_callback *callbacks[16];
    int count = make_callbacks(callbacks);
    lk_runner *runner = lk_supervised_runner(.target_key = j->target_key);
    lk_status status = lk_train(
        runner, .model = integers(), .criterion = j->criterion(), .optimizer = lk_sgd(.lr = LK_ZERO),
        .loaders = lk_loaders({"train", lk_loader(numbers(TRAIN, 1), .batch_size = j->batch_size)},
                              {"valid", lk_loader(numbers(SAMPLES, 2), .batch_size = j->batch_size)}),
        .callbacks = {callbacks, count}, .nproc = j->ranks, .comm = j->comm, .thread_count = 1,
        .device = j->device ? j->device : "cpu");
    if (status) fail_msg("%d ranks over %s: %s", j->ranks, j->comm ? j->comm : "auto", lk_error());
    return runner;
}

static bool is_compared(const char *name, bool loss)
{
    if (strstr(name, "/std") || strncmp(name, "_timer", 6) == 0) return false;
    return loss || strncmp(name, "loss", 4) != 0;
}

/* Every value of both loaders, with all its bits. */
static void describe(const job *j, char *text)
{
    static const char *const keys[] = {"train", "valid"};
    lk_runner *runner = run(j);
    size_t used = 0;
    for (int k = 0; k < 2; k++) {
        const lk_metrics *metrics = lk_runner_loader_metrics(runner, keys[k]);
        lkt_not_null(metrics);
        assert_true(lk_metrics_count(metrics) > 60);
        for (int i = 0; i < lk_metrics_count(metrics); i++)
            if (is_compared(lk_metrics_name(metrics, i), k == 1 || j->train_is_exact))
                used += (size_t)snprintf(text + used, CAPACITY - used, "%s %s %a\n", keys[k],
                                         lk_metrics_name(metrics, i), lk_metrics_value(metrics, i));
    }
    assert_true(used < CAPACITY);
    lk_runner_free(runner);
}

static void assert_same(const char *several, const char *alone, const job *j)
{
    int at = 0, line = 0;
    while (several[at] && several[at] == alone[at]) {
        at++;
        if (several[at - 1] == '\n') line = at;
    }
    if (several[at] != alone[at])
        fail_msg("%d ranks, batches of %d, %s: %.*s, alone %.*s", j->ranks, j->batch_size, j->target_key,
                 (int)strcspn(several + line, "\n"), several + line, (int)strcspn(alone + line, "\n"),
                 alone + line);
}

static void ranks_do_not_show(void **state)
{
    (void)state;
    static char alone[CAPACITY], several[CAPACITY];
    static const job kinds[] = {
        {.criterion = plain, .target_key = "targets", .train_is_exact = true},
        {.criterion = weighted, .target_key = "some", .train_is_exact = true},
        {.criterion = smoothed, .target_key = "targets"},
        {.criterion = squares, .target_key = "soft"},
        {.criterion = bce, .target_key = "soft"},
        {.criterion = divergence, .target_key = "soft"},
    };
    static const int ranks[] = {2, 3, 4, 8}, sizes[] = {16, 32, 5, 7};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        job one = kinds[k];
        one.ranks = 1;
        one.batch_size = 32;
        describe(&one, alone);
        one.batch_size = 10;
        describe(&one, several);
        assert_same(several, alone, &one);
        for (int i = 0; i < 4; i++) {
            job j = kinds[k];
            j.ranks = ranks[i];
            j.batch_size = sizes[i];
            j.comm = "shm";
            describe(&j, several);
            assert_same(several, alone, &j);
        }
    }
}

/* The vectors' tails and bodies give the same bits at each level of the CPU engine. */
static void levels_do_not_see_places(void **state)
{
    (void)state;
    static char alone[CAPACITY], several[CAPACITY];
    static const char *const levels[] = {"base", "avx2", "avx512"};
    static lk_criterion *(*const criteria[])(void) = {weighted, bce, divergence};
    for (int i = 0; i < 9; i++) {
        job j = {.ranks = 1,
                 .batch_size = 32,
                 .criterion = criteria[i / 3],
                 .target_key = i < 3 ? "some" : "soft"};
        setenv("LOCKSTEP_CPU_LEVEL", levels[i % 3], 1);
        describe(&j, alone);
        j.ranks = 3;
        j.batch_size = 9;
        describe(&j, several);
        assert_same(several, alone, &j);
    }
    unsetenv("LOCKSTEP_CPU_LEVEL");
}

static void the_reference_engine_neither(void **state)
{
    (void)state;
    static char alone[CAPACITY], several[CAPACITY];
    static lk_criterion *(*const criteria[])(void) = {weighted, smoothed, bce};
    for (int i = 0; i < 3; i++) {
        job j = {.ranks = 1,
                 .batch_size = 32,
                 .device = "ref",
                 .criterion = criteria[i],
                 .target_key = i < 2 ? "some" : "soft"};
        describe(&j, alone);
        j.ranks = 2;
        j.batch_size = 9;
        describe(&j, several);
        assert_same(several, alone, &j);
    }
}

static void comms_do_not_show(void **state)
{
    (void)state;
    static char alone[CAPACITY], several[CAPACITY];
    job j = {
        .ranks = 1, .batch_size = 32, .criterion = weighted, .target_key = "some", .train_is_exact = true};
    describe(&j, alone);
    j.ranks = 3;
    j.batch_size = 11;
    j.comm = "gloo";
    if (!lki_comm_has_gloo()) skip();
    describe(&j, several);
    assert_same(several, alone, &j);
}

static const char *self_path;

static job mpi_job(void)
{
    return (job){.batch_size = 11, .criterion = weighted, .target_key = "some", .train_is_exact = true};
}

/* One rank of mpirun's: rank 0 writes what it reports. */
static int run_as_rank(const char *path)
{
    static char text[CAPACITY];
    job j = mpi_job();
    j.comm = "mpi";
    describe(&j, text);
    if (lk_rank() != 0) return 0;
    FILE *file = fopen(path, "w");
    if (!file || fputs(text, file) < 0) return 1;
    return fclose(file) != 0;
}

/* Open MPI's own leaks are not ours to mend. */
static void neither_does_mpi(void **state)
{
    (void)state;
    static char alone[CAPACITY], several[CAPACITY];
    char path[512], command[2048];
    if (!lki_comm_has_mpi() || system("command -v mpirun >/dev/null 2>&1") != 0) {
        print_message("no MPI here\n");
        skip();
    }
    job one = mpi_job();
    one.ranks = 1;
    describe(&one, alone);
    snprintf(path, sizeof path, "%s/metrics", lkt_scratch_folder("exact_metrics"));
    snprintf(command, sizeof command,
             "ASAN_OPTIONS=detect_leaks=0 timeout 120 mpirun --allow-run-as-root --oversubscribe -np 3 '%s' "
             "--as-rank '%s' 1>&2",
             self_path, path);
    if (system(command) != 0) fail_msg("%s failed", command);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    several[fread(several, 1, CAPACITY - 1, file)] = 0;
    fclose(file);
    assert_same(several, alone, &one);
}

/* Exactly `right` of the samples are right. */
static lk_dataset *counted(int64_t count, int64_t right)
{
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(count, 2)),
              *y = lk_tensor_create(LK_I64, LK_SHAPE(count));
    for (int64_t i = 0; i < count; i++) {
        int64_t target = i % 2;
        bool is_right = i * 7919 % count < right;
        lk_tensor_set(y, i, (double)target);
        lk_tensor_set(x, 2 * i + (is_right ? target : 1 - target), 1);
    }
    return lk_tensor_dataset({"features", x}, {"targets", y});
}

static void accuracy_is_right_over_seen(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++) {
        lk_runner *runner = lk_supervised_runner();
        lk_module *model = lk_linear(2, 2);
        for (int i = 0; i < 4; i++)
            lk_tensor_set(lk_module_param(model, "weight")->value, i, i == 0 || i == 3);
        for (int i = 0; i < 2; i++) lk_tensor_set(lk_module_param(model, "bias")->value, i, 0);
        lkt_ok(lk_train(runner, .model = model, .criterion = lk_cross_entropy_loss(),
                        .optimizer = lk_sgd(.lr = LK_ZERO),
                        .loaders = lk_loaders({"train", lk_loader(counted(10007, 1414), .batch_size = 32)},
                                              {"valid", lk_loader(counted(10007, 1414), .batch_size = 32)}),
                        .callbacks = lk_callbacks(lk_accuracy_callback(.num_classes = 2)), .nproc = ranks,
                        .thread_count = 1, .device = "cpu"));
        double train = lk_metrics_get(lk_runner_loader_metrics(runner, "train"), "accuracy01"),
               valid = lk_metrics_get(lk_runner_loader_metrics(runner, "valid"), "accuracy01");
        assert_true(train == 1414.0 / 10007 && valid == 1414.0 / 10007);
        lk_runner_free(runner);
    }
}

/* The batch with the padding weighs as much as its samples that count, also if the others are known by their
 * means only. The ranks do not divide TRAIN. */
static void padding_does_not_weigh(void **state)
{
    (void)state;
    static const job kinds[] = {
        {.criterion = plain, .target_key = "targets"},   {.criterion = smoothed, .target_key = "targets"},
        {.criterion = squares, .target_key = "soft"},    {.criterion = bce, .target_key = "soft"},
        {.criterion = divergence, .target_key = "soft"},
    };
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        double alone = 0;
        for (int ranks = 1; ranks <= 4; ranks++) {
            job j = kinds[k];
            j.ranks = ranks;
            j.batch_size = 240;
            lk_runner *runner = run(&j);
            double loss = lk_metrics_get(lk_runner_loader_metrics(runner, "train"), "loss");
            if (ranks == 1) alone = loss;
            lkt_close(loss / alone, 1, 3e-7);
            lk_runner_free(runner);
        }
    }
}

/* ---- /std is the spread of all ranks' batch means, each weighted by its samples that count ---- */

enum { LOSS, ACCURACY, MEASURES, MAX_BATCHES = 256, MAX_RANKS = 4 };

/* The batches of one rank in one loader. */
typedef struct spread {
    double values[MEASURES][MAX_BATCHES], counts[MAX_BATCHES];
    int64_t count;
} spread;

typedef struct spreads {
    spread own, all[2][MAX_RANKS]; /* by loader: train, valid */
} spreads;

static double share_right(lk_runner *runner)
{
    const lk_tensor *logits = lk_runner_tensor(runner, "logits"), *y = lk_runner_tensor(runner, "targets");
    int64_t right = 0;
    for (int64_t i = 0; i < runner->counted_batch_size; i++) {
        int64_t best = 0;
        for (int64_t c = 1; c < CLASSES; c++)
            if (lk_tensor_get(logits, i * CLASSES + c) > lk_tensor_get(logits, i * CLASSES + best)) best = c;
        right += best == (int64_t)lk_tensor_get(y, i);
    }
    return (double)right / (double)runner->counted_batch_size;
}

static lk_status note_batch(lk_callback *callback, lk_runner *runner)
{
    spread *own = &((spreads *)callback->context)->own;
    assert_true(own->count < MAX_BATCHES);
    if (runner->counted_batch_size == 0) return LK_OK;
    own->values[LOSS][own->count] = lk_metrics_get(runner->batch_metrics, "loss");
    own->values[ACCURACY][own->count] = share_right(runner);
    own->counts[own->count++] = (double)runner->counted_batch_size;
    return LK_OK;
}

static lk_status gather_batches(lk_callback *callback, lk_runner *runner)
{
    spreads *seen = callback->context;
    lk_status status = lk_runner_all_gather(runner, &seen->own, seen->all[!runner->is_train_loader],
                                            (int64_t)sizeof seen->own, LK_U8);
    seen->own.count = 0;
    return status;
}

static double expected_std(const spread *ranks, int rank_count, int measure, double sample_count)
{
    double n = 0, mean = 0, squares = 0;
    for (int r = 0; r < rank_count; r++)
        for (int64_t i = 0; i < ranks[r].count; i++) {
            n += ranks[r].counts[i];
            mean += ranks[r].counts[i] * ranks[r].values[measure][i];
        }
    assert_true(n == sample_count);
    mean /= n;
    for (int r = 0; r < rank_count; r++)
        for (int64_t i = 0; i < ranks[r].count; i++)
            squares += ranks[r].counts[i] * pow(ranks[r].values[measure][i] - mean, 2);
    return sqrt(squares / (n - 1));
}

/* The train loader pads at 2, 3 and 4 ranks. The loss of a whole batch is not that of its samples that count,
 * and it is rounded to f32, so it is compared in the valid loader, and less closely. */
static void spread_is_that_of_batches(void **state)
{
    (void)state;
    static spreads seen;
    for (int ranks = 1; ranks <= MAX_RANKS; ranks++) {
        lk_runner *runner = lk_supervised_runner();
        lkt_ok(lk_train(runner, .model = integers(), .criterion = lk_cross_entropy_loss(),
                        .optimizer = lk_sgd(.lr = LK_ZERO),
                        .loaders = lk_loaders({"train", lk_loader(numbers(TRAIN, 1), .batch_size = 32)},
                                              {"valid", lk_loader(numbers(SAMPLES, 2), .batch_size = 32)}),
                        .callbacks = lk_callbacks(lk_accuracy_callback(.num_classes = CLASSES),
                                                  lk_on(batch_end, note_batch, &seen),
                                                  lk_on(loader_end, gather_batches, &seen)),
                        .nproc = ranks, .thread_count = 1, .device = "cpu"));
        const lk_metrics *train = lk_runner_loader_metrics(runner, "train"),
                         *valid = lk_runner_loader_metrics(runner, "valid");
        lkt_close(lk_metrics_get(train, "accuracy01/std") / expected_std(seen.all[0], ranks, ACCURACY, TRAIN),
                  1, 1e-12);
        lkt_close(lk_metrics_get(valid, "accuracy01/std") /
                      expected_std(seen.all[1], ranks, ACCURACY, SAMPLES),
                  1, 1e-12);
        lkt_close(lk_metrics_get(valid, "loss/std") / expected_std(seen.all[1], ranks, LOSS, SAMPLES), 1,
                  1e-5);
        lk_runner_free(runner);
    }
}

/* lk_evaluate_loader, too, on any engine: the batch size does not show. */
static double evaluated(const char *device, lk_criterion *criterion, const char *target_key, int batch_size)
{
    lk_runner *runner = lk_supervised_runner(.target_key = target_key);
    lkt_ok(lk_evaluate_loader(
        runner, lk_loader(numbers(157, 2), .batch_size = batch_size), .model = integers(),
        .criterion = criterion, .device = device,
        .callbacks = lk_callbacks(lk_accuracy_callback(.num_classes = CLASSES, .target_key = "targets"))));
    double loss = lk_metrics_get(runner->loader_metrics, "loss");
    lk_runner_free(runner);
    return loss;
}

static void evaluation_does_not_see_batches(void **state)
{
    (void)state;
    static lk_criterion *(*const criteria[])(void) = {plain, weighted, smoothed, squares, bce, divergence};
    static const int sizes[] = {1, 13, 32, 100};
    const char *device = getenv("LOCKSTEP_TEST_ENGINE");
    for (int c = 0; c < 6; c++) {
        const char *key = c < 3 ? "some" : "soft";
        double whole = evaluated(device ? device : "cpu", criteria[c](), key, 157);
        assert_true(isfinite(whole));
        for (int i = 0; i < 4; i++) {
            double loss = evaluated(device ? device : "cpu", criteria[c](), key, sizes[i]);
            if (loss != whole) fail_msg("criterion %d, batches of %d: %a, not %a", c, sizes[i], loss, whole);
        }
        lkt_close(evaluated("ref", criteria[c](), key, 157), whole, 1e-6);
    }
}

int main(int argc, char **argv)
{
    self_path = argv[0];
    if (argc == 3 && strcmp(argv[1], "--as-rank") == 0) return run_as_rank(argv[2]);
    const struct CMUnitTest evaluation[] = {cmocka_unit_test(evaluation_does_not_see_batches)};
    if (getenv("LOCKSTEP_TEST_ENGINE")) return cmocka_run_group_tests(evaluation, NULL, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_do_not_show),
        cmocka_unit_test(levels_do_not_see_places),
        cmocka_unit_test(the_reference_engine_neither),
        cmocka_unit_test(comms_do_not_show),
        cmocka_unit_test(neither_does_mpi),
        cmocka_unit_test(accuracy_is_right_over_seen),
        cmocka_unit_test(padding_does_not_weigh),
        cmocka_unit_test(spread_is_that_of_batches),
        cmocka_unit_test(evaluation_does_not_see_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
