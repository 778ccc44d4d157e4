/* Parameters that are frozen and thawed while a runner trains, as schedules of fine-tuning do: between two
 * runs and by callbacks, on one rank and on two. */
#include "case.h"
#include "engines.h"

#include "base/status.h"

#include <math.h>
#include <signal.h>

enum { BATCHES = 5, EPOCHS = 4, TRUNK = LKT_FEATURES * 4 };

static const double RATE = 0.05;

static lk_module *trunk_and_head(void)
{
    lk_manual_seed(7);
    return lk_sequential(lk_linear(LKT_FEATURES, 4), lk_relu(), lk_linear(4, LKT_CLASSES));
}

static const char *device(void)
{
    return gpu_is_asked_for() ? "cuda" : "cpu";
}

static lk_status set_trunk(lk_module *model, bool trainable)
{
    lk_module_param(model, "0.weight")->trainable = trainable;
    lk_module_param(model, "0.bias")->trainable = trainable;
    return LK_OK;
}

/* Which epochs the trunk rests in: from, before. */
typedef struct schedule {
    int64_t first, end;
} schedule;

static lk_status follow(lk_callback *callback, lk_runner *runner)
{
    const schedule *s = callback->context;
    return set_trunk(runner->model, runner->epoch_step < s->first || runner->epoch_step >= s->end);
}

typedef struct job {
    int ranks, epochs;
    lk_callback *callback;
    const char *logdir, *resume;
    int accumulate;
    bool compress;
    int64_t stop_batch; /* 0: nobody stops it */
} job;

static lk_status stop_at(lk_callback *callback, lk_runner *runner)
{
    const int64_t *batch = callback->context;
    if (runner->batch_step == *batch && runner->is_train_loader && runner->is_master) raise(SIGTERM);
    return LK_OK;
}

static lk_status try_to_train(lk_runner *runner, job j)
{
    lk_callback *callbacks[] = {lk_optimizer_callback(.accumulation_steps = j.accumulate),
                                lk_on(batch_end, stop_at, &j.stop_batch), j.callback};
    bool is_first = !runner->model;
    return lk_train(
        runner, .model = is_first ? trunk_and_head() : NULL,
        .criterion = is_first ? lk_cross_entropy_loss() : NULL,
        .optimizer = is_first ? lk_adam(.lr = RATE) : NULL,
        .loaders = lk_loaders(
            {"train", lk_loader(lkt_points(40, 1), .batch_size = j.ranks == 2 ? 4 : 8, .no_shuffle = true)},
            {"valid", lk_loader(lkt_points(8, 2), .batch_size = 4)}),
        .callbacks = {callbacks, j.callback ? 3 : 2}, .num_epochs = j.epochs, .nproc = j.ranks,
        .logdir = j.logdir, .resume = j.resume, .device = device(), .compress_gradients = j.compress,
        .thread_count = 1);
}

static void train(lk_runner *runner, job j)
{
    lk_status status = try_to_train(runner, j);
    if (status) fail_msg("%d ranks: %s", j.ranks, lk_error());
}

static int most_ranks(void)
{
    return gpu_is_asked_for() ? 1 : 2;
}

/* A GPU may have the newer ones. */
static void read_weights(lk_runner *runner, double *trunk, double *head)
{
    if (runner->step) lkt_ok(lk_step_pull(runner->step));
    lkt_weights(runner->model, "0.weight", trunk, TRUNK);
    lkt_weights(runner->model, "2.weight", head, 4);
}

static bool trunk_moves(lk_runner *runner, job j)
{
    double before[TRUNK], after[TRUNK], head[4], moved[4];
    read_weights(runner, before, head);
    train(runner, j);
    read_weights(runner, after, moved);
    assert_memory_not_equal(head, moved, sizeof head);
    return memcmp(before, after, sizeof before) != 0;
}

