/* Training in fp16: the scale, what is skipped and the weights against PyTorch's GradScaler, on every engine
 * of the host and on one with memory of its own; what is kept and resumed; bad numbers; two ranks. */
#include "case.h"
#include "engines.h"

#include "resume/step_state.h"
#include "step/step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As tests/oracle/scaler.py. LOCKSTEP_TEST_ENGINE=cuda asks for a GPU's steps too. */
enum { BATCH = 12, INPUTS = 20, HIDDEN = 16, CLASSES = 5, STEPS = 24 };

typedef struct batch {
    lk_tensor *x, *y;
} batch;

static lk_step *make_step(lk_engine *engine, lk_step_options options, batch *b)
{
    lk_manual_seed(3);
    options.model = lk_sequential(lk_linear(INPUTS, HIDDEN), lk_relu(), lk_linear(HIDDEN, CLASSES));
    if (b) {
        b->x = lk_tensor_create(LK_F32, LK_SHAPE(BATCH, INPUTS));
        b->y = lk_tensor_create(LK_I64, LK_SHAPE(BATCH));
        lkt_ok(lk_normal(b->x, 0, 1, lk_default_generator()));
        for (int i = 0; i < BATCH; i++) ((int64_t *)b->y->data)[i] = i % CLASSES;
    }
    options.criterion = lk_cross_entropy_loss();
    options.optimizer = lk_adam(.lr = 0.01);
    options.engine = engine;
    options.owned = true;
    options.precision = LK_F16;
    options.scaler = (lk_scaler_options){.init_scale = 0x1p24, .growth_interval = 2};
    lk_step *step = lk_step_with(&options);
    lkt_not_null(step);
    return step;
}

static void free_batch(batch *b)
{
    lk_tensor_free(b->x);
    lk_tensor_free(b->y);
}

static void train(lk_step *step, const batch *b)
{
    lkt_ok(lk_step_train(step, (lk_input[]){{"features", b->x}, {"targets", b->y}}, 2));
}

typedef struct row {
    double loss, scale, tracker, skipped, sum, squares;
} row;

static void read_golden(row *rows)
{
    FILE *file = fopen(LK_SOURCE_DIR "/tests/golden/train/scaler.txt", "r");
    lkt_not_null(file);
    for (int i = 0; i < STEPS; i++)
        assert_int_equal(fscanf(file, "%lf %lf %lf %lf %lf %lf", &rows[i].loss, &rows[i].scale,
                                &rows[i].tracker, &rows[i].skipped, &rows[i].sum, &rows[i].squares),
                         6);
    fclose(file);
}

/* A product's sums may come in another order, and round to another f16 later. */
static void check_step(lk_step *step, const row *expected)
{
    int64_t count;
    const float *weights = lk_step_flat_params(step, &count);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += weights[i];
        squares += (double)weights[i] * weights[i];
    }
    lkt_close(lk_step_loss(step), expected->loss, 2e-3);
    assert_true(lk_step_loss_scale(step) == expected->scale);
    assert_int_equal(lk_step_skipped_updates(step), (int64_t)expected->skipped);
    assert_true(lki_scaler_get(&step->scaler, LK_SCALER_TRACKER) == expected->tracker);
    lkt_close(sum, expected->sum, 2e-2);
    lkt_close(squares, expected->squares, 2e-2);
}

static int engine_count(void)
{
    return gpu_is_asked_for() ? GPU + 1 : FAR + 1;
}

static void the_scale_and_the_weights_are_pytorchs(void **state)
{
    (void)state;
    row expected[STEPS];
    read_golden(expected);
    for (int which = 0; which < engine_count(); which++) {
        lk_engine *engine = open_engine(which);
        batch b;
        lk_step *step = make_step(engine, *LK_OPTIONS(lk_step_options), &b);
        for (int i = 0; i < STEPS; i++) {
            train(step, &b);
            check_step(step, &expected[i]);
        }
        free_batch(&b);
        lk_step_free(step);
        lk_engine_close(engine);
    }
}

static void same_weights(lk_step *a, lk_step *b)
{
    int64_t count, other;
    const float *x = lk_step_flat_params(a, &count), *y = lk_step_flat_params(b, &other);
    assert_int_equal(count, other);
    assert_memory_equal(x, y, (size_t)count * sizeof *x);
}

