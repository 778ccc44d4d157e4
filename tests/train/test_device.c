/* Steps on an engine with memory of its own: the same losses and weights as on the host, recorded or in
 * parts, with what a step meets: accumulation, clipping, schedulers, batch norm, NaN, wrong targets, reading
 * and writing the weights in between. */
#include "far_engine.h"
#include "lktest.h"

#include <lockstep/lockstep.h>

#include "base/memory.h"
#include "step/device/device.h"

#include <math.h>
#include <string.h>

enum { BATCH = 12, INPUTS = 20, CLASSES = 5, STEPS = 9 };

typedef struct batch {
    lk_tensor *x, *y;
} batch;

static batch make_batch(int64_t rows, uint64_t seed)
{
    lk_generator generator;
    lk_generator_seed(&generator, seed);
    batch b = {lk_tensor_create(LK_F32, LK_SHAPE(rows, INPUTS)), lk_tensor_create(LK_I64, LK_SHAPE(rows))};
    lkt_ok(lk_normal(b.x, 0, 1, &generator));
    for (int64_t i = 0; i < rows; i++) ((int64_t *)b.y->data)[i] = lk_randint(CLASSES, &generator);
    return b;
}

static void free_batch(batch *b)
{
    lk_tensor_free(b->x);
    lk_tensor_free(b->y);
}

static lk_step *make_step(lk_engine *engine, lk_step_options options)
{
    lk_manual_seed(3);
    options.model =
        lk_sequential(lk_linear(INPUTS, 16), lk_batch_norm1d(16), lk_relu(), lk_linear(16, CLASSES));
    options.criterion = lk_cross_entropy_loss();
    options.optimizer = lk_adam(.lr = 0.05);
    options.engine = engine;
    options.owned = true;
    lk_step *step = lk_step_with(&options);
    lkt_not_null(step);
    return step;
}

static lk_status train(lk_step *step, const batch *b)
{
    lk_input fields[] = {{"features", b->x}, {"targets", b->y}};
    return lk_step_train(step, fields, 2);
}

static lk_status train_in_parts(lk_step *step, const batch *b)
{
    lk_input fields[] = {{"features", b->x}, {"targets", b->y}};
    lk_status status = lk_step_begin(step, fields, 2, true);
    if (!status) status = lk_step_forward(step);
    if (!status) status = lk_step_criterion(step);
    if (!status) status = lk_step_backward(step);
    return status ? status : lk_step_update(step);
}

static void same_weights(lk_step *a, lk_step *b)
{
    int64_t count = 0, other = 0;
    const float *x = lk_step_flat_params(a, &count), *y = lk_step_flat_params(b, &other);
    assert_int_equal(count, other);
    assert_memory_equal(x, y, (size_t)count * sizeof *x);
}

typedef struct pair {
    lk_engine *host, *far;
    lk_step *on_host, *on_far;
} pair;

static pair make_pair(lk_step_options options)
{
    pair p = {.host = lk_engine_open("ref", NULL), .far = lkt_far_engine_open()};
    lkt_not_null(p.host);
    lkt_not_null(p.far);
    p.on_host = make_step(p.host, options);
    p.on_far = make_step(p.far, options);
    return p;
}

static void free_pair(pair *p)
{
    lk_step_free(p->on_host);
    lk_step_free(p->on_far);
    lk_engine_close(p->host);
    lk_engine_close(p->far);
}

static int64_t batches_tracked(const lk_step *step)
{
    for (int i = 0; i < step->params.count; i++)
        if (strcmp(step->params.items[i].path, "1.num_batches_tracked") == 0)
            return *(int64_t *)step->params.items[i].param->value->data;
    fail_msg("the model has no batch norm");
    return -1;
}

static void same_counts(const pair *p)
{
    assert_int_equal(p->on_host->update.step_count, p->on_far->update.step_count);
    assert_int_equal(p->on_host->update.accumulated, p->on_far->update.accumulated);
    assert_int_equal(batches_tracked(p->on_host), batches_tracked(p->on_far));
}