static void between_two_runs(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= most_ranks(); ranks++) {
        lk_runner *runner = lk_supervised_runner();
        job j = {.ranks = ranks, .epochs = 1};
        train(runner, j);
        set_trunk(runner->model, false);
        assert_false(trunk_moves(runner, j));
        lk_module_set_trainable(runner->model, true);
        assert_true(trunk_moves(runner, j));
        lk_runner_free(runner);
    }
}

/* ---- Inside a run ---- */

typedef struct diary {
    schedule schedule;
    double before[TRUNK], largest[EPOCHS + 1]; /* how far a batch has moved the trunk, by epoch */
    double first_after;                        /* by the first batch after it has rested */
} diary;

static lk_status look(lk_callback *callback, lk_runner *runner)
{
    diary *d = callback->context;
    double now[TRUNK], largest = 0;
    if (!runner->is_train_loader) return LK_OK;
    lkt_ok(lk_step_pull(runner->step));
    lkt_weights(runner->model, "0.weight", now, TRUNK);
    for (int i = 0; i < TRUNK && runner->batch_step > 1; i++)
        largest = fmax(largest, fabs(now[i] - d->before[i]));
    memcpy(d->before, now, sizeof now);
    d->largest[runner->epoch_step] = fmax(d->largest[runner->epoch_step], largest);
    if (runner->epoch_step == d->schedule.end && runner->loader_batch_step == 1) d->first_after = largest;
    return LK_OK;
}

static lk_status follow_diary(lk_callback *callback, lk_runner *runner)
{
    diary *d = callback->context;
    return follow(&(lk_callback){.context = &d->schedule}, runner);
}

static void check_schedule(int ranks, schedule s, diary *d)
{
    static const lk_callback_ops ops = {LK_SIZE(lk_callback_ops), .name = "Look",
                                        .on_epoch_start = follow_diary, .on_batch_end = look};
    *d = (diary){.schedule = s};
    lk_runner *runner = lk_supervised_runner();
    train(
        runner,
        (job){.ranks = ranks, .epochs = EPOCHS, .callback = lk_callback_create(&ops, d, LK_ORDER_EXTERNAL)});
    for (int64_t epoch = 1; epoch <= EPOCHS; epoch++) {
        bool rests = epoch >= s.first && epoch < s.end;
        if ((d->largest[epoch] == 0) != rests)
            fail_msg("%d ranks, epoch %d: the trunk moved by %g", ranks, (int)epoch, d->largest[epoch]);
    }
    assert_int_equal(runner->batch_step, EPOCHS * BATCHES);
    lk_runner_free(runner);
}

/* Adam's first update of a parameter is its learning rate, however many the others have seen. */
static void layers_are_thawed(void **state)
{
    (void)state;
    diary d;
    for (int ranks = 1; ranks <= most_ranks(); ranks++) {
        check_schedule(ranks, (schedule){1, 3}, &d);
        lkt_close(d.first_after, RATE, RATE * 1e-3);
    }
}

static void layers_are_frozen_and_thawed(void **state)
{
    (void)state;
    diary d;
    for (int ranks = 1; ranks <= most_ranks(); ranks++) {
        check_schedule(ranks, (schedule){2, 4}, &d);
        check_schedule(ranks, (schedule){3, 9}, &d);
    }
}

/* In the middle of an epoch, by the field alone. */
static lk_status freeze_at_batch(lk_callback *callback, lk_runner *runner)
{
    double *at = callback->context;
    if (runner->batch_step != 3) return LK_OK;
    lkt_ok(lk_step_pull(runner->step));
    lkt_weights(runner->model, "0.weight", at, TRUNK);
    return set_trunk(runner->model, false);
}

static void any_batch_may_freeze(void **state)
{
    (void)state;
    double at[TRUNK], end[TRUNK];
    for (int ranks = 1; ranks <= most_ranks(); ranks++) {
        lk_runner *runner = lk_supervised_runner();
        train(runner, (job){.ranks = ranks, .epochs = 1, .callback = lk_on(batch_end, freeze_at_batch, at)});
        lkt_weights(runner->model, "0.weight", end, TRUNK);
        assert_memory_equal(at, end, sizeof at);
        lk_runner_free(runner);
    }
}

