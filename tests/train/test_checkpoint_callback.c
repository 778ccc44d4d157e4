/* Which files a run leaves, what is in them, and what happens when they cannot be written. */
#include "case.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* The valid loss of each epoch is given: the callback replaces it. */
static lk_status set_loss(lk_callback *callback, lk_runner *runner)
{
    const double *losses = callback->context;
    if (!runner->is_valid_loader) return LK_OK;
    return lk_metrics_set(runner->loader_metrics, "score", losses[runner->epoch_step - 1]);
}

typedef struct copies {
    char hashes[16][65]; /* of the weights at the end of each epoch */
} copies;

static lk_status keep_hash(lk_callback *callback, lk_runner *runner)
{
    copies *copies = callback->context;
    strcpy(copies->hashes[runner->epoch_step], lkt_hash(runner->model));
    return LK_OK;
}

static lk_runner *run_with_scores(const char *logdir, const double *scores, int epochs, bool minimize,
                                  lk_callback *checkpoint, copies *copies, lk_status expected)
{
    lk_runner *runner = lk_supervised_runner();
    lk_callback *callbacks[] = {lk_on(loader_end, set_loss, (void *)scores),
                                lk_on(epoch_end, keep_hash, copies), checkpoint};
    lk_status status =
        lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                 .optimizer = lk_sgd(.lr = 0.1),
                 .loaders = lk_loaders({"train", lk_loader(lkt_points(32, 1), .batch_size = 8)},
                                       {"valid", lk_loader(lkt_points(16, 2), .batch_size = 8)}),
                 .callbacks = {callbacks, checkpoint ? 3 : 2}, .num_epochs = epochs, .logdir = logdir,
                 .valid_loader = "valid", .valid_metric = "score", .minimize_valid_metric = minimize);
    if (status != expected) fail_msg("status %d: %s", status, lk_error());
    return runner;
}

static const char *file_hash(const char *logdir, const char *name)
{
    static char hash[LK_HASH_LENGTH + 1];
    lk_state_dict *state = lk_load_safetensors(lkt_path(logdir, "checkpoints/%s", name));
    lkt_not_null(state);
    lkt_ok(lk_weights_hash(state, hash));
    lk_state_dict_free(state);
    return hash;
}

static int count_files(const char *logdir)
{
    char command[2048];
    int count;
    snprintf(command, sizeof command, "ls -A '%s/checkpoints' | wc -l", logdir);
    FILE *pipe = popen(command, "r");
    assert_int_equal(fscanf(pipe, "%d", &count), 1);
    pclose(pipe);
    return count;
}

static void five_epochs_of_falling_loss(void **state)
{
    (void)state;
    static const double scores[] = {5, 4, 3, 2, 1};
    copies copies;
    char logdir[1024];
    snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_topk"));
    lk_runner_free(
        run_with_scores(logdir, scores, 5, true, lk_checkpoint_callback(.topk = 2), &copies, LK_OK));
    static const char *const files[] = {"model.storage.json",       "model.0004.safetensors",
                                        "model.0005.safetensors",   "model.best.safetensors",
                                        "model.last.safetensors",   "runner.last.safetensors",
                                        "runner.last.1.safetensors"};
    for (int i = 0; i < 7; i++) assert_true(lkt_exists(lkt_path(logdir, "checkpoints/%s", files[i])));
    assert_int_equal(count_files(logdir), 7);
    assert_string_equal(file_hash(logdir, "model.best.safetensors"), copies.hashes[5]);
    assert_string_equal(file_hash(logdir, "model.0004.safetensors"), copies.hashes[4]);
    char *text = lkt_read(lkt_path(logdir, "checkpoints/model.storage.json"));
    static const char *const fragments[] = {
        "\"topk\": 2",        "\"loader_key\": \"valid\"", "\"metric_key\": \"score\"",
        "\"minimize\": true", "model.0005.safetensors",    "\"metric\": 1.0"};
    for (int i = 0; i < 6; i++) lkt_contains(text, fragments[i]);
    free(text);
}

static void the_best_is_the_best_epochs_weights(void **state)
{
    (void)state;
    static const double scores[] = {0.2, 0.9, 0.4, 0.9, 0.1};
    copies copies;
    char logdir[1024];
    snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_best"));
    lk_runner *runner = run_with_scores(logdir, scores, 5, false, NULL, &copies, LK_OK);
    assert_string_equal(file_hash(logdir, "model.best.safetensors"),
                        copies.hashes[2]); /* the earlier of equals */
    assert_string_equal(file_hash(logdir, "model.last.safetensors"), copies.hashes[5]);
    assert_string_equal(lkt_hash(runner->model), copies.hashes[5]);
    lk_runner_free(runner);
    snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_best"));
    runner = run_with_scores(logdir, scores, 5, false, lk_checkpoint_callback(.load_best_on_end = true),
                             &copies, LK_OK);
    assert_string_equal(lkt_hash(runner->model), copies.hashes[2]);
    lk_runner_free(runner);
}

