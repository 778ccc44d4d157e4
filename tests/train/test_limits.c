/* Where a run ends (max_steps, max_minutes), how it divides its passes (valid_every), what it does not train
 * (freeze), and other batches per update as it goes on: stopped and resumed, on one rank and on two. */
#include "case.h"

#include "run/run.h"

#include <signal.h>

enum { SAMPLES = 40, BATCHES = 5, TRUNK = LKT_FEATURES * 4 };

typedef struct job {
    lk_train_options options;
    const char *schedule; /* accumulation_schedule */
    int accumulate;
    int64_t stop_batch; /* 0: nobody stops it */
    bool uses_sgd;
} job;

typedef struct outcome {
    char hash[80];
    int64_t batches, epochs;
} outcome;

static lk_module *trunk_and_head(void)
{
    lk_manual_seed(7);
    return lk_sequential(lk_linear(LKT_FEATURES, 4), lk_relu(), lk_linear(4, LKT_CLASSES));
}

static lk_status stop_at(lk_callback *callback, lk_runner *runner)
{
    const int64_t *batch = callback->context;
    if (runner->batch_step == *batch && runner->is_train_loader && runner->is_master) raise(SIGTERM);
    return LK_OK;
}

static lk_status try_job(job j, outcome *out)
{
    lk_runner *runner = lk_supervised_runner();
    lk_callback *callbacks[] = {
        lk_optimizer_callback(.accumulation_steps = j.accumulate, .accumulation_schedule = j.schedule),
        lk_on(batch_end, stop_at, &j.stop_batch)};
    lk_train_options options = j.options;
    int batch_size = options.nproc == 2 ? SAMPLES / BATCHES / 2 : SAMPLES / BATCHES;
    options.struct_size = sizeof options;
    options.model = trunk_and_head();
    options.criterion = lk_cross_entropy_loss();
    options.optimizer = j.uses_sgd ? lk_sgd(.lr = 0.05) : lk_adam(.lr = 0.05);
    options.loaders = lk_loaders(
        {"train", lk_loader(lkt_points(SAMPLES, 1), .batch_size = batch_size, .shuffle = true, .seed = 5)},
        {"valid", lk_loader(lkt_points(8, 2), .batch_size = 4)});
    options.callbacks = (lk_callback_list){callbacks, 2};
    options.device = "cpu";
    options.thread_count = 1;
    options.seed = 3;
    lk_status status = lk_train_with(runner, &options);
    if (status == LK_OK && out) {
        snprintf(out->hash, sizeof out->hash, "%s", lkt_hash(runner->model));
        out->batches = runner->batch_step;
        out->epochs = runner->epoch_step;
    }
    lk_runner_free(runner);
    return status;
}

static outcome run_job(job j)
{
    outcome out;
    lkt_ok(try_job(j, &out));
    return out;
}

static outcome epochs(int count, int nproc)
{
    return run_job((job){.options = {.num_epochs = count, .nproc = nproc}});
}

/* ---- max_steps ---- */

static void steps_end_a_run(void **state)
{
    (void)state;
    for (int nproc = 0; nproc <= 2; nproc += 2) {
        outcome whole = epochs(2, nproc);
        outcome ten = run_job((job){.options = {.max_steps = 2 * BATCHES, .nproc = nproc}});
        assert_string_equal(ten.hash, whole.hash);
        assert_int_equal(ten.batches, 2 * BATCHES);
        assert_int_equal(ten.epochs, 2);
        outcome seven = run_job((job){.options = {.max_steps = 7, .nproc = nproc}});
        assert_int_equal(seven.batches, 7);
        assert_int_equal(seven.epochs, 2);
        assert_string_not_equal(seven.hash, whole.hash);
    }
    outcome both = run_job((job){.options = {.max_steps = 7, .num_epochs = 1}});
    assert_int_equal(both.batches, BATCHES);
}

/* It goes on within the pass that it has left. */
static void more_steps_go_on_in_the_middle_of_a_pass(void **state)
{
    (void)state;
    for (int nproc = 0; nproc <= 2; nproc += 2) {
        const char *logdir = lkt_scratch_folder("train_limits_more");
        lk_train_options options = {.max_steps = 7, .nproc = nproc, .logdir = logdir, .autoresume = "last"};
        run_job((job){.options = options});
        assert_int_equal(lkt_csv_rows(logdir, "valid"), 2);
        run_job((job){.options = options}); /* nothing to train */
        assert_int_equal(lkt_csv_rows(logdir, "valid"), 2);
        options.max_steps = 3 * BATCHES;
        assert_string_equal(run_job((job){.options = options}).hash, epochs(3, nproc).hash);
    }
}

