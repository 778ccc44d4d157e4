/* A run that was stopped and resumed is the run that was not: the same bits in weights, logs and checkpoints.
 */
#define _GNU_SOURCE
#include "case_resume.h"

#include "base/atomic_file.h"
#include "base/status.h"

#include <lockstep/launch.h>

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char whole_folder[1024], folder[1024];

static const char *fresh(char *text, const char *name)
{
    snprintf(text, sizeof whole_folder, "%s", lkt_scratch_folder(name));
    return text;
}

/* The uninterrupted run of these options; the usual one is made once. */
static lkt_run_options whole(lkt_run_options like)
{
    static char usual_folder[sizeof whole_folder];
    static lkt_run_options usual;
    bool is_usual = !like.plateau && !like.swa && !like.nproc && !like.restarts;
    if (is_usual && usual.logdir) return usual;
    lkt_run_options options = {
        .plateau = like.plateau, .swa = like.swa, .nproc = like.nproc, .restarts = like.restarts};
    options.logdir =
        is_usual ? fresh(usual_folder, "train_resume_usual") : fresh(whole_folder, "train_resume_whole");
    lkt_ok(lkt_whole_run(&options));
    if (is_usual) usual = options;
    return options;
}

static void stop_and_go_on(lkt_run_options first)
{
    lkt_run_options expected = whole(first);
    first.logdir = fresh(folder, "train_resume_stopped");
    lkt_fails(lkt_whole_run(&first), LK_ERR_STOPPED, "stopped by");
    lkt_run_options second = {.logdir = folder,
                              .autoresume = "last",
                              .plateau = first.plateau,
                              .swa = first.swa,
                              .restarts = first.restarts,
                              .nproc = first.nproc};
    lkt_ok(lkt_whole_run(&second));
    lkt_same_runs(&second, &expected);
}

static void stopped_inside_an_epoch(void **state)
{
    (void)state;
    stop_and_go_on((lkt_run_options){.stop_batch = 17});
    stop_and_go_on((lkt_run_options){.stop_batch = 1, .signal = SIGUSR1});
    stop_and_go_on((lkt_run_options){.stop_batch = LKT_RUN_BATCHES * LKT_RUN_EPOCHS - 1, .signal = SIGINT});
}

static void stopped_at_the_end_of_a_loader(void **state)
{
    (void)state;
    stop_and_go_on((lkt_run_options){.stop_batch = 2 * LKT_RUN_BATCHES});
}

static void stopped_in_the_valid_loader(void **state)
{
    (void)state;
    stop_and_go_on((lkt_run_options){.stop_valid_epoch = 3});
}

static void with_other_schedules_and_averages(void **state)
{
    (void)state;
    stop_and_go_on((lkt_run_options){.stop_batch = 40, .plateau = true, .swa = true});
    stop_and_go_on((lkt_run_options){.stop_valid_epoch = 4, .swa = true});
}

/* Twelve batches in groups of five: two are left over, and stay for the next epoch's first group. */
static void groups_that_begin_anew_in_each_epoch(void **state)
{
    (void)state;
    stop_and_go_on((lkt_run_options){.stop_batch = 4, .restarts = true});
    stop_and_go_on((lkt_run_options){.stop_batch = LKT_RUN_BATCHES - 1, .restarts = true});
    stop_and_go_on((lkt_run_options){.stop_batch = LKT_RUN_BATCHES, .restarts = true});
    stop_and_go_on((lkt_run_options){.stop_batch = LKT_RUN_BATCHES + 2, .restarts = true});
    stop_and_go_on((lkt_run_options){.stop_valid_epoch = 2, .restarts = true});
    /* They are not those that go on from epoch to epoch. */
    assert_string_not_equal(whole((lkt_run_options){.restarts = true}).hash,
                            whole((lkt_run_options){0}).hash);
}