static void train_both(pair *p, int steps, bool in_parts)
{
    for (int i = 0; i < steps; i++) {
        batch b = make_batch(i % 4 == 3 ? BATCH - 5 : BATCH, 100 + (uint64_t)i);
        lkt_ok(train(p->on_host, &b));
        lkt_ok(in_parts ? train_in_parts(p->on_far, &b) : train(p->on_far, &b));
        assert_true(lk_step_loss(p->on_host) == lk_step_loss(p->on_far));
        const lk_tensor *logits = lk_step_output(p->on_host, "logits"),
                        *far_logits = lk_step_output(p->on_far, "logits");
        assert_memory_equal(logits->data, far_logits->data, lk_tensor_nbytes(logits));
        free_batch(&b);
    }
    same_weights(p->on_host, p->on_far);
}

static void recorded_steps_equal_the_hosts(void **state)
{
    (void)state;
    pair p = make_pair(*LK_OPTIONS(lk_step_options));
    train_both(&p, STEPS, false);
    assert_true(lkt_far_replay_count(p.far) > 0);
    /* Two shapes of batches; each is recorded again when its output was first wanted. */
    assert_true(lkt_far_record_count(p.far) <= 4);
    free_pair(&p);
}

static void steps_in_parts_equal_the_hosts(void **state)
{
    (void)state;
    pair p = make_pair(*LK_OPTIONS(lk_step_options));
    train_both(&p, STEPS, true);
    assert_int_equal(lkt_far_replay_count(p.far), 0);
    free_pair(&p);
}

static void accumulation_and_clipping(void **state)
{
    (void)state;
    pair p = make_pair(*LK_OPTIONS(lk_step_options, .accumulation_steps = 3, .clip_norm = 0.5));
    train_both(&p, 2 * STEPS, false);
    assert_true(fabs(lk_step_grad_norm(p.on_host) - lk_step_grad_norm(p.on_far)) < 1e-12);
    free_pair(&p);
}

static void evaluation_and_training_alternate(void **state)
{
    (void)state;
    pair p = make_pair(*LK_OPTIONS(lk_step_options));
    for (int i = 0; i < 4; i++) {
        train_both(&p, 3, false);
        batch b = make_batch(BATCH, 7);
        lk_input fields[] = {{"features", b.x}, {"targets", b.y}};
        lkt_ok(lk_step_evaluate(p.on_host, fields, 2));
        lkt_ok(lk_step_evaluate(p.on_far, fields, 2));
        assert_true(lk_step_loss(p.on_host) == lk_step_loss(p.on_far));
        free_batch(&b);
    }
    free_pair(&p);
}

static void numbers_changed_between_steps_count(void **state)
{
    (void)state;
    lk_engine *host = lk_engine_open("ref", NULL), *far = lkt_far_engine_open();
    lk_step *steps[2];
    lk_optimizer *optimizers[2];
    for (int k = 0; k < 2; k++) {
        lk_manual_seed(1);
        optimizers[k] = lk_sgd(.lr = 0.1, .momentum = 0.9);
        steps[k] = lk_step(.model = lk_linear(INPUTS, CLASSES), .criterion = lk_cross_entropy_loss(),
                           .optimizer = optimizers[k], .engine = k ? far : host, .owned = true);
        lkt_not_null(steps[k]);
    }
    for (int i = 0; i < STEPS; i++) {
        batch b = make_batch(BATCH, (uint64_t)i);
        for (int k = 0; k < 2; k++) {
            lk_optimizer_set_lr(optimizers[k], 0, 0.1 / (i + 1));
            lkt_ok(train(steps[k], &b));
        }
        free_batch(&b);
    }
    same_weights(steps[0], steps[1]);
    for (int k = 0; k < 2; k++) lk_step_free(steps[k]);
    lk_engine_close(host);
    lk_engine_close(far);
}

/* The weights are as they were before the bad batch, and training goes on as if it had not been. */
static void a_loss_that_is_not_finite_changes_nothing(void **state)
{
    (void)state;
    pair p = make_pair(*LK_OPTIONS(lk_step_options));
    train_both(&p, 4, false);
    batch b = make_batch(BATCH, 5);
    ((float *)b.x->data)[7] = NAN;
    lkt_fails(train(p.on_host, &b), LK_ERR_NAN, "the input \"features\" is not finite");
    lkt_fails(train(p.on_far, &b), LK_ERR_NAN, "the input \"features\" is not finite");
    free_batch(&b);
    same_weights(p.on_host, p.on_far);
    same_counts(&p);
    free_pair(&p);
}

