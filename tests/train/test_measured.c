/* The values that the seeds' real systems gave on real data: facts/measured-runs.md of the shared folder. */
#include "case.h"

enum { EPOCHS = 8 };

/* |a - b| <= tolerance |b| */
static void check_relative(const char *what, int epoch, double actual, double expected, double tolerance)
{
    if (!(fabs(actual - expected) <= tolerance * fabs(expected)))
        fail_msg("%s of epoch %d is %.9g, measured %.9g", what, epoch, actual, expected);
}

static void check_absolute(const char *what, int epoch, double actual, double expected, double tolerance)
{
    if (!(fabs(actual - expected) <= tolerance))
        fail_msg("%s of epoch %d is %.9g, measured %.9g", what, epoch, actual, expected);
}

static void check_header(const char *logdir)
{
    static const char *const header =
        "step,accuracy01,accuracy01/std,accuracy03,accuracy03/std,accuracy05,accuracy05/std,auc,auc/"
        "_macro,auc/"
        "_micro,auc/_weighted,f1/_macro,f1/_micro,f1/_weighted,loss,loss/mean,loss/std,lr,momentum,precision/"
        "_macro,precision/_micro,precision/_weighted,recall/_macro,recall/_micro,recall/_weighted,time\n";
    char *text = lkt_read(lkt_path(logdir, "csv_logger/train.csv"));
    if (strncmp(text, header, strlen(header)) != 0) fail_msg("the header of train.csv is %.400s", text);
    free(text);
}

static void check_first_epoch(const char *logdir)
{
    static const struct {
        const char *name;
        double value, tolerance;
    } rows[] = {
        {"accuracy01/std", .0845893, 5e-4},
        {"accuracy03", .9584, 5e-4},
        {"accuracy05", .9889, 5e-4},
        {"auc/_macro", .96895, 5e-4},
        {"auc/_micro", .96839, 5e-4},
        {"auc/_weighted", .96957, 5e-4},
        {"f1/_macro", .83995, 5e-4},
        {"precision/_macro", .86796, 5e-4},
        {"precision/_weighted", .86993, 5e-4},
        {"recall/_macro", .84832, 5e-4},
        {"loss/std", .58579, 1e-3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_absolute(rows[i].name, 1, lkt_csv(logdir, "valid", 1, rows[i].name), rows[i].value,
                       rows[i].tolerance);
}

static void seed_000(void **state)
{
    (void)state;
    static const double train[EPOCHS] = {0.5142139671, 0.5096858080, 0.5081278895, 0.5083413564,
                                         0.5061714086, 0.5037001364, 0.5016814618, 0.5001267695};
    static const double valid[EPOCHS] = {0.8360391955, 0.8156691764, 0.7652144539, 0.7838350606,
                                         0.7959194756, 0.8338634992, 0.8590513055, 0.8624616292};
    static const double accuracy[EPOCHS] = {.8506, .8527, .8626, .8621, .8620, .8593, .8595, .8607};
    const char *shared = lkt_shared();
    if (!shared) {
        print_message("skipped: there is no shared data beside the project\n");
        skip();
    }
    char root[2048];
    snprintf(root, sizeof root, "%s/data/mnist", shared);
    const char *logdir = lkt_scratch_folder("train_seed_000");
    lk_manual_seed(42);
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(
        lk_train(runner, .model = lk_sequential(lk_flatten(), lk_linear(28 * 28, 10)),
                 .criterion = lk_cross_entropy_loss(), .optimizer = lk_adam(.lr = 0.02),
                 .loaders = lk_loaders({"train", lk_loader(lk_mnist(root, .train = true), .batch_size = 32)},
                                       {"valid", lk_loader(lk_mnist(root), .batch_size = 32)}),
                 .callbacks = lk_callbacks(lk_accuracy_callback(.num_classes = 10),
                                           lk_precision_recall_f1_support_callback(.num_classes = 10),
                                           lk_auc_callback()),
                 .num_epochs = EPOCHS, .logdir = logdir, .valid_loader = "valid", .valid_metric = "loss",
                 .minimize_valid_metric = true));
    for (int i = 0; i < EPOCHS; i++) {
        check_relative("train loss", i + 1, lkt_csv(logdir, "train", i + 1, "loss"), train[i], 1e-3);
        check_relative("valid loss", i + 1, lkt_csv(logdir, "valid", i + 1, "loss"), valid[i], 1e-3);
        check_absolute("accuracy", i + 1, lkt_csv(logdir, "valid", i + 1, "accuracy01"), accuracy[i], 5e-4);
    }
    check_first_epoch(logdir);
    check_header(logdir);
    lk_runner_free(runner);
}

/* The targets are (32), the outputs (32, 1): the loss broadcasts to 32 x 32, as the seed's does, and says so.
 */
static int warnings;
static void count_warnings(const char *level, const char *line, void *context)
{
    (void)level;
    (void)context;
    warnings += strstr(line, "(32, 1)") != NULL;
}

static void seed_001(void **state)
{
    (void)state;
    static const double train[EPOCHS] = {.138276529, .107809362, .096867637, .093146172,
                                         .092610810, .092084632, .091792084, .091738388};
    static const double valid[EPOCHS] = {.115602419, .101124018, .093404777, .092866808,
                                         .092334306, .091816394, .091763216, .091709095};
    const char *logdir = lkt_scratch_folder("train_seed_001");
    lk_manual_seed(42);
    lk_tensor *x = lk_rand(LK_SHAPE(10000, 10)), *y = lk_rand(LK_SHAPE(10000));
    lk_dataset *data = lk_tensor_dataset({"features", x}, {"targets", y});
    lk_dataset *again = lk_dataset_share(data);
    warnings = 0;
    lk_set_log_sink(count_warnings, NULL);
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(runner, .model = lk_linear(10, 1), .criterion = lk_mse_loss(), .optimizer = lk_adam(),
                    .scheduler = lk_multi_step_lr(.milestones = lk_milestones(3, 6)),
                    .loaders = lk_loaders({"train", lk_loader(data, .batch_size = 32)},
                                          {"valid", lk_loader(again, .batch_size = 32)}),
                    .num_epochs = EPOCHS, .logdir = logdir));
    lk_set_log_sink(NULL, NULL);
    assert_true(warnings > 0);
    for (int i = 0; i < EPOCHS; i++) {
        check_relative("train loss", i + 1, lkt_csv(logdir, "train", i + 1, "loss"), train[i], 1e-3);
        check_relative("valid loss", i + 1, lkt_csv(logdir, "valid", i + 1, "loss"), valid[i], 1e-3);
    }
    lk_runner_free(runner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seed_000),
        cmocka_unit_test(seed_001),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