/* ---- What the optimizer has learned of them stays ---- */

static lk_state_dict *last_of(const char *logdir)
{
    lk_state_dict *state = lk_load_safetensors(lkt_path(logdir, "checkpoints/runner.last.safetensors"));
    lkt_not_null(state);
    return state;
}

static void train_to(int ranks, int epochs, const char *logdir, const char *resume, char hash[65])
{
    static const schedule rests = {2, 4};
    lk_runner *runner = lk_supervised_runner();
    train(runner, (job){.ranks = ranks,
                        .epochs = epochs,
                        .callback = lk_on(epoch_start, follow, (void *)&rests),
                        .logdir = logdir,
                        .resume = resume});
    strcpy(hash, lkt_hash(runner->model));
    lk_runner_free(runner);
}

static void moments_outlive_the_frost(void **state)
{
    (void)state;
    char logdir[1024], whole[65], resumed[65];
    int64_t seen, made;
    for (int ranks = 1; ranks <= most_ranks(); ranks++) {
        train_to(ranks, EPOCHS, NULL, NULL, whole);
        for (int stop = 1; stop < EPOCHS; stop++) {
            snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_freezing"));
            train_to(ranks, stop, logdir, NULL, resumed);
            lk_state_dict *last = last_of(logdir);
            assert_true(lk_state_dict_has(last, "optimizer.exp_avg.0.weight"));
            if (stop > 1) {
                lkt_ok(lk_state_dict_get_i64(last, "optimizer.updates.0.weight", &seen));
                lkt_ok(lk_state_dict_get_i64(last, "optimizer.step", &made));
                assert_int_equal(seen, BATCHES);
                assert_int_equal(made, stop * BATCHES);
            }
            lk_state_dict_free(last);
            train_to(ranks, EPOCHS, logdir, lkt_path(logdir, "checkpoints/runner.last.safetensors"), resumed);
            assert_string_equal(resumed, whole);
            last = last_of(logdir);
            lkt_ok(lk_state_dict_get_i64(last, "optimizer.updates.0.weight", &seen));
            assert_int_equal(seen, 2 * BATCHES);
            lk_state_dict_free(last);
        }
    }
}

/* ---- Resuming ---- */

static const char LAST[] = "checkpoints/runner.last.safetensors";

/* A program that trains, the same one when it goes on. */
typedef struct program {
    const char *name;
    lk_callback_slot on_epoch_start, on_epoch_end;
    schedule schedule;
    bool begins_frozen; /* before lk_train */
} program;

static lk_runner *runner_of(const program *p, job *j)
{
    lk_callback_ops *ops = test_malloc(sizeof *ops);
    *ops = (lk_callback_ops){
        .name = "Program", .on_epoch_start = p->on_epoch_start, .on_epoch_end = p->on_epoch_end};
    lk_runner *runner = lk_supervised_runner();
    runner->model = trunk_and_head();
    runner->criterion = lk_cross_entropy_loss();
    runner->optimizer = lk_adam(.lr = RATE);
    if (p->begins_frozen) set_trunk(runner->model, false);
    j->callback = lk_callback_create(ops, (void *)&p->schedule, LK_ORDER_EXTERNAL);
    runner->context = ops;
    return runner;
}

static void end_program(lk_runner *runner, char hash[65])
{
    void *ops = runner->context;
    if (hash) strcpy(hash, lkt_hash(runner->model));
    lk_runner_free(runner);
    test_free(ops);
}

static void run_program(const program *p, job j, char hash[65])
{
    lk_runner *runner = runner_of(p, &j);
    lk_status status = try_to_train(runner, j);
    if (status && !(j.stop_batch && status == LK_ERR_STOPPED))
        fail_msg("%s, %d ranks, every %d: %s", p->name, j.ranks, j.accumulate, lk_error());
    end_program(runner, hash);
}