static void a_wrong_target_names_the_layer(void **state)
{
    (void)state;
    pair p = make_pair(*LK_OPTIONS(lk_step_options));
    train_both(&p, 3, false);
    batch b = make_batch(BATCH, 5);
    ((int64_t *)b.y->data)[4] = CLASSES;
    lkt_fails(train(p.on_far, &b), LK_ERR_RANGE, "5 at position 4 is outside of 0..4");
    same_weights(p.on_host, p.on_far);
    free_batch(&b);
    free_pair(&p);
}

/* What the host reads between steps is what the device has, and what it writes is what the device goes on
 * with. */
static void the_host_reads_and_writes_in_between(void **state)
{
    (void)state;
    pair p = make_pair(*LK_OPTIONS(lk_step_options));
    train_both(&p, 3, false);
    lk_step *both[] = {p.on_host, p.on_far};
    for (int k = 0; k < 2; k++) {
        lk_param_list params;
        lkt_ok(lk_module_params(both[k]->options.model, &params));
        lkt_ok(lki_param_pull(params.items[0].param));
        float *weight = params.items[0].param->value->data;
        weight[3] = weight[2] + 1;
        lki_param_push(params.items[0].param);
        lk_param_list_free(&params);
    }
    train_both(&p, 3, false);
    free_pair(&p);
}

/* A model trained on the device is whole on the host when its step is gone. */
static void the_model_comes_back(void **state)
{
    (void)state;
    lk_engine *far = lkt_far_engine_open();
    lk_manual_seed(1);
    lk_module *model = lk_linear(INPUTS, CLASSES);
    lk_criterion *criterion = lk_cross_entropy_loss();
    lk_optimizer *optimizer = lk_sgd(.lr = 0.1);
    lk_step *step = lk_step(.model = model, .criterion = criterion, .optimizer = optimizer, .engine = far);
    batch b = make_batch(BATCH, 1);
    for (int i = 0; i < 4; i++) lkt_ok(train(step, &b));
    lk_input fields[] = {{"features", b.x}, {"targets", b.y}};
    lkt_ok(lk_step_evaluate(step, fields, 2));
    double loss = lk_step_loss(step);
    lk_step_free(step);
    lk_step *evaluator = lk_step(.model = model, .criterion = criterion);
    lkt_ok(lk_step_evaluate(evaluator, fields, 2));
    assert_true(fabs(lk_step_loss(evaluator) - loss) < 1e-6);
    lk_step_free(evaluator);
    lk_optimizer_free(optimizer);
    lk_criterion_free(criterion);
    lk_module_free(model);
    free_batch(&b);
    lk_engine_close(far);
}

static void asynchronous_steps(void **state)
{
    (void)state;
    pair p = make_pair(*LK_OPTIONS(lk_step_options, .asynchronous = true));
    batch b = make_batch(BATCH, 1);
    for (int i = 0; i < 40; i++) {
        lkt_ok(train(p.on_host, &b));
        lkt_ok(train(p.on_far, &b));
    }
    lkt_ok(lk_step_wait(p.on_far));
    assert_true(lk_step_loss(p.on_host) == lk_step_loss(p.on_far));
    same_weights(p.on_host, p.on_far);
    free_batch(&b);
    free_pair(&p);
}

/* A batch that does not fit leaves the one under way alone. */
static void asynchronous_steps_outlive_a_bad_batch(void **state)
{
    (void)state;
    pair p = make_pair(*LK_OPTIONS(lk_step_options, .asynchronous = true));
    batch b = make_batch(BATCH, 1);
    lk_tensor *narrow = lk_tensor_create(LK_F32, LK_SHAPE(BATCH, 3));
    lk_input bad[] = {{"features", narrow}, {"targets", b.y}};
    for (int i = 0; i < 3; i++) {
        lkt_ok(train(p.on_host, &b));
        lkt_ok(train(p.on_far, &b));
    }
    assert_int_equal(lk_step_train(p.on_far, bad, 2), LK_ERR_SHAPE);
    lkt_ok(lk_step_wait(p.on_far));
    assert_true(lk_step_loss(p.on_host) == lk_step_loss(p.on_far));
    same_weights(p.on_host, p.on_far);
    lk_tensor_free(narrow);
    free_batch(&b);
    free_pair(&p);
}