/* Nobody asks the device in between. */
static void a_recorded_run_ahead_gives_the_same(void **state)
{
    (void)state;
    static const lk_step_options cases[] = {
        {LK_SIZE(lk_step_options)},
        {LK_SIZE(lk_step_options), .accumulation_steps = 2, .clip_norm = 0.5},
        {LK_SIZE(lk_step_options), .clip_value = 0.01}};
    for (int k = 0; k < 3; k++) {
        lk_engine *host = open_engine(REF), *far = open_engine(FAR);
        lk_step_options ahead = cases[k];
        ahead.asynchronous = true;
        batch b;
        lk_step *on_host = make_step(host, cases[k], &b), *on_far = make_step(far, ahead, NULL);
        for (int i = 0; i < STEPS; i++) train(on_host, &b), train(on_far, &b);
        lkt_ok(lk_step_wait(on_far));
        same_weights(on_host, on_far);
        assert_true(lkt_far_replay_count(far) > STEPS / 2);
        assert_true(lk_step_skipped_updates(on_host) > 2);
        assert_int_equal(lk_step_skipped_updates(on_host), lk_step_skipped_updates(on_far));
        free_batch(&b);
        lk_step_free(on_host);
        lk_step_free(on_far);
        lk_engine_close(host);
        lk_engine_close(far);
    }
}

static void a_gpu_that_runs_ahead_gives_the_same(void **state)
{
    (void)state;
    if (engine_count() <= GPU) {
        print_message("SKIPPED: LOCKSTEP_TEST_ENGINE does not ask for a GPU\n");
        skip();
    }
    lk_engine *gpu = open_engine(GPU);
    batch b;
    lk_step *waiting =
        make_step(gpu, *LK_OPTIONS(lk_step_options, .accumulation_steps = 2, .clip_norm = 0.5), &b);
    lk_step *ahead = make_step(
        gpu, *LK_OPTIONS(lk_step_options, .accumulation_steps = 2, .clip_norm = 0.5, .asynchronous = true),
        NULL);
    for (int i = 0; i < STEPS; i++) train(waiting, &b);
    for (int i = 0; i < STEPS; i++) train(ahead, &b);
    lkt_ok(lk_step_wait(ahead));
    same_weights(waiting, ahead);
    assert_true(lk_step_skipped_updates(ahead) > 2);
    free_batch(&b);
    lk_step_free(waiting);
    lk_step_free(ahead);
    lk_engine_close(gpu);
}

static double kept(const lk_state_dict *state, const char *name)
{
    double value;
    lkt_ok(lk_state_dict_get_f64(state, name, &value));
    return value;
}

/* Stopped after every number of steps, skipped ones among them. */
static void a_step_goes_on_from_its_state(void **state)
{
    (void)state;
    for (int stop = 1; stop < STEPS; stop += 5)
        for (int which = 0; which < engine_count(); which++) {
            lk_engine *engine = open_engine(which);
            batch b;
            lk_step *first = make_step(engine, *LK_OPTIONS(lk_step_options), &b);
            for (int i = 0; i < stop; i++) train(first, &b);
            lk_state_dict *weights = lk_module_state_dict(first->options.model);
            lk_state_dict *kept_state = lk_state_dict_create();
            lkt_ok(lki_step_save(first, kept_state, "optimizer"));
            assert_true(kept(kept_state, "optimizer.scaler.scale") == lk_step_loss_scale(first));
            assert_true(kept(kept_state, "optimizer.scaler.growth_interval") == 2);
            lk_step *second = make_step(engine, *LK_OPTIONS(lk_step_options), NULL);
            lkt_ok(lk_module_load_state_dict(second->options.model, weights));
            lkt_ok(lki_step_restore(second, kept_state, "optimizer"));
            for (int i = stop; i < STEPS; i++) train(first, &b), train(second, &b);
            same_weights(first, second);
            assert_true(lk_step_loss_scale(first) == lk_step_loss_scale(second));
            lk_state_dict_free(weights);
            lk_state_dict_free(kept_state);
            lk_step_free(first);
            lk_step_free(second);
            free_batch(&b);
            lk_engine_close(engine);
        }
}

static void numbers_that_cannot_be(void **state)
{
    (void)state;
    static const struct {
        lk_scaler_options options;
        const char *word;
    } cases[] = {{{.init_scale = -1}, "init_scale"},
                 {{.init_scale = 1e60}, "init_scale"},
                 {{.growth_factor = 0.5}, "growth_factor"},
                 {{.backoff_factor = 1}, "backoff_factor"},
                 {{.growth_interval = -2}, "growth_interval"}};
    for (int i = 0; i < 5; i++) {
        lk_module *model = lk_linear(INPUTS, CLASSES);
        lk_optimizer *optimizer = lk_sgd(.lr = 0.1);
        assert_null(lk_step(.model = model, .optimizer = optimizer, .criterion = NULL, .precision = LK_F16,
                            .scaler = cases[i].options));
        lkt_contains(lk_error(), cases[i].word);
        lk_module_free(model);
        lk_optimizer_free(optimizer);
    }
}

