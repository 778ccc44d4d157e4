/* CNN3d: the losses of the same network in PyTorch, ranks, saving and loading, and what may go wrong. */
#include "case.h"

#include "device/open_plugin.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

/* PyTorch 1.13, seed 0, one full batch (shared/facts; tests/oracle/estimator_cnn3d.py). */
static const double first_losses[] = {1.3389e-2, 1.3040e-2, 1.2704e-2, 1.2382e-2, 1.2072e-2};
static const double loss_100 = 2.4809e-4;

static void assert_relative(double actual, double expected, double tolerance)
{
    if (!(fabs(actual - expected) <= tolerance * fabs(expected)))
        fail_msg("%.9g, expected %.9g", actual, expected);
}

static void same_losses_as_pytorch(void **state)
{
    (void)state;
    NEEDS_SAPSAN(folder);
    lk_fields *fields = lkt_velocity16(folder, *LK_OPTIONS(lk_fields_options));
    lkt_not_null(fields);
    assert_true(lk_shape_equal(lk_fields_features(fields)->shape, LK_SHAPE(1, 3, 16, 16, 16)));
    lk_manual_seed(0);
    lk_estimator *estimator = lk_cnn3d(lk_fields_loaders(fields), .n_epochs = 100, .patience = 1000,
                                       .logdir = lkt_scratch_folder("cnn3d_losses"));
    lkt_not_null(estimator);
    assert_int_equal(lk_module_param_count(lk_estimator_model(estimator)), 308544);
    lkt_ok(lk_estimator_train(estimator));
    const double *losses;
    assert_int_equal(lk_estimator_history(estimator, "train", &losses), 100);
    for (int i = 0; i < 5; i++) assert_relative(losses[i], first_losses[i], 1e-4);
    assert_relative(losses[99], loss_100, 0.02);
    assert_int_equal(lk_estimator_epoch(estimator), 100);
    lk_estimator_free(estimator);
    lk_fields_free(fields);
}

/* 8 sub-cubes of 8^3 in one batch, or 4 of them on each of two ranks. */
static void train_cubes(const char *folder, bool ddp, double *losses)
{
    const double *history;
    lk_fields *fields = lkt_velocity16(folder, *LK_OPTIONS(lk_fields_options, .batch_num = 8));
    lkt_not_null(fields);
    lk_manual_seed(0);
    lk_estimator *estimator =
        lk_cnn3d(lk_fields_loaders(fields, .batch_size = ddp ? 4 : 8), .n_epochs = 20, .patience = 1000,
                 .ddp = ddp, .nproc = 2, .logdir = lkt_scratch_folder(ddp ? "cnn3d_two" : "cnn3d_one"));
    lkt_ok(lk_estimator_train(estimator));
    assert_int_equal(lk_estimator_history(estimator, "train", &history), 20);
    memcpy(losses, history, sizeof *losses * 20);
    lk_estimator_free(estimator);
    lk_fields_free(fields);
}

static void two_ranks_as_one(void **state)
{
    (void)state;
    NEEDS_SAPSAN(folder);
    double one[20], two[20];
    train_cubes(folder, false, one);
    train_cubes(folder, true, two);
    for (int i = 0; i < 20; i++) assert_relative(two[i], one[i], 1e-5);
}

static void save_load_evaluate(void **state)
{
    (void)state;
    lk_tensor *field = lkt_wavy(LK_SHAPE(2, 3, 16, 16, 16));
    lk_fields *fields = lk_tensor_fields(field, NULL);
    const char *folder = lkt_scratch_folder("cnn3d_saved");
    lk_manual_seed(3);
    lk_estimator *estimator = lk_cnn3d(lk_fields_loaders(fields, .batch_size = 2), .n_epochs = 3, .lr = 2e-3,
                                       .logdir = lkt_scratch_folder("cnn3d_save_logs"));
    lkt_ok(lk_estimator_train(estimator));
    lk_evaluation before, after;
    const lk_tensor *x = lk_fields_features(fields), *y = lk_fields_targets(fields);
    lkt_ok(lk_estimator_evaluate(estimator, x, y, &before));
    assert_true(before.mse > 0 && before.ks > 0 && before.ks <= 1 && before.runtime_s > 0);
    lkt_ok(lk_estimator_save(estimator, folder));

    lk_estimator *opened = lk_estimator_open(folder);
    lkt_not_null(opened);
    assert_int_equal(lk_estimator_epoch(opened), 3);
    assert_true(lk_estimator_loss(opened) == lk_estimator_loss(estimator));
    assert_true(lk_estimator_get_config(opened)->lr == 2e-3);
    assert_true(lk_estimator_get_config(opened)->min_lr == 2e-5);
    lkt_ok(lk_estimator_evaluate(opened, x, y, &after));
    assert_true(after.mse == before.mse && after.ks == before.ks);

    /* Both go on from there alike: the optimizer's state has come along. */
    lk_estimator *both[] = {estimator, opened};
    double losses[2];
    for (int i = 0; i < 2; i++) {
        lkt_ok(lk_estimator_set_loaders(both[i], lk_fields_loaders(fields, .batch_size = 2)));
        lkt_ok(lk_estimator_train(both[i]));
        assert_int_equal(lk_estimator_epoch(both[i]), 6);
        losses[i] = lk_estimator_loss(both[i]);
    }
    assert_true(losses[0] == losses[1]);
    lk_estimator_free(opened);
    lk_estimator_free(estimator);
    lk_fields_free(fields);
}