/* In asynchronous steps nothing is updated after a batch that went wrong, and whoever waits hears of it. */
static void asynchronous_steps_stop_at_nan(void **state)
{
    (void)state;
    pair p = make_pair(*LK_OPTIONS(lk_step_options, .asynchronous = true));
    batch good = make_batch(BATCH, 1), bad = make_batch(BATCH, 2);
    ((float *)bad.x->data)[3] = NAN;
    for (int i = 0; i < 5; i++) {
        lkt_ok(train(p.on_host, &good));
        lkt_ok(train(p.on_far, &good));
    }
    lkt_ok(train(p.on_far, &bad));
    lkt_ok(train(p.on_far, &good));
    /* The bad batch has spoiled the running statistics, which training does not look at. */
    lkt_fails(lk_step_wait(p.on_far), LK_ERR_NAN, "of an earlier batch was not finite");
    same_weights(p.on_host, p.on_far);
    lkt_ok(train(p.on_far, &good));
    lkt_ok(lk_step_wait(p.on_far));
    free_batch(&good);
    free_batch(&bad);
    free_pair(&p);
}

/* However many batches were started behind the one that went wrong, none of them counts, and all before it
 * do. */
static void lost_asynchronous_batches_do_not_count(void **state)
{
    (void)state;
    for (int accumulation = 1; accumulation <= 3; accumulation++) {
        for (int behind = 0; behind < 4; behind++) {
            pair p = make_pair(
                *LK_OPTIONS(lk_step_options, .asynchronous = true, .accumulation_steps = accumulation));
            batch good = make_batch(BATCH, 1), bad = make_batch(BATCH, 2), wrong = make_batch(BATCH, 3);
            lk_input fields[] = {{"features", good.x}, {"targets", good.y}};
            ((float *)bad.x->data)[3] = NAN;
            ((int64_t *)wrong.y->data)[3] = CLASSES;
            for (int round = 0; round < 3; round++) {
                for (int i = 0; i < 2 + round; i++) {
                    lkt_ok(train(p.on_host, &good));
                    lkt_ok(train(p.on_far, &good));
                }
                lkt_ok(train(p.on_far, behind % 2 ? &wrong : &bad));
                for (int i = 0; i < behind; i++) lkt_ok(train(p.on_far, &good));
                if (round == 0) assert_true(lk_step_wait(p.on_far));
                if (round == 1) assert_true(lk_step_evaluate(p.on_far, fields, 2));
                if (round == 2) assert_null(lk_step_output(p.on_far, "logits"));
                same_counts(&p);
                same_weights(p.on_host, p.on_far);
            }
            lkt_ok(train(p.on_host, &good));
            lkt_ok(train(p.on_far, &good));
            lkt_ok(lk_step_wait(p.on_far));
            same_counts(&p);
            same_weights(p.on_host, p.on_far);
            free_batch(&good);
            free_batch(&bad);
            free_batch(&wrong);
            free_pair(&p);
        }
    }
}

/* Not even where so many were started behind it that the host had to wait for some of them. */
static void a_lost_asynchronous_batch_is_heard_of(void **state)
{
    (void)state;
    pair p = make_pair(*LK_OPTIONS(lk_step_options, .asynchronous = true));
    batch good = make_batch(BATCH, 1), bad = make_batch(BATCH, 2);
    ((float *)bad.x->data)[3] = NAN;
    for (int i = 0; i < 3; i++) {
        lkt_ok(train(p.on_host, &good));
        lkt_ok(train(p.on_far, &good));
    }
    lkt_ok(train(p.on_far, &bad));
    lk_status status = LK_OK;
    for (int i = 0; i < 100 && status == LK_OK; i++) status = train(p.on_far, &good);
    assert_int_equal(status, LK_ERR_NAN);
    lkt_ok(lk_step_wait(p.on_far));
    same_counts(&p);
    same_weights(p.on_host, p.on_far);
    free_batch(&good);
    free_batch(&bad);
    free_pair(&p);
}

/* Training goes on call by call, and is recorded when there is room. */
static void a_program_without_room_is_no_failure(void **state)
{
    (void)state;
    for (int full = 1; full < 4; full++) {
        pair p = {.host = lk_engine_open("ref", NULL), .far = lkt_far_engine_open(.full_records = full)};
        p.on_host = make_step(p.host, *LK_OPTIONS(lk_step_options, .accumulation_steps = 2));
        p.on_far = make_step(p.far, *LK_OPTIONS(lk_step_options, .accumulation_steps = 2));
        train_both(&p, STEPS, false);
        same_counts(&p);
        free_pair(&p);
    }
}