/* The metrics of one's own are in the logs that are compared. */
static void ones_own_metrics_are_logged(void **state)
{
    (void)state;
    static const char *const names[] = {"own_seen",  "own_sum",   "own_highest",  "own_lowest",
                                        "own_order", "own_batch", "own_batch/std"};
    lkt_run_options run = whole((lkt_run_options){0});
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_true(isfinite(lkt_csv(run.logdir, "train", LKT_RUN_EPOCHS, names[i])));
    assert_true(lkt_csv(run.logdir, "train", 3, "own_seen") == LKT_RUN_BATCHES * 8);
    assert_true(lkt_csv(run.logdir, "valid", 3, "own_seen") == 40);
}

/* Each rank has seen batches of its own: its share of the metrics and of the accumulated gradients. */
static void several_ranks_go_on_together(void **state)
{
    (void)state;
    lkt_run_options expected = whole((lkt_run_options){.nproc = 3});
    lkt_run_options run = {
        .logdir = fresh(folder, "train_resume_ranks"), .nproc = 3, .save_every_batches = 2};
    run.fail_batch = 7; /* of twelve batches of eight, each of three ranks takes four an epoch */
    lkt_fails(lkt_whole_run(&run), LK_ERR_INVALID, "a failure of the test's own");
    run.fail_batch = 0;
    run.autoresume = "last";
    lkt_ok(lkt_whole_run(&run));
    lkt_same_runs(&run, &expected);
}

static void stopped_twice(void **state)
{
    (void)state;
    lkt_run_options expected = whole((lkt_run_options){0});
    lkt_run_options run = {.logdir = fresh(folder, "train_resume_twice"), .stop_batch = 5};
    lkt_fails(lkt_whole_run(&run), LK_ERR_STOPPED, "epoch 1, after batch 5");
    run.autoresume = "last";
    run.stop_batch = 31;
    lkt_fails(lkt_whole_run(&run), LK_ERR_STOPPED, "epoch 3, after batch 7");
    run.stop_batch = 0;
    run.stop_valid_epoch = 3;
    lkt_fails(lkt_whole_run(&run), LK_ERR_STOPPED, "epoch 3, after batch 1");
    run.stop_valid_epoch = 0;
    lkt_ok(lkt_whole_run(&run));
    lkt_same_runs(&run, &expected);
}

static void ended_after_an_epoch_and_prolonged(void **state)
{
    (void)state;
    lkt_run_options expected = whole((lkt_run_options){0});
    lkt_run_options run = {.logdir = fresh(folder, "train_resume_longer"), .num_epochs = 2};
    lkt_ok(lkt_whole_run(&run));
    run.num_epochs = 0;
    run.resume = lkt_path(folder, "checkpoints/runner.last.safetensors");
    lkt_ok(lkt_whole_run(&run));
    lkt_same_runs(&run, &expected);
}

/* What is saved inside an epoch, while the run goes on, is a place to go on from too: here the run fails
 * afterwards, and nothing is saved at that moment. */
static void saved_inside_an_epoch(void **state)
{
    (void)state;
    lkt_run_options expected = whole((lkt_run_options){0});
    lkt_run_options run = {.logdir = fresh(folder, "train_resume_saved"), .save_every_batches = 7};
    run.fail_batch = 18; /* the place kept is batch 14, the second of epoch 2 */
    lkt_fails(lkt_whole_run(&run), LK_ERR_INVALID, "a failure of the test's own");
    run.fail_batch = 0;
    run.autoresume = "last";
    lkt_ok(lkt_whole_run(&run));
    lkt_same_runs(&run, &expected);
}

/* What was logged up to the place that was kept is on the disk as that is. */
static void killed_inside_an_epoch(void **state)
{
    (void)state;
    int status;
    lkt_run_options expected = whole((lkt_run_options){0});
    lkt_run_options run = {.logdir = fresh(folder, "train_resume_killed"),
                           .save_every_batches = 7,
                           .stop_batch = 18,
                           .signal = SIGKILL};
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(lkt_whole_run(&run));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    run = (lkt_run_options){.logdir = folder, .autoresume = "last"};
    lkt_ok(lkt_whole_run(&run));
    lkt_same_runs(&run, &expected);
}

