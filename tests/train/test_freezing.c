/* Parameters that are frozen and thawed while a runner trains, as schedules of fine-tuning do: between two
 * runs and by callbacks, on one rank and on two. */
#include "case.h"
#include "engines.h"

#include "base/status.h"

#include <math.h>

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
} job;

static void train(lk_runner *runner, job j)
{
    lk_callback *callbacks[] = {j.callback};
    bool is_first = !runner->model;
    lk_status status = lk_train(
        runner, .model = is_first ? trunk_and_head() : NULL,
        .criterion = is_first ? lk_cross_entropy_loss() : NULL,
        .optimizer = is_first ? lk_adam(.lr = RATE) : NULL,
        .loaders = lk_loaders(
            {"train", lk_loader(lkt_points(40, 1), .batch_size = j.ranks == 2 ? 4 : 8, .no_shuffle = true)},
            {"valid", lk_loader(lkt_points(8, 2), .batch_size = 4)}),
        .callbacks = {callbacks, j.callback != NULL}, .num_epochs = j.epochs, .nproc = j.ranks,
        .logdir = j.logdir, .resume = j.resume, .device = device(), .thread_count = 1);
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
    static const lk_callback_ops ops = {.name = "Look", .on_epoch_start = follow_diary, .on_batch_end = look};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(between_two_runs),
        cmocka_unit_test(layers_are_thawed),
        cmocka_unit_test(layers_are_frozen_and_thawed),
        cmocka_unit_test(any_batch_may_freeze),
        cmocka_unit_test(moments_outlive_the_frost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