static lk_status launch(lk_step *step, const batch *b)
{
    lk_input fields[] = {{"features", b->x}, {"targets", b->y}};
    assert_true(lki_step_may_launch(step, fields, 2, true));
    return lki_step_launch(step, fields, 2, true);
}

/* Batches that were launched behind one that was lost count as never launched: made again they are as ever,
 * the optimizer's count of updates and the accumulated gradients too. */
static void lost_batches_are_taken_back(void **state)
{
    (void)state;
    for (int accumulation = 1; accumulation <= 3; accumulation++) {
        pair p = make_pair(*LK_OPTIONS(lk_step_options, .accumulation_steps = accumulation));
        train_both(&p, 4, false);
        for (int i = 0; i < 8; i++) {
            batch first = make_batch(BATCH, 20 + (uint64_t)i), second = make_batch(BATCH, 40 + (uint64_t)i),
                  bad = make_batch(BATCH, 60 + (uint64_t)i);
            ((int64_t *)bad.y->data)[4] = CLASSES;
            bool lost, spoil = i % 3 == 1;
            if (spoil) {
                lkt_ok(launch(p.on_far, &bad));
                lkt_ok(launch(p.on_far, &first));
                lkt_ok(lki_step_land(p.on_far, &lost));
                assert_true(lost);
                assert_int_equal(lki_device_of(p.on_far)->flight_count, 0);
            }
            lkt_ok(launch(p.on_far, &first));
            lkt_ok(launch(p.on_far, &second));
            lkt_fails(launch(p.on_far, &second), LK_ERR_INVALID, "under way already");
            const batch *both[] = {&first, &second};
            for (int k = 0; k < 2; k++) {
                lkt_ok(lki_step_land(p.on_far, &lost));
                assert_false(lost);
                lkt_ok(train(p.on_host, both[k]));
                assert_true(lk_step_loss(p.on_host) == lk_step_loss(p.on_far));
                const lk_tensor *logits = lk_step_output(p.on_host, "logits"),
                                *far_logits = lk_step_output(p.on_far, "logits");
                lkt_not_null(far_logits);
                assert_memory_equal(logits->data, far_logits->data, lk_tensor_nbytes(logits));
            }
            same_weights(p.on_host, p.on_far);
            assert_int_equal(p.on_host->update.step_count, p.on_far->update.step_count);
            free_batch(&first);
            free_batch(&second);
            free_batch(&bad);
        }
        free_pair(&p);
    }
}

/* The rows of a dataset of bytes, gathered by the step, are the batch. */
static void rows_are_gathered_where_the_engine_is(void **state)
{
    (void)state;
    enum { LENGTH = 40 };
    static uint8_t pixels[LENGTH * INPUTS];
    for (int i = 0; i < LENGTH * INPUTS; i++) pixels[i] = (uint8_t)(i * 37 % 251);
    lk_rows rows = {.data = pixels,
                    .stored = LK_U8,
                    .length = LENGTH,
                    .width = INPUTS,
                    .divisor = 255,
                    .mean = 0.5f,
                    .std = 0.25f};
    pair p = make_pair(*LK_OPTIONS(lk_step_options));
    lk_tensor description = {.dtype = LK_F32, .shape = LK_SHAPE(BATCH, INPUTS), .stride = {INPUTS, 1}};
    for (int i = 0; i < 5; i++) {
        batch b = make_batch(BATCH, (uint64_t)i);
        int64_t indices[BATCH];
        for (int r = 0; r < BATCH; r++) {
            indices[r] = (r * 7 + i) % LENGTH;
            for (int k = 0; k < INPUTS; k++)
                ((float *)b.x->data)[r * INPUTS + k] =
                    (pixels[indices[r] * INPUTS + k] / rows.divisor - rows.mean) / rows.std;
        }
        lkt_ok(train(p.on_host, &b));
        lk_input fields[] = {{"features", &description}, {"targets", b.y}};
        lkt_ok(lk_step_take_rows(p.on_far, "features", &rows, indices));
        lkt_ok(lk_step_train(p.on_far, fields, 2));
        assert_true(lk_step_loss(p.on_host) == lk_step_loss(p.on_far));
        lk_step *both[] = {p.on_host, p.on_far};
        double losses[2];
        for (int k = 0; k < 2; k++) {
            lkt_ok(lk_step_take_rows(both[k], "features", &rows, indices));
            lkt_ok(lk_step_evaluate(both[k], fields, 2));
            losses[k] = lk_step_loss(both[k]);
            lkt_fails(lk_step_evaluate(both[k], fields, 2), LK_ERR_INVALID,
                      "\"features\" of the batch has no values");
        }
        assert_true(losses[0] == losses[1]);
        free_batch(&b);
    }
    same_weights(p.on_host, p.on_far);
    free_pair(&p);
}