static lk_status run(int ranks, const char *logdir, bool compress)
{
    lk_runner *runner = lk_supervised_runner();
    lk_status status =
        lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                 .optimizer = lk_adam(.lr = 0.02), .precision = "fp16",
                 .scaler = {.init_scale = 0x1p22, .growth_interval = 3}, .device = "cpu", .ddp = ranks > 1,
                 .nproc = ranks, .num_epochs = 3, .logdir = logdir, .check_replicas = 1,
                 .compress_gradients = compress,
                 .loaders = lk_loaders({"train", lk_loader(lkt_points(96, 1), .batch_size = 8)}));
    lk_runner_free(runner);
    return status;
}

/* Gradients that overflow on one rank are skipped by both: the replicas are compared after every update. */
static void two_ranks_skip_together(void **state)
{
    (void)state;
    char path[300];
    const char *folder = lkt_scratch_folder("train_scaler");
    lkt_ok(run(2, folder, false));
    snprintf(path, sizeof path, "%s/checkpoints/runner.last.safetensors", folder);
    lk_state_dict *saved = lk_load_safetensors(path);
    lkt_not_null(saved);
    int64_t updates;
    lkt_ok(lk_state_dict_get_i64(saved, "optimizer.step", &updates));
    assert_true(updates < 3 * 6 && updates > 3);
    assert_true(kept(saved, "optimizer.scaler.scale") < 0x1p22);
    lk_state_dict_free(saved);
    assert_int_not_equal(run(2, NULL, true), LK_OK);
}

/* ---- Callbacks between the backward half and the update ---- */

typedef struct seen {
    double norm, weights[18];
} seen;

static seen run_with_decay(const char *device, const char *precision, double init_scale, int accumulation)
{
    lk_runner *runner = lk_supervised_runner();
    seen seen = {0};
    lkt_ok(
        lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                 .optimizer = lk_sgd(.lr = 0.05), .precision = precision,
                 .scaler = {.init_scale = init_scale}, .device = device, .num_epochs = 2,
                 .loaders = lk_loaders({"train", lk_loader(lkt_points(96, 1), .batch_size = 8)}),
                 .callbacks = lk_callbacks(lk_optimizer_callback(.accumulation_steps = accumulation),
                                           lk_l1_weight_decay_callback(0.3), lk_l2_weight_decay_callback(0.2),
                                           lk_gradient_norm_callback())));
    seen.norm = lk_metrics_get(lk_runner_loader_metrics(runner, "train"), "grad_norm");
    lkt_weights(runner->model, "0.weight", seen.weights, 18);
    lk_runner_free(runner);
    return seen;
}

/* What they add and what they measure does not depend on the scale. */
static void callbacks_know_the_scale(void **state)
{
    (void)state;
    const char *devices[] = {"cpu", "cuda"};
    for (int d = 0; d < 1 + gpu_is_asked_for(); d++)
        for (int accumulation = 1; accumulation <= 2; accumulation++) {
            seen expected = run_with_decay(devices[d], "fp32", 0, accumulation);
            seen actual = run_with_decay(devices[d], "fp16", 1024, accumulation);
            lkt_close(actual.norm, expected.norm, 5e-3 * expected.norm);
            for (int i = 0; i < 18; i++) lkt_close(actual.weights[i], expected.weights[i], 5e-3);
        }
}

/* Updates that are skipped have no norm: f16 overflows at the first scales. */
static void the_norm_of_skipped_updates_does_not_count(void **state)
{
    (void)state;
    seen seen = run_with_decay("cpu", "fp16", 0x1p22, 1);
    assert_true(isfinite(seen.norm) && seen.norm > 0 && seen.norm < 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_skip_together), /* forks, before engines start threads */
        cmocka_unit_test(the_scale_and_the_weights_are_pytorchs),
        cmocka_unit_test(a_recorded_run_ahead_gives_the_same),
        cmocka_unit_test(a_gpu_that_runs_ahead_gives_the_same),
        cmocka_unit_test(a_step_goes_on_from_its_state),
        cmocka_unit_test(numbers_that_cannot_be),
        cmocka_unit_test(callbacks_know_the_scale),
        cmocka_unit_test(the_norm_of_skipped_updates_does_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