static void what_is_not_wanted_is_not_written(void **state)
{
    (void)state;
    static const double scores[] = {3, 2};
    copies copies;
    char logdir[1024];
    snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_few"));
    lk_runner_free(run_with_scores(
        logdir, scores, 2, true,
        lk_checkpoint_callback(.no_save_last = true, .no_save_best = true, .no_save_runner = true), &copies,
        LK_OK));
    assert_int_equal(count_files(logdir), 2); /* the epoch's weights and the list */
    snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_none"));
    lk_runner_free(run_with_scores(logdir, scores, 2, true, lk_skip_checkpoint_callback(), &copies, LK_OK));
    assert_false(lkt_exists(lkt_path(logdir, "checkpoints")));
    snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_mode"));
    lk_runner_free(
        run_with_scores(logdir, scores, 2, true, lk_checkpoint_callback(.mode = "runner"), &copies, LK_OK));
    assert_true(lkt_exists(lkt_path(logdir, "checkpoints/runner.0002.safetensors")));
    assert_true(lkt_exists(lkt_path(logdir, "checkpoints/runner.best.safetensors")));
    assert_null(lk_checkpoint_callback(.mode = "everything"));
    assert_null(lk_checkpoint_callback(.topk = -1));
}

static void a_metric_that_nobody_reports(void **state)
{
    (void)state;
    copies copies;
    lk_runner *runner = lk_supervised_runner();
    lk_status status = lk_train(
        runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(), .optimizer = lk_adam(),
        .loaders = lk_loaders({"train", lk_loader(lkt_points(32, 1), .batch_size = 8)}),
        .logdir = lkt_scratch_folder("train_unknown_metric"), .valid_metric = "accuracy01",
        .callbacks = lk_callbacks(lk_on(epoch_end, keep_hash, &copies)));
    assert_int_equal(status, LK_ERR_NOT_FOUND);
    lkt_contains(lk_error(), "loader \"train\" reports no metric \"accuracy01\"");
    lk_runner_free(runner);
}

/* ---- The whole runner, epoch by epoch ---- */

/* A loss that never falls: patience ends the run. */
static int64_t epochs_with_patience(const char *logdir, const char *resume, int nproc)
{
    lk_runner *runner = lk_supervised_runner();
    lk_status status =
        lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                 .optimizer = lk_sgd(.lr = 1e-12),
                 .loaders = lk_loaders({"train", lk_loader(lkt_points(64, 1), .batch_size = 8)}),
                 .callbacks = lk_callbacks(lk_optimizer_callback(.accumulation_steps = 3),
                                           lk_checkpoint_callback(.mode = "runner", .topk = 9),
                                           lk_early_stopping_callback(.patience = 3)),
                 .num_epochs = 20, .logdir = logdir, .resume = resume, .nproc = nproc, .thread_count = 1);
    if (status) fail_msg("status %d: %s", status, lk_error());
    int64_t epochs = runner->epoch_step;
    lk_runner_free(runner);
    return epochs;
}

/* A numbered runner knows what every callback made of its epoch. With ranks, and gradients left over, all of
 * them have a part in it. */
static void numbered_runners_are_places_to_go_on_from(void **state)
{
    (void)state;
    char logdir[1024], resume[1100];
    for (int nproc = 1; nproc <= 2; nproc++) {
        snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_numbered"));
        int64_t epochs = epochs_with_patience(logdir, NULL, nproc);
        assert_in_range(epochs, 4, 19);
        snprintf(resume, sizeof resume, "%s/checkpoints/runner.0002.safetensors", logdir);
        assert_int_equal(epochs_with_patience(lkt_scratch_folder("train_numbered_on"), resume, nproc),
                         epochs);
    }
}

static void a_numbered_runner_is_written_once_an_epoch(void **state)
{
    (void)state;
    static const double scores[] = {1, 2, 3};
    copies copies;
    char logdir[1024];
    snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_numbered_once"));
    lk_callback *checkpoint = lk_checkpoint_callback(.mode = "runner", .topk = 3, .no_save_runner = true);
    lk_runner_free(run_with_scores(logdir, scores, 3, true, lk_once_per_epoch(checkpoint), &copies, LK_OK));
    for (int i = 1; i <= 3; i++)
        assert_true(lkt_exists(lkt_path(logdir, "checkpoints/runner.%04d.safetensors", i)));
    assert_false(lkt_exists(lkt_path(logdir, "checkpoints/runner.last.safetensors")));
}

/* ---- The best at the end, on every rank ---- */