/* Numbers that tell rows and datasets apart, as rows of INPUTS. */
static lk_rows numbered_rows(float *values, int64_t length, float offset)
{
    for (int64_t i = 0; i < length * INPUTS; i++)
        values[i] = offset + (float)(i / INPUTS) + (float)(i % INPUTS) / 32;
    return (lk_rows){
        .data = values, .stored = LK_F32, .length = length, .width = INPUTS, .divisor = 1, .std = 1};
}

/* The first output for two rows, taken by the step or, without one of its own, handed over. */
static float output_of(lk_step *step, const lk_rows *rows, int64_t first, int64_t second, bool taken)
{
    const int64_t indices[] = {first, second};
    float gathered[2 * INPUTS];
    for (int i = 0; i < 2 * INPUTS; i++)
        gathered[i] = ((const float *)rows->data)[indices[i / INPUTS] * INPUTS + i % INPUTS];
    lk_tensor x = {.dtype = LK_F32, .shape = LK_SHAPE(2, INPUTS), .stride = {INPUTS, 1}};
    if (!taken) x.data = gathered;
    lk_input fields[] = {{"features", &x}};
    if (taken) lkt_ok(lk_step_take_rows(step, "features", rows, indices));
    lkt_ok(lk_step_evaluate(step, fields, 1));
    const lk_tensor *logits = lk_step_output(step, "logits");
    lkt_not_null(logits);
    return ((const float *)logits->data)[0];
}

static void same_outputs(lk_step *step, const lk_rows *rows, int64_t first, int64_t second)
{
    float expected = output_of(step, rows, first, second, false);
    assert_true(output_of(step, rows, first, second, true) == expected);
}

/* Not even a name of theirs: the next batch has rows of its own, or values. */
static void rows_of_a_batch_that_fails_are_forgotten(void **state)
{
    (void)state;
    enum { LENGTH = 8 };
    static float values[LENGTH * INPUTS];
    lk_rows rows = numbered_rows(values, LENGTH, 0);
    pair p = make_pair(*LK_OPTIONS(lk_step_options));
    lk_step *both[] = {p.on_host, p.on_far};
    lk_tensor narrow = {.dtype = LK_F32, .shape = LK_SHAPE(2, 3), .stride = {3, 1}};
    lk_tensor x = {.dtype = LK_F32, .shape = LK_SHAPE(2, INPUTS), .stride = {INPUTS, 1}};
    lk_input bad[] = {{"features", &narrow}}, nothing[] = {{"features", &x}};
    const int64_t indices[] = {0, 1}, others[] = {2, 3};
    for (int k = 0; k < 2; k++) {
        same_outputs(both[k], &rows, 0, 1);
        lkt_ok(lk_step_take_rows(both[k], "features", &rows, indices));
        assert_int_equal(lk_step_evaluate(both[k], bad, 1), LK_ERR_SHAPE);
        lkt_fails(lk_step_evaluate(both[k], nothing, 1), LK_ERR_INVALID, "has no values");
        same_outputs(both[k], &rows, 5, 6);
        float expected = output_of(both[k], &rows, 6, 7, false);
        lkt_ok(lk_step_take_rows(both[k], "features", &rows, others)); /* the last word counts */
        assert_true(output_of(both[k], &rows, 6, 7, true) == expected);
    }
    free_pair(&p);
}