/* ---- max_minutes ---- */

static void time_ends_a_run_in_order(void **state)
{
    (void)state;
    for (int nproc = 0; nproc <= 2; nproc += 2) {
        const char *logdir = lkt_scratch_folder("train_limits_time");
        lk_train_options options = {
            .num_epochs = 9, .max_minutes = 1e-9, .nproc = nproc, .logdir = logdir, .autoresume = "last"};
        outcome first = run_job((job){.options = options});
        assert_true(first.batches >= 1 && first.batches <= BATCHES);
        assert_int_equal(lkt_csv_rows(logdir, "valid"), 1); /* validated, and saved */
        assert_int_equal(run_job((job){.options = options}).batches, first.batches);
        options.max_minutes = 100;
        options.max_steps = 3 * BATCHES;
        assert_string_equal(run_job((job){.options = options}).hash, epochs(3, nproc).hash);
    }
}

/* ---- valid_every ---- */

static void a_pass_is_divided(void **state)
{
    (void)state;
    for (int nproc = 0; nproc <= 2; nproc += 2) {
        const char *logdir = lkt_scratch_folder("train_limits_pieces");
        lk_train_options options = {.num_epochs = 2, .valid_every = 2, .nproc = nproc, .logdir = logdir};
        outcome out = run_job((job){.options = options});
        assert_int_equal(out.epochs, 6);
        assert_int_equal(out.batches, 2 * BATCHES);
        assert_int_equal(lkt_csv_rows(logdir, "valid"), 6);
        assert_string_equal(out.hash, epochs(2, nproc).hash);
        options.num_epochs = 0;
        options.max_steps = 7;
        options.logdir = lkt_scratch_folder("train_limits_pieces_steps");
        out = run_job((job){.options = options});
        assert_int_equal(out.batches, 7);
        assert_int_equal(lkt_csv_rows(options.logdir, "valid"), 4);
    }
}

static void a_divided_pass_is_resumed(void **state)
{
    (void)state;
    for (int nproc = 0; nproc <= 2; nproc += 2) {
        for (int64_t stop = 1; stop <= 9; stop += nproc ? 4 : 1) {
            const char *logdir = lkt_scratch_folder("train_limits_stopped");
            lk_train_options options = {
                .num_epochs = 2, .valid_every = 2, .nproc = nproc, .logdir = logdir, .autoresume = "last"};
            lkt_fails(try_job((job){.options = options, .stop_batch = stop}, NULL), LK_ERR_STOPPED,
                      "stopped by");
            outcome out = run_job((job){.options = options});
            assert_string_equal(out.hash, epochs(2, nproc).hash);
            assert_int_equal(out.epochs, 6);
            assert_int_equal(lkt_csv_rows(logdir, "valid"), 6);
        }
    }
}

/* ---- freeze, groups by pattern ---- */

static void named_parameters_do_not_train(void **state)
{
    (void)state;
    double before[TRUNK], after[TRUNK], head_before[4], head_after[4];
    lk_module *model = trunk_and_head();
    lkt_weights(model, "0.weight", before, TRUNK);
    lkt_weights(model, "2.weight", head_before, 4);
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(runner, .model = model, .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_adam(.lr = 0.05), .freeze = "0.*, 2.bias", .device = "cpu",
                    .loaders = lk_loaders({"train", lk_loader(lkt_points(SAMPLES, 1), .batch_size = 8)})));
    lkt_weights(model, "0.weight", after, TRUNK);
    lkt_weights(model, "2.weight", head_after, 4);
    assert_memory_equal(before, after, sizeof before);
    assert_memory_not_equal(head_before, head_after, sizeof head_before);
    assert_false(lk_module_param(model, "2.bias")->trainable);
    lk_runner_free(runner);
    lkt_fails(try_job((job){.options = {.freeze = "0.*, trunk.*"}}, NULL), LK_ERR_NOT_FOUND, "\"trunk.*\"");
}

static void groups_by_pattern_are_groups_by_prefix(void **state)
{
    (void)state;
    const char *const names[] = {"2.", "2.*", "[2].*", "*.bias"};
    double weights[4][4];
    for (int i = 0; i < 4; i++) {
        lk_runner *runner = lk_supervised_runner();
        lk_module *model = trunk_and_head();
        lkt_ok(lk_train(
            runner, .model = model, .criterion = lk_cross_entropy_loss(), .device = "cpu",
            .optimizer = lk_sgd(.lr = 0.1, .groups = lk_param_groups({.prefix = names[i], .lr = 0.5})),
            .loaders = lk_loaders({"train", lk_loader(lkt_points(SAMPLES, 1), .batch_size = 8)})));
        lkt_weights(model, "2.weight", weights[i], 4);
        lk_runner_free(runner);
    }
    assert_memory_equal(weights[0], weights[1], sizeof weights[0]);
    assert_memory_equal(weights[0], weights[2], sizeof weights[0]);
    assert_memory_not_equal(weights[0], weights[3], sizeof weights[0]);
}