static lk_status load_best_everywhere(void *context)
{
    static const double scores[] = {2, 1, 4, 3};
    const char *logdir = context;
    copies copies;
    lk_callback *checkpoint = lk_checkpoint_callback(.load_best_on_end = true);
    lk_runner *runner = run_with_scores(logdir, scores, 4, true, checkpoint, &copies, LK_OK);
    FILE *file = fopen(lkt_path(logdir, "rank.%d", lk_rank()), "w");
    fprintf(file, "%s %s", lkt_hash(runner->model), copies.hashes[2]);
    fclose(file);
    lk_runner_free(runner);
    return LK_OK;
}

static void every_rank_ends_with_the_best(void **state)
{
    (void)state;
    char logdir[1024], hashes[2][80];
    snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_best_ranks"));
    lkt_ok(lk_distributed_run(load_best_everywhere, logdir, .nproc = 2));
    for (int rank = 0; rank < 2; rank++) {
        char *text = lkt_read(lkt_path(logdir, "rank.%d", rank));
        assert_int_equal(sscanf(text, "%79s %79s", hashes[0], hashes[1]), 2);
        assert_string_equal(hashes[0], hashes[1]);
        free(text);
    }
}

/* Rank 0 cannot load what somebody took away: nobody waits for it. */
static lk_status remove_best(lk_callback *callback, lk_runner *runner)
{
    const char *logdir = callback->context;
    if (runner->is_master) unlink(lkt_path(logdir, "checkpoints/model.0001.safetensors"));
    return LK_OK;
}

static void a_best_that_is_gone_fails_on_every_rank(void **state)
{
    (void)state;
    char logdir[1024];
    snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_best_gone"));
    lk_runner *runner = lk_supervised_runner();
    lk_status status = lk_train(
        runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(), .optimizer = lk_adam(),
        .loaders = lk_loaders({"train", lk_loader(lkt_points(32, 1), .batch_size = 8)}),
        .callbacks = lk_callbacks(lk_on(settled, remove_best, logdir)), .num_epochs = 1, .logdir = logdir,
        .load_best_on_end = true, .nproc = 2, .thread_count = 1);
    assert_int_not_equal(status, LK_OK);
    lkt_contains(lk_error(), "model.0001.safetensors");
    lk_runner_free(runner);
}

/* ---- Starting from the best ---- */

static char first_hash[LK_HASH_LENGTH + 1], warning[1000];

static lk_status keep_first_hash(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    if (runner->epoch_step == 1) snprintf(first_hash, sizeof first_hash, "%s", lkt_hash(runner->model));
    return LK_OK;
}

static void keep_warning(const char *level, const char *line, void *context)
{
    (void)context;
    if (strcmp(level, "warning") == 0 && strstr(line, "autoresume"))
        snprintf(warning, sizeof warning, "%s", line);
}

/* The hash of the weights that a run from the best ones begins with. */
static const char *first_of_best(const char *logdir, lk_callback *checkpoint)
{
    lk_runner *runner = lk_supervised_runner();
    warning[0] = '\0';
    lk_set_log_sink(keep_warning, NULL);
    lkt_ok(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_adam(),
                    .loaders = lk_loaders({"train", lk_loader(lkt_points(32, 1), .batch_size = 8)}),
                    .callbacks = lk_callbacks(lk_on(epoch_start, keep_first_hash, NULL), checkpoint),
                    .num_epochs = 1, .logdir = logdir, .autoresume = "best"));
    lk_set_log_sink(NULL, NULL);
    lk_runner_free(runner);
    return first_hash;
}

static void either_kind_of_best_is_found(void **state)
{
    (void)state;
    static const double scores[] = {3, 1, 2};
    for (int writer = 0; writer < 2; writer++)
        for (int reader = 0; reader < 2; reader++) {
            const char *modes[] = {"model", "runner"};
            copies copies;
            char logdir[1024];
            snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_from_best"));
            lk_runner_free(run_with_scores(logdir, scores, 3, true,
                                           lk_checkpoint_callback(.mode = modes[writer]), &copies, LK_OK));
            assert_string_equal(first_of_best(logdir, lk_checkpoint_callback(.mode = modes[reader])),
                                copies.hashes[2]);
            assert_string_equal(warning, "");
        }
}

static void a_start_beside_other_checkpoints_is_told(void **state)
{
    (void)state;
    static const double scores[] = {3, 1};
    copies copies;
    char logdir[1024];
    snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_no_best"));
    first_of_best(logdir, lk_checkpoint_callback());
    assert_string_equal(warning, ""); /* nothing is there */
    snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_no_best"));
    lk_runner_free(run_with_scores(logdir, scores, 2, true, lk_checkpoint_callback(.no_save_best = true),
                                   &copies, LK_OK));
    first_of_best(logdir, lk_checkpoint_callback());
    lkt_contains(warning, "autoresume: none of the checkpoints in ");
    lkt_contains(warning, "is a \"best\"");
}