/* Stopped behind this many batches, it ends with the bits of the run that was not. */
static void check_resumed(const program *p, job j, int64_t batches)
{
    char whole[65], resumed[65], logdir[1024];
    j.epochs = EPOCHS;
    run_program(p, j, whole);
    snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_freezing_resumed"));
    job first = j;
    first.logdir = logdir;
    if (batches % BATCHES == 0)
        first.epochs = (int)(batches / BATCHES);
    else
        first.stop_batch = batches;
    run_program(p, first, NULL);
    j.resume = lkt_path(logdir, "%s", LAST);
    run_program(p, j, resumed);
    if (strcmp(whole, resumed) != 0)
        fail_msg("%s: %d ranks, every %d, stopped at %d: other weights", p->name, j.ranks, j.accumulate,
                 (int)batches);
}

static lk_status thaw_in_epoch_3(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    return runner->epoch_step == 3 ? set_trunk(runner->model, true) : LK_OK;
}

static lk_status freeze_behind_epoch_2(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    return runner->epoch_step == 2 ? set_trunk(runner->model, false) : LK_OK;
}

static const program programs[] = {
    {"thawed", .on_epoch_start = follow, .schedule = {1, 3}},
    {"frozen for a while", .on_epoch_start = follow, .schedule = {2, 4}},
    {"thawed once", .on_epoch_start = thaw_in_epoch_3, .begins_frozen = true},
    {"frozen once", .on_epoch_end = freeze_behind_epoch_2},
    {"fine-tuned", .begins_frozen = true},
};

static void resumed_runs_know_what_is_frozen(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        for (int64_t batches = 3; batches < EPOCHS * BATCHES; batches++)
            if (batches % BATCHES == 0 || batches % BATCHES == 3)
                check_resumed(&programs[i], (job){.ranks = 1}, batches);
}

static void resumed_runs_know_what_is_accumulated(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        for (int64_t batches = 5; batches < EPOCHS * BATCHES; batches += i ? 5 : 8)
            check_resumed(&programs[i], (job){.ranks = 1, .accumulate = 3}, batches);
}

/* Ranks look for signals where they all look: these stops are ends of epochs. */
static void resumed_ranks_know_it_too(void **state)
{
    (void)state;
    if (most_ranks() < 2) skip();
    for (int i = 0; i < 2; i++)
        for (int64_t batches = BATCHES; batches < EPOCHS * BATCHES; batches += BATCHES)
            for (int compress = 0; compress < 2; compress++)
                check_resumed(&programs[i], (job){.ranks = 2, .accumulate = 3, .compress = compress},
                              batches);
}

static void run_one_epoch(const program *p, const char *logdir)
{
    run_program(p, (job){.ranks = 1, .epochs = 1, .logdir = logdir}, NULL);
}

/* What a checkpoint says is frozen is so until a callback says otherwise. Weights alone say nothing of it. */
static void only_a_resumed_run_is_told(void **state)
{
    (void)state;
    char logdir[1024];
    const program frozen = {"frozen", .begins_frozen = true}, plain = {.name = "plain"};
    for (int weights = 0; weights < 2; weights++) {
        snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_freezing_told"));
        run_one_epoch(&frozen, logdir);
        job j = {.ranks = 1, .epochs = 2};
        lk_runner *runner = runner_of(&plain, &j);
        lk_callback_free(j.callback);
        j.callback = weights ? lk_checkpoint_callback(.resume_model = lkt_path(logdir, "%s", LAST)) : NULL;
        j.resume = weights ? NULL : lkt_path(logdir, "%s", LAST);
        assert_true(trunk_moves(runner, j) == (weights == 1));
        assert_true(lk_module_param(runner->model, "0.weight")->trainable == (weights == 1));
        end_program(runner, NULL);
    }
}