/* A batch that was begun and never run leaves the next one alone. */
static void a_batch_that_was_begun_may_be_replaced(void **state)
{
    (void)state;
    enum { LENGTH = 8 };
    static float values[LENGTH * INPUTS];
    lk_rows rows = numbered_rows(values, LENGTH, 0);
    pair p = make_pair(*LK_OPTIONS(lk_step_options));
    lk_tensor x = {.dtype = LK_F32, .shape = LK_SHAPE(2, INPUTS), .stride = {INPUTS, 1}};
    lk_input fields[] = {{"features", &x}};
    const int64_t indices[] = {0, 1};
    for (int taken = 0; taken < 2; taken++) {
        float expected = output_of(p.on_far, &rows, 5, 6, false);
        lkt_ok(lk_step_take_rows(p.on_far, "features", &rows, indices));
        lkt_ok(lk_step_begin(p.on_far, fields, 1, false));
        assert_true(output_of(p.on_far, &rows, 5, 6, taken) == expected);
    }
    free_pair(&p);
}

/* A part of a dataset is not all of it, though both begin at the same address. */
static void rows_of_other_lengths_are_others(void **state)
{
    (void)state;
    enum { LENGTH = 64 };
    static float values[LENGTH * INPUTS];
    lk_rows all = numbered_rows(values, LENGTH, 0), few = all;
    few.length = 4;
    pair p = make_pair(*LK_OPTIONS(lk_step_options));
    same_outputs(p.on_far, &few, 1, 3);
    same_outputs(p.on_far, &all, 40, LENGTH - 1);
    free_pair(&p);
}

static void rows_may_change_when_they_are_forgotten(void **state)
{
    (void)state;
    enum { LENGTH = 8 };
    static float values[LENGTH * INPUTS];
    pair p = make_pair(*LK_OPTIONS(lk_step_options));
    lk_step *both[] = {p.on_host, p.on_far};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 3; i++) {
            lk_rows rows = numbered_rows(values, LENGTH, (float)(100 * i));
            same_outputs(both[k], &rows, 2, 5);
            same_outputs(both[k], &rows, 0, 7);
            lk_step_forget_rows(both[k]);
        }
    free_pair(&p);
}

static void descend(const lk_update *u)
{
    for (int64_t i = 0; i < u->count; i++) u->values[i] -= (float)u->lr * u->grads[i];
}

/* C cannot reach that memory. */
static void a_rule_of_ones_own_is_refused(void **state)
{
    (void)state;
    lk_engine *far = lkt_far_engine_open();
    lkt_not_null(far);
    lk_module *model = lk_linear(INPUTS, CLASSES);
    lk_criterion *criterion = lk_cross_entropy_loss();
    lk_optimizer *optimizer = lk_custom_optimizer(.name = "Descend", .update = descend, .lr = 0.1);
    assert_null(lk_step(.model = model, .criterion = criterion, .optimizer = optimizer, .engine = far));
    lkt_contains(lk_error(), "Descend: your own update rule is C and runs on the CPU");
    lk_optimizer_free(optimizer);
    lk_criterion_free(criterion);
    lk_module_free(model);
    lk_engine_close(far);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rule_of_ones_own_is_refused),
        cmocka_unit_test(recorded_steps_equal_the_hosts),
        cmocka_unit_test(steps_in_parts_equal_the_hosts),
        cmocka_unit_test(accumulation_and_clipping),
        cmocka_unit_test(evaluation_and_training_alternate),
        cmocka_unit_test(numbers_changed_between_steps_count),
        cmocka_unit_test(a_loss_that_is_not_finite_changes_nothing),
        cmocka_unit_test(a_wrong_target_names_the_layer),
        cmocka_unit_test(the_host_reads_and_writes_in_between),
        cmocka_unit_test(the_model_comes_back),
        cmocka_unit_test(asynchronous_steps),
        cmocka_unit_test(asynchronous_steps_outlive_a_bad_batch),
        cmocka_unit_test(asynchronous_steps_stop_at_nan),
        cmocka_unit_test(lost_asynchronous_batches_do_not_count),
        cmocka_unit_test(a_lost_asynchronous_batch_is_heard_of),
        cmocka_unit_test(a_program_without_room_is_no_failure),
        cmocka_unit_test(lost_batches_are_taken_back),
        cmocka_unit_test(rows_are_gathered_where_the_engine_is),
        cmocka_unit_test(rows_of_a_batch_that_fails_are_forgotten),
        cmocka_unit_test(a_batch_that_was_begun_may_be_replaced),
        cmocka_unit_test(rows_of_other_lengths_are_others),
        cmocka_unit_test(rows_may_change_when_they_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