static void a_finished_run_has_nothing_left_to_do(void **state)
{
    (void)state;
    lkt_run_options expected = whole((lkt_run_options){0});
    lkt_run_options again = {.logdir = expected.logdir, .autoresume = "last"};
    lkt_ok(lkt_whole_run(&again));
    assert_string_equal(again.hash, expected.hash);
    assert_int_equal(lkt_csv_rows(again.logdir, "train"), LKT_RUN_EPOCHS);
}

static void autoresume_without_a_checkpoint_starts_afresh(void **state)
{
    (void)state;
    lkt_run_options expected = whole((lkt_run_options){0});
    lkt_run_options run = {.logdir = fresh(folder, "train_resume_fresh"), .autoresume = "last"};
    lkt_ok(lkt_whole_run(&run));
    lkt_same_runs(&run, &expected);
}

static void wrong_files_are_refused(void **state)
{
    (void)state;
    lkt_run_options done = whole((lkt_run_options){0});
    lkt_run_options run = {.logdir = fresh(folder, "train_resume_wrong")};
    run.resume = lkt_path(done.logdir, "checkpoints/model.best.safetensors");
    lkt_fails(lkt_whole_run(&run), LK_ERR_FORMAT, "weights alone");
    run.resume = lkt_path(done.logdir, "checkpoints/none.safetensors");
    assert_int_not_equal(lkt_whole_run(&run), LK_OK);
    lkt_contains(lk_error(), "none.safetensors");
    run.resume = lkt_path(done.logdir, "csv_logger/train.csv");
    assert_int_not_equal(lkt_whole_run(&run), LK_OK);
    lkt_contains(lk_error(), "train.csv");
}

/* Before a batch is trained. */
static void a_log_of_another_kind_is_refused(void **state)
{
    (void)state;
    lkt_run_options run = {.logdir = fresh(folder, "train_resume_log"), .num_epochs = 2};
    lkt_ok(lkt_whole_run(&run));
    lkt_ok(lki_write_file_atomic(lkt_path(folder, "csv_logger/valid.csv"), "time,loss\n", 10));
    run = (lkt_run_options){.logdir = folder, .autoresume = "last", .fail_batch = 25};
    lkt_fails(lkt_whole_run(&run), LK_ERR_FORMAT, "csv_logger/valid.csv: cannot be continued");
    unlink(lkt_path(folder, "csv_logger/valid.csv"));
    run.fail_batch = 0;
    lkt_ok(lkt_whole_run(&run));
}

/* The place in a pass is a number of batches. */
static void another_batch_size_waits_for_the_next_epoch(void **state)
{
    (void)state;
    lkt_run_options run = {.logdir = fresh(folder, "train_resume_batch"), .stop_batch = 17};
    lkt_fails(lkt_whole_run(&run), LK_ERR_STOPPED, "epoch 2, after batch 5");
    run = (lkt_run_options){.logdir = folder, .autoresume = "last", .batch_size = 4};
    lkt_fails(lkt_whole_run(&run), LK_ERR_INVALID,
              "stopped in the middle of epoch 2 with batch size 8 and cannot continue it with 4");
    lkt_contains(lk_error(), "num_epochs 2");
    run.batch_size = 0;
    run.num_epochs = 2;
    lkt_ok(lkt_whole_run(&run));
    run.batch_size = 4;
    run.num_epochs = 3;
    lkt_ok(lkt_whole_run(&run));
    assert_int_equal(lkt_csv_rows(folder, "train"), 3);
}

