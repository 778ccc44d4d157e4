/* A logdir belongs to one run at a time, an earlier run's files survive the next, and a run that goes on says
 * which of its numbers count. */
#include "case.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct job {
    const char *logdir, *resume, *autoresume;
    int epochs, batch_size;
    double lr;
    uint64_t seed;
    bool overwrite;
    lk_callback *callback;
    lk_scheduler *scheduler;
} job;

static lk_status train(job job)
{
    lk_runner *runner = lk_supervised_runner();
    lk_module *model = lkt_linear_model();
    int64_t batch_size = job.batch_size ? job.batch_size : 8;
    lk_callback *callback = job.callback ? job.callback : lk_accuracy_callback();
    lk_status status = lk_train(
        runner, .model = model, .criterion = lk_cross_entropy_loss(),
        .optimizer = lk_sgd(.lr = job.lr != 0 ? job.lr : 0.1), .scheduler = job.scheduler,
        .loaders =
            lk_loaders({"train", lk_loader(lkt_points(40, 1), .batch_size = batch_size, .shuffle = true)},
                       {"valid", lk_loader(lkt_points(24, 2), .batch_size = 8)}),
        .callbacks = lk_callbacks(callback), .num_epochs = job.epochs ? job.epochs : 1, .logdir = job.logdir,
        .valid_loader = "valid", .resume = job.resume, .autoresume = job.autoresume,
        .seed = job.seed ? job.seed : 5, .overwrite = job.overwrite, .device = "cpu");
    lk_runner_free(runner);
    return status;
}

static bool has(const char *folder, const char *name)
{
    return lkt_exists(lkt_path(folder, "%s", name));
}

/* ---- One run after the other ---- */

static void test_an_earlier_run_is_set_aside(void **state)
{
    (void)state;
    char logdir[1024], first[1100], second[1100];
    snprintf(logdir, sizeof logdir, "%s/logs", lkt_scratch_folder("logdir_aside"));
    snprintf(first, sizeof first, "%s.1", logdir);
    snprintf(second, sizeof second, "%s.2", logdir);
    lkt_ok(train((job){.logdir = logdir, .epochs = 2}));
    lkt_shell_in(logdir, "echo mine > notes.txt");
    lkt_ok(
        train((job){.logdir = lkt_path(logdir, "/"), .epochs = 1})); /* a slash at its end changes nothing */
    assert_int_equal(lkt_csv_rows(first, "train"), 2);
    assert_int_equal(lkt_csv_rows(logdir, "train"), 1);
    assert_true(has(first, "checkpoints/runner.last.safetensors") && has(first, "log.txt"));
    assert_true(has(first, "hparams.json") && has(first, "tensorboard/train"));
    assert_true(has(logdir, "notes.txt") && !has(first, "notes.txt"));
    assert_false(has(logdir, ".lock") || has(first, ".lock"));
    char *text = lkt_read(lkt_path(logdir, "log.txt"));
    lkt_contains(text, "the earlier run's files are now in ");
    lkt_contains(text, "logs.1\n");
    free(text);
    lkt_ok(train((job){.logdir = logdir, .epochs = 1}));
    assert_true(has(second, "log.txt"));
    assert_false(lkt_exists(lkt_path(logdir, "../logs.3")));
}

static void test_overwrite_and_resume_stay_in_place(void **state)
{
    (void)state;
    char logdir[1024];
    snprintf(logdir, sizeof logdir, "%s/logs", lkt_scratch_folder("logdir_overwrite"));
    lkt_ok(train((job){.logdir = logdir, .epochs = 3}));
    lkt_ok(train((job){.logdir = logdir, .epochs = 4, .autoresume = "last"}));
    assert_int_equal(lkt_csv_rows(logdir, "train"), 4);
    lkt_ok(train((job){
        .logdir = logdir, .epochs = 5, .resume = lkt_path(logdir, "checkpoints/runner.last.safetensors")}));
    assert_int_equal(lkt_csv_rows(logdir, "train"), 5);
    lkt_ok(train((job){.logdir = logdir, .epochs = 1, .overwrite = true, .lr = 1e-9}));
    assert_int_equal(lkt_csv_rows(logdir, "train"), 1);
    assert_true(has(logdir, "checkpoints/model.0001.safetensors"));
    for (int epoch = 2; epoch <= 5; epoch++) /* none of the earlier run's is left among its own */
        assert_false(lkt_exists(lkt_path(logdir, "checkpoints/model.%04d.safetensors", epoch)));
    assert_false(lkt_exists(lkt_path(logdir, "../logs.1")));
    lkt_fails(train((job){.logdir = logdir, .overwrite = true, .autoresume = "last"}), LK_ERR_INVALID,
              "overwrite and autoresume exclude each other");
    lkt_fails(train((job){.overwrite = true}), LK_ERR_INVALID, "overwrite: there is no logdir");
}