/* Files of runs that freeze nothing do not speak of it: whoever resumes them with a frozen trunk means it. */
static void a_plain_checkpoint_leaves_it_to_the_program(void **state)
{
    (void)state;
    char logdir[1024];
    const program frozen = {"frozen", .begins_frozen = true}, plain = {.name = "plain"};
    snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_freezing_plain"));
    run_one_epoch(&plain, logdir);
    lk_state_dict *last = last_of(logdir);
    for (int64_t i = 0; i < lk_state_dict_count(last); i++)
        assert_null(strstr(lk_state_dict_name(last, i), "trainable"));
    lk_state_dict_free(last);
    job j = {.ranks = 1, .epochs = 2, .resume = lkt_path(logdir, "%s", LAST)};
    lk_runner *runner = runner_of(&frozen, &j);
    double before[TRUNK], after[TRUNK];
    last = last_of(logdir);
    lk_tensor *saved = lk_state_dict_get(last, "model.0.weight");
    for (int i = 0; i < TRUNK; i++) before[i] = lk_tensor_get(saved, i);
    lk_state_dict_free(last);
    train(runner, j);
    lkt_weights(runner->model, "0.weight", after, TRUNK);
    assert_memory_equal(before, after, sizeof before);
    end_program(runner, NULL);
}

/* A copy of a file without the names that end so. */
static void leave_out(const char *path, const char *start, const char *end)
{
    lk_state_dict *all = lk_load_safetensors(path), *rest = lk_state_dict_create();
    lkt_not_null(all);
    for (int64_t i = 0; i < lk_state_dict_count(all); i++) {
        const char *name = lk_state_dict_name(all, i);
        size_t length = strlen(name);
        if (strncmp(name, start, strlen(start)) == 0 && length > strlen(end) &&
            strcmp(name + length - strlen(end), end) == 0)
            continue;
        lkt_ok(lk_state_dict_put(rest, name, lk_tensor_clone(lk_state_dict_tensor(all, i))));
    }
    lkt_ok(lk_save_safetensors(path, rest));
    lk_state_dict_free(all);
    lk_state_dict_free(rest);
}

/* Only what was frozen may be missing. */
static void moments_that_are_missing_are_an_error(void **state)
{
    (void)state;
    static const struct {
        bool frozen;
        const char *start, *end, *says;
    } cases[] = {{false, "optimizer.exp_avg.", "0.weight", "exp_avg"},
                 {false, "optimizer.exp_avg.", "2.bias", "exp_avg.2.bias"},
                 {true, "optimizer.exp_avg.", "2.bias", "exp_avg.2.bias"},
                 {true, "optimizer.exp_avg", "2.weight", "no state"}};
    char logdir[1024], path[1100];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        program p = {"missing", .begins_frozen = cases[i].frozen};
        snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_freezing_missing"));
        snprintf(path, sizeof path, "%s/%s", logdir, LAST);
        run_one_epoch(&p, logdir);
        leave_out(path, cases[i].start, cases[i].end);
        job j = {.ranks = 1, .epochs = 2, .resume = path};
        lk_runner *runner = runner_of(&p, &j);
        assert_int_not_equal(try_to_train(runner, j), LK_OK);
        lkt_contains(lk_error(), cases[i].says);
        end_program(runner, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(between_two_runs),
        cmocka_unit_test(layers_are_thawed),
        cmocka_unit_test(layers_are_frozen_and_thawed),
        cmocka_unit_test(any_batch_may_freeze),
        cmocka_unit_test(moments_outlive_the_frost),
        cmocka_unit_test(resumed_runs_know_what_is_frozen),
        cmocka_unit_test(resumed_runs_know_what_is_accumulated),
        cmocka_unit_test(resumed_ranks_know_it_too),
        cmocka_unit_test(only_a_resumed_run_is_told),
        cmocka_unit_test(a_plain_checkpoint_leaves_it_to_the_program),
        cmocka_unit_test(moments_that_are_missing_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