static void stopped_inside_an_epoch_that_is_not_wanted(void **state)
{
    (void)state;
    lkt_run_options expected = whole((lkt_run_options){0});
    lkt_run_options run = {.logdir = fresh(folder, "train_resume_past"), .stop_batch = 17};
    lkt_fails(lkt_whole_run(&run), LK_ERR_STOPPED, "epoch 2, after batch 5");
    run = (lkt_run_options){.logdir = folder, .autoresume = "last", .num_epochs = 1};
    lkt_ok(lkt_whole_run(&run));
    assert_int_equal(lkt_csv_rows(folder, "train"), 1);
    run.num_epochs = 0;
    lkt_ok(lkt_whole_run(&run)); /* the place is still there */
    lkt_same_runs(&run, &expected);
}

/* ---- Signals leave nothing behind ---- */

static volatile int heard;
static void hear(int number)
{
    heard = number;
}

static void handlers_come_back(void **state)
{
    (void)state;
    struct sigaction before = {.sa_handler = hear}, after;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, usual = {.sa_handler = SIG_DFL};
    sigaction(SIGTERM, &before, NULL);
    sigaction(SIGUSR1, &ignore, NULL);
    lkt_run_options run = {
        .logdir = fresh(folder, "train_resume_signal"), .stop_batch = 3, .signal = SIGUSR1};
    lkt_ok(lkt_whole_run(&run)); /* the program ignores it, so the run does */
    run = (lkt_run_options){.logdir = fresh(folder, "train_resume_signal"), .stop_batch = 3};
    lkt_fails(lkt_whole_run(&run), LK_ERR_STOPPED, "epoch 1, after batch 3");
    assert_int_equal(heard, 0);
    raise(SIGTERM);
    assert_int_equal(heard, SIGTERM);
    sigaction(SIGTERM, &usual, &after);
    assert_ptr_equal(after.sa_handler, hear);
    sigaction(SIGUSR1, &usual, NULL);
}

/* ---- Signals that come late ---- */

enum { LATE_BATCHES = 11 };

/* The last batch of the run, or what follows it. */
static lk_status ask_at_the_last_batch(lk_callback *callback, lk_runner *runner)
{
    const int *rank = callback->context;
    if (runner->rank == *rank && runner->loader_batch_step == runner->loader_batch_len) raise(SIGTERM);
    return LK_OK;
}

static lk_status ask_after_all(lk_callback *callback, lk_runner *runner)
{
    const int *rank = callback->context;
    if (runner->rank == *rank) raise(SIGTERM);
    return LK_OK;
}

static lk_status short_run(lk_callback *callback, int nproc)
{
    lk_runner *runner = lk_supervised_runner();
    lk_status status = lk_train(
        runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(), .optimizer = lk_adam(),
        .loaders = lk_loaders(
            {"train", lk_loader(lkt_points(LATE_BATCHES * 8 * (nproc ? nproc : 2), 1), .batch_size = 8)}),
        .callbacks = lk_callbacks(callback), .nproc = nproc);
    lk_runner_free(runner);
    return status;
}

/* The program's own handler is called, in the end, on every rank. */
static lk_status hear_of_it_on_both_ranks(void *context)
{
    LKI_TRY(short_run(lk_on(experiment_end, ask_after_all, context), 0));
    return heard == SIGTERM ? LK_OK : lki_fail(LK_ERR_INVALID, "rank %d has not heard of it", lk_rank());
}

static void a_signal_near_the_end_is_not_lost(void **state)
{
    (void)state;
    struct sigaction before = {.sa_handler = hear}, usual = {.sa_handler = SIG_DFL};
    static int ranks[] = {0, 1};
    sigaction(SIGTERM, &before, NULL);
    for (int nproc = 1; nproc <= 2; nproc++) {
        heard = 0;
        lkt_fails(short_run(lk_on(batch_end, ask_at_the_last_batch, &ranks[nproc - 1]), nproc),
                  LK_ERR_STOPPED, "after batch 11");
        assert_null(strstr(lk_error(), "rank 1")); /* nobody has failed */
        assert_int_equal(heard, 0);
        lkt_ok(short_run(lk_on(experiment_end, ask_after_all, &ranks[nproc - 1]), nproc));
        assert_int_equal(heard, SIGTERM);
    }
    for (int rank = 0; rank < 2; rank++) {
        heard = 0;
        lkt_ok(lk_distributed_run(hear_of_it_on_both_ranks, &ranks[rank], .nproc = 2));
    }
    sigaction(SIGTERM, &usual, NULL);
}