/* ---- Two at once ---- */

static lk_status wait_for_word(lk_callback *callback, lk_runner *runner)
{
    int *pipes = callback->context;
    char word = 'r';
    (void)runner;
    if (write(pipes[1], &word, 1) != 1) return LK_ERR_IO;
    for (;;) pause();
    return LK_OK;
}

static pid_t start_run_that_waits(const char *logdir, int *pipes)
{
    static const lk_callback_ops ops = {LK_SIZE(lk_callback_ops), .name = "Wait",
                                        .on_epoch_start = wait_for_word};
    char word;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    if (child == 0) {
        train((job){.logdir = logdir, .callback = lk_callback_create(&ops, pipes, LK_ORDER_EXTERNAL)});
        _exit(1);
    }
    assert_int_equal(read(pipes[0], &word, 1), 1);
    return child;
}

static void test_a_callbacks_own_logdir_is_held_too(void **state)
{
    (void)state;
    int pipes[2];
    char logdir[1024];
    snprintf(logdir, sizeof logdir, "%s/logs", lkt_scratch_folder("logdir_callback"));
    lkt_ok(train((job){.callback = lk_checkpoint_callback(.logdir = logdir)}));
    lkt_ok(train((job){.callback = lk_checkpoint_callback(.logdir = logdir)}));
    assert_true(lkt_exists(lkt_path(logdir, "../logs.1/checkpoints/model.best.safetensors")));
    assert_true(has(logdir, "checkpoints/model.best.safetensors") && !has(logdir, ".lock"));
    pid_t child = start_run_that_waits(logdir, pipes);
    lkt_fails(train((job){.callback = lk_checkpoint_callback(.logdir = logdir)}), LK_ERR_INVALID,
              "is writing there");
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(pipes[0]);
    close(pipes[1]);
}

static void test_a_running_run_is_not_disturbed(void **state)
{
    (void)state;
    int pipes[2];
    char logdir[1024], who[64];
    snprintf(logdir, sizeof logdir, "%s/logs", lkt_scratch_folder("logdir_running"));
    pid_t child = start_run_that_waits(logdir, pipes);
    snprintf(who, sizeof who, "process %ld on ", (long)child);
    lkt_fails(train((job){.logdir = logdir}), LK_ERR_INVALID, who);
    lkt_contains(lk_error(), "is writing there: wait for it, or choose another logdir");
    lkt_fails(train((job){.logdir = logdir, .overwrite = true}), LK_ERR_INVALID, who);
    lkt_fails(train((job){.logdir = logdir, .autoresume = "last"}), LK_ERR_INVALID, who);
    /* A process that is dead holds nothing. */
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    lkt_ok(train((job){.logdir = logdir}));
    assert_true(has(logdir, "checkpoints/model.best.safetensors") && !has(logdir, ".lock"));
    close(pipes[0]);
    close(pipes[1]);
}

/* ---- Which numbers count ---- */