/* ---- When writing fails ---- */

static void a_logdir_that_cannot_be_written(void **state)
{
    (void)state;
    static const double scores[] = {3, 2};
    copies copies;
    char folder[1024], logdir[2048];
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("train_unwritable"));
    snprintf(logdir, sizeof logdir, "%s/file/logs", folder);
    FILE *file = fopen(lkt_path(folder, "file"), "w"); /* a file where a folder should be */
    fclose(file);
    lk_runner_free(run_with_scores(logdir, scores, 2, true, NULL, &copies, LK_ERR_IO));
    lkt_contains(lk_error(), "train_unwritable/file");
    assert_null(strchr(lk_error(), '\n'));
}

static lk_status limit_files(lk_callback *callback, lk_runner *runner)
{
    const rlim_t *nbytes = callback->context;
    struct rlimit limit;
    if (runner->epoch_step != 2) return LK_OK;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = *nbytes;
    setrlimit(RLIMIT_FSIZE, &limit);
    return LK_OK;
}

/* A disk that is full from epoch 2 on: a limit on the size of files fails in the same way. */
static void a_full_disk(void **state)
{
    (void)state;
    copies copies = {0};
    char logdir[1024];
    rlim_t nbytes = 300; /* neither the log's lines fit nor the weights */
    struct rlimit before, after;
    snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_full"));
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    lk_runner *runner = lk_supervised_runner();
    lk_status status =
        lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                 .optimizer = lk_sgd(.lr = 0.1),
                 .loaders = lk_loaders({"train", lk_loader(lkt_points(32, 1), .batch_size = 8)}),
                 .callbacks = lk_callbacks(lk_on(epoch_start, limit_files, &nbytes),
                                           lk_on(epoch_end, keep_hash, &copies)),
                 .num_epochs = 3, .logdir = logdir);
    getrlimit(RLIMIT_FSIZE, &after);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, SIG_DFL);
    lk_runner_free(runner);
    assert_int_equal(status, LK_ERR_IO);
    assert_int_equal(after.rlim_cur, nbytes);
    assert_null(strchr(lk_error(), '\n'));
    /* The first file that is written to at the end of an epoch. */
    lkt_contains(lk_error(), "train_full/system.jsonl: could not write: File too large");
    /* What was there is there, whole, and nothing half-written lies beside it. */
    assert_string_equal(file_hash(logdir, "model.last.safetensors"), copies.hashes[1]);
    assert_string_equal(file_hash(logdir, "model.best.safetensors"), copies.hashes[1]);
    file_hash(logdir, "runner.last.safetensors");
    assert_int_equal(count_files(logdir), 5);
}

static lk_status stop_at_the_second_batch(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    if (runner->batch_step == 2) raise(SIGTERM);
    return LK_OK;
}

/* Logs are flushed before a place is saved; that one cannot be does not cost the place. */
static void a_log_that_is_full(void **state)
{
    (void)state;
    char logdir[1024];
    snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_full_log"));
    lk_runner *runner = lk_supervised_runner();
    lk_status status = lk_train(
        runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
        .optimizer = lk_sgd(.lr = 0.1),
        .loaders = lk_loaders({"train", lk_loader(lkt_points(32, 1), .batch_size = 8)}),
        .loggers = lk_loggers(lk_jsonl_logger("/dev/full", .log_batch_metrics = true)),
        .callbacks = lk_callbacks(lk_on(batch_end, stop_at_the_second_batch, NULL)), .logdir = logdir);
    assert_int_equal(status, LK_ERR_STOPPED);
    lkt_contains(lk_error(), "/dev/full: could not write");
    file_hash(logdir, "runner.last.safetensors");
    lk_runner_free(runner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(five_epochs_of_falling_loss),
        cmocka_unit_test(the_best_is_the_best_epochs_weights),
        cmocka_unit_test(what_is_not_wanted_is_not_written),
        cmocka_unit_test(a_metric_that_nobody_reports),
        cmocka_unit_test(numbered_runners_are_places_to_go_on_from),
        cmocka_unit_test(a_numbered_runner_is_written_once_an_epoch),
        cmocka_unit_test(every_rank_ends_with_the_best),
        cmocka_unit_test(a_best_that_is_gone_fails_on_every_rank),
        cmocka_unit_test(either_kind_of_best_is_found),
        cmocka_unit_test(a_start_beside_other_checkpoints_is_told),
        cmocka_unit_test(a_logdir_that_cannot_be_written),
        cmocka_unit_test(a_full_disk),
        cmocka_unit_test(a_log_that_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