/* ---- Batches per update ---- */

/* SGD remembers nothing, so two runs after each other are one whose schedule changes between them. */
static void a_schedule_changes_the_batches_per_update(void **state)
{
    (void)state;
    double by_schedule[TRUNK], by_hand[TRUNK];
    for (int by = 0; by < 2; by++) {
        lk_runner *runner = lk_supervised_runner();
        lk_module *model = trunk_and_head();
        for (int part = 0; part <= by; part++) {
            lk_callback *callbacks[] = {
                by ? lk_optimizer_callback(.accumulation_steps = part ? BATCHES : 1)
                   : lk_optimizer_callback(.accumulation_schedule = "2: 5"),
            };
            lkt_ok(
                lk_train(runner, .model = model, .criterion = lk_cross_entropy_loss(),
                         .optimizer = lk_sgd(.lr = 0.1), .num_epochs = by ? 1 : 2, .device = "cpu",
                         .loaders = lk_loaders({"train", lk_loader(lkt_points(SAMPLES, 1), .batch_size = 8)}),
                         .callbacks = {callbacks, 1}));
        }
        lkt_weights(model, "0.weight", by ? by_hand : by_schedule, TRUNK);
        lk_runner_free(runner);
    }
    assert_memory_equal(by_schedule, by_hand, sizeof by_hand);
}

static void a_schedule_is_resumed(void **state)
{
    (void)state;
    for (int nproc = 0; nproc <= 2; nproc += 2) {
        job whole = {.options = {.num_epochs = 4, .nproc = nproc}, .schedule = "2:3,4:2"};
        const char *expected = lkt_path("", "%s", run_job(whole).hash);
        job stopped = whole;
        stopped.options.logdir = lkt_scratch_folder("train_limits_schedule");
        stopped.options.autoresume = "last";
        stopped.stop_batch = 2 * BATCHES + 2;
        lkt_fails(try_job(stopped, NULL), LK_ERR_STOPPED, "stopped by");
        stopped.stop_batch = 0;
        assert_string_equal(lkt_path("", "%s", run_job(stopped).hash), expected);
    }
}

/* ---- Mistakes ---- */

static void mistakes_are_refused_before_the_first_batch(void **state)
{
    (void)state;
    lkt_fails(try_job((job){.options = {.max_steps = -1}}, NULL), LK_ERR_INVALID, "max_steps");
    lkt_fails(try_job((job){.options = {.valid_every = -1}}, NULL), LK_ERR_INVALID, "valid_every");
    lkt_fails(try_job((job){.options = {.max_minutes = -1}}, NULL), LK_ERR_INVALID, "max_minutes");
    lkt_fails(try_job((job){.options = {.valid_every = 2, .overfit = true}}, NULL), LK_ERR_INVALID,
              "overfit");
    const char *const schedules[] = {"2", "2: 0", "0: 2", "5: 2, 3: 2", "a: 2", "2: 2x"};
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        assert_null(lk_optimizer_callback(.accumulation_schedule = schedules[i]));
        assert_non_null(strstr(lk_error(), "accumulation_schedule"));
    }
    lk_runner *runner = lk_supervised_runner();
    lkt_fails(lk_train(runner, .model = trunk_and_head(), .criterion = lk_cross_entropy_loss(),
                       .optimizer = lk_adam(), .valid_every = 2, .device = "cpu",
                       .loaders = lk_loaders({"train", lk_loader(lkt_points(SAMPLES, 1), .batch_size = 8)})),
              LK_ERR_INVALID, "no loader besides");
    lk_runner_free(runner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_end_a_run),
        cmocka_unit_test(more_steps_go_on_in_the_middle_of_a_pass),
        cmocka_unit_test(time_ends_a_run_in_order),
        cmocka_unit_test(a_pass_is_divided),
        cmocka_unit_test(a_divided_pass_is_resumed),
        cmocka_unit_test(named_parameters_do_not_train),
        cmocka_unit_test(groups_by_pattern_are_groups_by_prefix),
        cmocka_unit_test(a_schedule_changes_the_batches_per_update),
        cmocka_unit_test(a_schedule_is_resumed),
        cmocka_unit_test(mistakes_are_refused_before_the_first_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