static void test_other_numbers_are_told(void **state)
{
    (void)state;
    char logdir[1024], last[1100];
    snprintf(logdir, sizeof logdir, "%s/logs", lkt_scratch_folder("logdir_terms"));
    snprintf(last, sizeof last, "%s/checkpoints/runner.last.safetensors", logdir);
    lkt_ok(train((job){.logdir = logdir, .epochs = 1}));
    lkt_ok(
        train((job){.logdir = logdir, .epochs = 2, .resume = last, .lr = 0.5, .seed = 6, .batch_size = 4}));
    char *text = lkt_read(lkt_path(logdir, "log.txt"));
    static const char *const lines[] = {
        "\nresume: lr 0.5 is not taken: the run goes on as it was begun, with 0.1\n",
        "\nresume: seed 6 is not taken: the run goes on as it was begun, with 5\n",
        "\nresume: batch_size of train 4 is taken from here on: the run was begun with 8\n",
        "\nresume: num_epochs 2 is taken from here on: the run was begun with 1\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) lkt_contains(text, lines[i]);
    assert_null(strstr(text, "batch_size of valid"));
    free(text);
    assert_true(lkt_csv(logdir, "train", 2, "lr") == 0.1);
    lkt_fails(
        train((job){
            .logdir = logdir, .epochs = 3, .resume = last, .batch_size = 4, .scheduler = lk_step_lr(2)}),
        LK_ERR_INVALID, "scheduler: the checkpoint was written with none, this run has StepLR");
}

/* ---- The list of checkpoints ---- */

/* Points whose labels are all wrong: a model that is as good as before scores far worse on them. */
static lk_dataset *shifted_points(void)
{
    enum { COUNT = 24 };
    lk_dataset *points = lkt_points(COUNT, 2);
    lk_tensor *features = lk_tensor_create(LK_F32, LK_SHAPE(COUNT, LKT_FEATURES));
    lk_tensor *targets = lk_tensor_create(LK_I64, LK_SHAPE(COUNT));
    int64_t indices[COUNT], *labels = targets->data;
    for (int i = 0; i < COUNT; i++) indices[i] = i;
    lkt_ok(lk_dataset_gather(points, NULL, indices, COUNT, (void *[]){features->data, labels}));
    for (int i = 0; i < COUNT; i++) labels[i] = (labels[i] + 1) % LKT_CLASSES;
    lk_dataset_free(points);
    return lk_tensor_dataset({"features", features}, {"targets", targets});
}

static void test_a_damaged_list_is_made_again(void **state)
{
    (void)state;
    static const char *const damages[] = {
        "head -c 40 checkpoints/model.storage.json > x && mv x checkpoints/model.storage.json",
        ": > checkpoints/model.storage.json",
        "echo '{\"storage\": [{\"logpath\": 3}]}' > checkpoints/model.storage.json",
        "rm checkpoints/model.storage.json",
    };
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        char logdir[1024], name[40], best[128];
        snprintf(name, sizeof name, "logdir_damaged%zu", i);
        snprintf(logdir, sizeof logdir, "%s/logs", lkt_scratch_folder(name));
        lkt_ok(train((job){.logdir = logdir, .epochs = 2}));
        lk_state_dict *dict = lk_load_safetensors(lkt_path(logdir, "checkpoints/model.best.safetensors"));
        lkt_not_null(dict);
        lkt_ok(lk_weights_hash(dict, best));
        lk_state_dict_free(dict);
        lkt_shell_in(logdir, "%s", damages[i]);
        /* An epoch that scores worse must not become the best. */
        lk_runner *runner = lk_supervised_runner();
        lkt_ok(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                        .optimizer = lk_sgd(.lr = 0.1),
                        .loaders = lk_loaders({"train", lk_loader(lkt_points(40, 1), .batch_size = 8)},
                                              {"valid", lk_loader(shifted_points(), .batch_size = 8)}),
                        .num_epochs = 3, .logdir = logdir, .valid_loader = "valid", .autoresume = "last",
                        .device = "cpu"));
        lk_runner_free(runner);
        char hash[128];
        dict = lk_load_safetensors(lkt_path(logdir, "checkpoints/model.best.safetensors"));
        lkt_not_null(dict);
        lkt_ok(lk_weights_hash(dict, hash));
        lk_state_dict_free(dict);
        assert_string_equal(hash, best);
        char *text = lkt_read(lkt_path(logdir, "log.txt"));
        lkt_contains(text, "rebuilt from 1 checkpoint\n");
        free(text);
        text = lkt_read(lkt_path(logdir, "checkpoints/model.storage.json"));
        lkt_contains(text, "model.0002.safetensors");
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_earlier_run_is_set_aside),
        cmocka_unit_test(test_overwrite_and_resume_stay_in_place),
        cmocka_unit_test(test_a_running_run_is_not_disturbed),
        cmocka_unit_test(test_a_callbacks_own_logdir_is_held_too),
        cmocka_unit_test(test_other_numbers_are_told),
        cmocka_unit_test(test_a_damaged_list_is_made_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