/* A program without a handler ends, as at any other time. */
static void a_late_signal_ends_the_program(void **state)
{
    (void)state;
    for (int nproc = 1; nproc <= 2; nproc++) {
        static int rank_0;
        int status;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            short_run(lk_on(experiment_end, ask_after_all, &rank_0), nproc);
            _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    }
}

/* A scheduler's word that time is nearly up: the program goes on to what comes after, but no run begins. */
static lk_status time_is_nearly_up(lk_callback *callback, lk_runner *runner)
{
    (void)callback, (void)runner;
    return raise(SIGUSR1) ? LK_ERR_INVALID : LK_OK;
}

static lk_status look_on(lk_callback *callback, lk_runner *runner)
{
    (void)callback, (void)runner;
    return LK_OK;
}

static void a_late_warning_is_for_the_next_run(void **state)
{
    (void)state;
    for (int nproc = 1; nproc <= 2; nproc++) {
        lkt_ok(short_run(lk_on(experiment_end, time_is_nearly_up, NULL), nproc));
        lkt_fails(short_run(lk_on(batch_end, look_on, NULL), nproc), LK_ERR_STOPPED, "stopped by a signal");
        lkt_ok(short_run(lk_on(batch_end, look_on, NULL), nproc));
    }
}

static lk_status run_again(lk_runner *runner, lk_callback *callback, int nproc, const char *logdir,
                           const char *resume)
{
    bool is_first = !runner->model;
    return lk_train(runner, .model = is_first ? lkt_linear_model() : NULL,
                    .criterion = is_first ? lk_cross_entropy_loss() : NULL,
                    .optimizer = is_first ? lk_adam(.lr = 0.05) : NULL,
                    .loaders = lk_loaders({"train", lk_loader(lkt_points(48, 1), .batch_size = 8)}),
                    .callbacks = lk_callbacks(callback), .nproc = nproc, .logdir = logdir, .resume = resume,
                    .seed = 5, .device = "cpu", .thread_count = 1);
}

/* A run that stops before its first batch has the optimizer's state from the one before it, of ranks here. */
static void what_waits_for_a_step_is_saved(void **state)
{
    (void)state;
    char logdir[1024], whole[65], saved_hash[65];
    for (int stops = 0; stops < 2; stops++) {
        lk_runner *runner = lk_supervised_runner();
        lk_callback_slot at_the_end = stops ? time_is_nearly_up : look_on;
        snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_resume_waits"));
        lkt_ok(run_again(runner, lk_on(experiment_end, at_the_end, NULL), 2, NULL, NULL));
        lk_optimizer_set_lr(runner->optimizer, 0, 0.02);
        lk_status status = run_again(runner, lk_on(batch_end, look_on, NULL), 1, logdir, NULL);
        assert_int_equal(status, stops ? LK_ERR_STOPPED : LK_OK);
        if (!stops) strcpy(whole, lkt_hash(runner->model));
        lk_runner_free(runner);
    }
    const char *last = lkt_path(logdir, "checkpoints/runner.last.safetensors");
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(run_again(runner, lk_on(batch_end, look_on, NULL), 1, NULL, last));
    strcpy(saved_hash, lkt_hash(runner->model));
    assert_string_equal(saved_hash, whole);
    lk_runner_free(runner);
    lk_state_dict *saved = lk_load_safetensors(last);
    lkt_not_null(saved);
    assert_string_equal(lk_state_dict_get_string(saved, "optimizer.rule"), "Adam");
    lk_state_dict_free(saved);
}