static bool exists(const char *folder, const char *name)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static void touch(const char *folder, const char *name)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
}

static void train_into(const char *logdir)
{
    lk_fields *fields = lk_tensor_fields(lkt_wavy(LK_SHAPE(1, 1, 8, 8, 8)), NULL);
    lk_estimator *estimator = lk_cnn3d(lk_fields_loaders(fields), .logdir = logdir);
    lkt_ok(lk_estimator_train(estimator));
    assert_true(exists(logdir, "model_details.txt") && exists(logdir, "csv_logger/train.csv"));
    lk_estimator_free(estimator);
    lk_fields_free(fields);
}

static void make_folder(const char *folder, const char *name)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(mkdir(path, 0777), 0);
}

/* The logs of an estimator's run go before the next; what another run or a person put there stays. */
static void logdir_is_wiped_with_care(void **state)
{
    (void)state;
    const char *logdir = lkt_scratch_folder("cnn3d_logdir");
    static const char *const others[] = {"notes.txt", "config.yml", "checkpoints/model.best.safetensors",
                                         "checkpoints/model.storage.json", "csv_logger/other.csv"};
    make_folder(logdir, "checkpoints");
    make_folder(logdir, "csv_logger");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) touch(logdir, others[i]);
    train_into(logdir); /* a folder in which no estimator has been: nothing is removed */
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_true(exists(logdir, others[i]));
    train_into(logdir);
    for (size_t i = 0; i < 4; i++) assert_true(exists(logdir, others[i]));
    assert_false(exists(logdir, "csv_logger/other.csv"));
    assert_false(exists(logdir, "checkpoints/model.last.safetensors"));
}

/* The only entry of a folder that is itself a folder. */
static void enter(char *folder, size_t capacity)
{
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    char found[300] = "";
    for (struct dirent *entry; (entry = readdir(entries));)
        if (*entry->d_name != '.' && entry->d_type == DT_DIR)
            snprintf(found, sizeof found, "%s", entry->d_name);
    closedir(entries);
    assert_true(*found);
    snprintf(folder + strlen(folder), capacity - strlen(folder), "/%s", found);
}

static void expect_file(const char *folder, const char *name, const char *fragment)
{
    char path[2300], text[4096] = "";
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    if (!file) fail_msg("%s is missing", path);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    lkt_contains(text, fragment);
}

/* What MLflow reads: one run with its parameters, its metrics by epoch and its artifacts, with two ranks too.
 */
static void tracked_as_mlflow_does(void **state)
{
    (void)state;
    for (int ddp = 0; ddp < 2; ddp++) {
        char folder[2048], saved[1100];
        snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("cnn3d_mlruns"));
        snprintf(saved, sizeof saved, "%s", lkt_scratch_folder("cnn3d_tracked"));
        lk_fields *fields = lk_tensor_fields(lkt_wavy(LK_SHAPE(2, 1, 8, 8, 8)), NULL);
        lk_estimator *estimator =
            lk_cnn3d(lk_fields_loaders(fields), .n_epochs = 3, .ddp = ddp, .nproc = 2, .tracking = folder,
                     .experiment = "it's a test", .logdir = lkt_scratch_folder("cnn3d_tracked_logs"));
        lk_evaluation result;
        lkt_ok(lk_estimator_train(estimator));
        lkt_ok(
            lk_estimator_evaluate(estimator, lk_fields_features(fields), lk_fields_targets(fields), &result));
        lkt_ok(lk_estimator_save(estimator, saved));
        lk_estimator_free(estimator);
        lk_fields_free(fields);

        enter(folder, sizeof folder);
        expect_file(folder, "meta.yaml", "name: 'it''s a test'\n");
        enter(folder, sizeof folder);
        expect_file(folder, "meta.yaml", "\nstatus: 3\n");
        expect_file(folder, "tags/mlflow.runName", "CNN3d");
        expect_file(folder, "params/model - n_epochs", "3");
        expect_file(folder, "params/model - ddp", ddp ? "True" : "False");
        expect_file(folder, "params/data - features", "(1, 8, 8, 8)");
        expect_file(folder, "metrics/train - loss", " 3\n");
        expect_file(folder, "metrics/valid - loss", " 1\n");
        expect_file(folder, "metrics/train - runtime", " ");
        expect_file(folder, "metrics/eval - MSE Loss", " 3\n");
        expect_file(folder, "metrics/eval - KS Stat", " 3\n");
        expect_file(folder, "artifacts/model_details.txt", "CNN3d");
        expect_file(folder, "artifacts/params.json", "n_epochs");
    }
}

static void stops_early(void **state)
{
    (void)state;
    lk_fields *fields = lk_tensor_fields(lkt_wavy(LK_SHAPE(1, 1, 8, 8, 8)), NULL);
    lk_estimator *estimator = lk_cnn3d(lk_fields_loaders(fields), .n_epochs = 50, .patience = 2,
                                       .min_delta = 1e3, .logdir = lkt_scratch_folder("cnn3d_stops"));
    lkt_ok(lk_estimator_train(estimator));
    assert_int_equal(lk_estimator_epoch(estimator), 3);
    lk_estimator_free(estimator);
    lk_fields_free(fields);
}

/* Trained on a GPU, saved, loaded, and evaluated on the CPU and on the GPU. */
static void trained_on_a_gpu(void **state)
{
    (void)state;
    char why[256];
    if (lki_cuda_device_count(why) == 0) {
        print_message("SKIPPED: %s\n", why);
        skip();
    }
    lk_manual_seed(0);
    lk_fields *fields = lk_tensor_fields(lkt_wavy(LK_SHAPE(4, 3, 16, 16, 16)), NULL);
    const char *folder = lkt_scratch_folder("cnn3d_gpu");
    lk_estimator *estimator =
        lk_cnn3d(lk_fields_loaders(fields), .n_epochs = 5, .device = "cuda", .logdir = folder);
    lkt_ok(lk_estimator_train(estimator));
    lkt_ok(lk_estimator_save(estimator, folder));
    lk_estimator *loaded = lk_estimator_open(folder);
    lkt_not_null(loaded);
    lk_tensor *before = lk_estimator_predict(estimator, lk_fields_features(fields));
    lk_tensor *on_cpu = lk_estimator_predict(loaded, lk_fields_features(fields));
    lk_tensor *on_gpu = lk_estimator_predict_on(loaded, lk_fields_features(fields), "cuda");
    lkt_not_null(on_gpu);
    assert_memory_equal(before->data, on_cpu->data, lk_tensor_nbytes(before));
    for (int64_t i = 0; i < lk_tensor_count(on_cpu); i++)
        assert_true(fabs(lk_tensor_get(on_cpu, i) - lk_tensor_get(on_gpu, i)) < 1e-4);
    lk_tensor_free(before);
    lk_tensor_free(on_cpu);
    lk_tensor_free(on_gpu);
    lk_estimator_free(loaded);
    lk_estimator_free(estimator);
    lk_fields_free(fields);
}

static void mistakes_are_named(void **state)
{
    (void)state;
    lk_fields *large = lk_tensor_fields(lkt_wavy(LK_SHAPE(1, 1, 80, 8, 8)), NULL);
    assert_null(lk_cnn3d(lk_fields_loaders(large)));
    lkt_contains(lk_error(), "CNN3d: features of shape (1, 80, 8, 8): expected (channels, x, y, z)");
    lk_fields_free(large);

    lk_fields *fields = lk_tensor_fields(lkt_wavy(LK_SHAPE(1, 1, 8, 8, 8)), NULL);
    assert_null(lk_cnn3d(lk_fields_loaders(fields), .n_epochs = -1));
    lkt_contains(lk_error(), "CNN3d: n_epochs: expected at least 1, found -1");
    lk_estimator *estimator =
        lk_cnn3d(lk_fields_loaders(fields), .device = "gpu9", .logdir = lkt_scratch_folder("cnn3d_mistakes"));
    lkt_fails(lk_estimator_train(estimator), LK_ERR_CONFIG, "CNN3d: device: no engine is named \"gpu9\"");
    lkt_fails(lk_estimator_train(estimator), LK_ERR_INVALID, "no loaders to train from");
    lk_tensor *other = lkt_wavy(LK_SHAPE(1, 1, 9, 8, 8));
    assert_null(lk_estimator_predict(estimator, other));
    lkt_contains(lk_error(), "expected samples of (1, 8, 8, 8)");
    lk_tensor_free(other);
    lkt_fails(lk_estimator_load(estimator, "/nowhere"), LK_ERR_NOT_FOUND, "/nowhere/params.json");
    assert_null(lk_estimator_open("/nowhere"));
    lk_estimator_free(estimator);
    lk_fields_free(fields);
    assert_null(lk_cnn3d(lk_fields_loaders((lk_fields *)NULL)));
    lkt_fails(lk_estimator_train(NULL), lk_estimator_train(NULL), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_losses_as_pytorch),
        cmocka_unit_test(two_ranks_as_one),
        cmocka_unit_test(save_load_evaluate),
        cmocka_unit_test(logdir_is_wiped_with_care),
        cmocka_unit_test(stops_early),
        cmocka_unit_test(tracked_as_mlflow_does),
        cmocka_unit_test(trained_on_a_gpu),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