/* ---- Rank 0 saves for all ---- */

static _Atomic int *saved; /* in memory that the ranks share */

static lk_status save_slowly(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    if (runner->rank != 0) return LK_OK;
    usleep(300000);
    atomic_store(saved, 1);
    return LK_OK;
}

static lk_status ask_now(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    if (runner->rank == 1 && runner->batch_step == 2) raise(SIGTERM);
    return LK_OK;
}

static lk_status stop_and_look(void *context)
{
    static const lk_callback_ops ops = {LK_SIZE(lk_callback_ops), .name = "slow", .on_batch_end = ask_now,
                                        .on_exception = save_slowly};
    (void)context;
    lk_status status = short_run(lk_callback_create(&ops, NULL, 100), 0);
    if (status != LK_ERR_STOPPED) return lki_fail(LK_ERR_INVALID, "not stopped: %s", lk_error());
    return atomic_load(saved) ? LK_OK : lki_fail(LK_ERR_INVALID, "rank %d left too soon", lk_rank());
}

/* Whatever the ranks speak: mpirun ends rank 0 when another rank ends before it. */
static void nobody_leaves_before_rank_0_has_saved(void **state)
{
    (void)state;
    saved = mmap(NULL, sizeof *saved, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(saved != MAP_FAILED);
    lkt_ok(lk_distributed_run(stop_and_look, NULL, .nproc = 2));
    munmap(saved, sizeof *saved);
}

/* Ctrl-C once asks; twice it is meant. */
static lk_status insist(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    (void)runner;
    raise(SIGINT);
    raise(SIGINT);
    return LK_OK;
}

static void a_second_interrupt_ends_the_process(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        lk_runner *runner = lk_supervised_runner();
        lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                 .optimizer = lk_adam(),
                 .loaders = lk_loaders({"train", lk_loader(lkt_points(16, 1), .batch_size = 8)}),
                 .callbacks = lk_callbacks(lk_on(batch_start, insist, NULL)));
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
}

int main(void)
{
    signal(SIGINT, SIG_DFL); /* the background jobs of a shell ignore it, and a run respects that */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stopped_inside_an_epoch),
        cmocka_unit_test(stopped_at_the_end_of_a_loader),
        cmocka_unit_test(stopped_in_the_valid_loader),
        cmocka_unit_test(with_other_schedules_and_averages),
        cmocka_unit_test(groups_that_begin_anew_in_each_epoch),
        cmocka_unit_test(ones_own_metrics_are_logged),
        cmocka_unit_test(several_ranks_go_on_together),
        cmocka_unit_test(stopped_twice),
        cmocka_unit_test(ended_after_an_epoch_and_prolonged),
        cmocka_unit_test(saved_inside_an_epoch),
        cmocka_unit_test(killed_inside_an_epoch),
        cmocka_unit_test(a_finished_run_has_nothing_left_to_do),
        cmocka_unit_test(autoresume_without_a_checkpoint_starts_afresh),
        cmocka_unit_test(wrong_files_are_refused),
        cmocka_unit_test(a_log_of_another_kind_is_refused),
        cmocka_unit_test(another_batch_size_waits_for_the_next_epoch),
        cmocka_unit_test(stopped_inside_an_epoch_that_is_not_wanted),
        cmocka_unit_test(handlers_come_back),
        cmocka_unit_test(a_signal_near_the_end_is_not_lost),
        cmocka_unit_test(a_late_signal_ends_the_program),
        cmocka_unit_test(a_late_warning_is_for_the_next_run),
        cmocka_unit_test(what_waits_for_a_step_is_saved),
        cmocka_unit_test(nobody_leaves_before_rank_0_has_saved),
        cmocka_unit_test(a_second_interrupt_ends_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
