/* Two steps of one model, wherever their engines have their memory: each scene is played on the host, on one
 * engine with memory of its own, on two, and on one beside the host, and its losses, weights and statistics
 * are the host's: bit for bit or, with LOCKSTEP_TEST_ENGINE=cuda on GPUs, nearly. The first of all only
 * evaluates: a step that trains would make others look for their parameters. */
#include "far_engine.h"
#include "lktest.h"

#include <lockstep/lockstep.h>

#include "base/memory.h"
#include "graph/home.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 8, INPUTS = 6, HIDDEN = 7, CLASSES = 3, MAX_NUMBERS = 4096 };

typedef struct numbers {
    double values[MAX_NUMBERS];
    int count;
} numbers;

typedef struct scene {
    lk_engine *trainers, *evaluators; /* engines */
    lk_module *model;
    lk_criterion *criterion;
    lk_optimizer *optimizer;
    lk_tensor *x, *y;
    numbers seen;
} scene;

static void note(scene *s, double value)
{
    assert_true(s->seen.count < MAX_NUMBERS);
    s->seen.values[s->seen.count++] = value;
}

static lk_step *make_trainer(scene *s)
{
    lk_step *step = lk_step(.model = s->model, .criterion = s->criterion, .optimizer = s->optimizer,
                            .engine = s->trainers);
    int64_t count;
    lkt_not_null(step);
    const float *values = lk_step_flat_params(step, &count); /* before the device has seen them */
    for (int64_t i = 0; i < count; i++) note(s, values[i]);
    return step;
}

static lk_step *make_evaluator(scene *s)
{
    lk_step *step = lk_step(.model = s->model, .criterion = s->criterion, .engine = s->evaluators);
    lkt_not_null(step);
    return step;
}

static void next_batch(scene *s, int seed)
{
    lk_generator generator;
    lk_generator_seed(&generator, (uint64_t)seed);
    lkt_ok(lk_normal(s->x, 0.5, 2, &generator));
    for (int i = 0; i < BATCH; i++) ((int64_t *)s->y->data)[i] = lk_randint(CLASSES, &generator);
}

static void train(scene *s, lk_step *step, int count)
{
    lk_input fields[] = {{"features", s->x}, {"targets", s->y}};
    for (int i = 0; i < count; i++) {
        next_batch(s, i);
        lkt_ok(lk_step_train(step, fields, 2));
        note(s, lk_step_loss(step));
    }
}

static void evaluate(scene *s, lk_step *step, int count)
{
    lk_input fields[] = {{"features", s->x}, {"targets", s->y}};
    for (int i = 0; i < count; i++) {
        next_batch(s, 100 + i);
        lkt_ok(lk_step_evaluate(step, fields, 2));
        note(s, lk_step_loss(step));
    }
}

static void note_values(scene *s, bool pull)
{
    lk_param_list params;
    lkt_ok(lk_module_params(s->model, &params));
    for (int i = 0; i < params.count; i++) {
        const lk_param *param = params.items[i].param;
        if (pull) lkt_ok(lki_param_pull(param));
        for (int64_t k = 0; k < lk_tensor_count(param->value); k++) note(s, lk_tensor_get(param->value, k));
    }
    lk_param_list_free(&params);
}

/* As checkpoints read them. */
static void note_params(scene *s)
{
    note_values(s, true);
}

/* As a user of lk_step_pull does. */
static void note_pulled(scene *s, lk_step *step)
{
    lkt_ok(lk_step_pull(step));
    note_values(s, false);
}

/* As one who loads a checkpoint. */
static void halve_params(scene *s)
{
    lk_param_list params;
    lkt_ok(lk_module_params(s->model, &params));
    for (int i = 0; i < params.count; i++) {
        lk_param *param = params.items[i].param;
        if (!lk_dtype_is_float(param->value->dtype)) continue;
        lkt_ok(lki_param_pull(param));
        for (int64_t k = 0; k < lk_tensor_count(param->value); k++)
            lk_tensor_set(param->value, k, lk_tensor_get(param->value, k) / 2);
        lki_param_push(param);
    }
    lk_param_list_free(&params);
}

static void set_trainable(scene *s, bool first, bool rest)
{
    lk_param_list params;
    lkt_ok(lk_module_params(s->model, &params));
    for (int i = 0; i < params.count; i++) {
        lk_param *param = params.items[i].param;
        if (!param->is_buffer) param->trainable = params.items[i].path[0] == '0' ? first : rest;
    }
    lk_param_list_free(&params);
}

/* ---- Scenes ---- */

static void only_evaluates(scene *s)
{
    lk_step *evaluator = make_evaluator(s);
    evaluate(s, evaluator, 3);
    note_params(s);
    lk_step_free(evaluator);
}

static void evaluates_behind_training(scene *s)
{
    lk_step *trainer = make_trainer(s);
    train(s, trainer, 5);
    lk_step *evaluator = make_evaluator(s);
    for (int i = 0; i < 3; i++) {
        evaluate(s, evaluator, 3);
        train(s, trainer, 4);
        note_params(s);
        evaluate(s, trainer, 1);
        train(s, trainer, 1);
    }
    evaluate(s, evaluator, 1);
    note_pulled(s, trainer);
    lk_step_free(evaluator);
    train(s, trainer, 2);
    note_params(s);
    lk_step_free(trainer);
    note_params(s);
}

static void evaluates_before_training(scene *s)
{
    lk_step *evaluator = make_evaluator(s);
    evaluate(s, evaluator, 2);
    lk_step *trainer = make_trainer(s);
    train(s, trainer, 5);
    note_pulled(s, trainer);
    evaluate(s, evaluator, 2);
    train(s, trainer, 3);
    note_params(s);
    evaluate(s, evaluator, 1);
    lk_step_free(trainer);
    evaluate(s, evaluator, 1);
    note_params(s);
    lk_step_free(evaluator);
    note_params(s);
}

/* What the evaluator has kept the trainer takes over, and goes on from where it was. */
static void the_first_evaluator_goes(scene *s)
{
    lk_step *evaluator = make_evaluator(s);
    evaluate(s, evaluator, 2);
    lk_step *trainer = make_trainer(s);
    train(s, trainer, 5);
    lk_step_free(evaluator);
    train(s, trainer, 3);
    note_params(s);
    evaluate(s, trainer, 1);
    lk_step_free(trainer);
}

static void trainers_come_and_go(scene *s)
{
    lk_step *evaluator = make_evaluator(s);
    for (int i = 0; i < 4; i++) {
        lk_step *trainer = make_trainer(s);
        train(s, trainer, 3);
        evaluate(s, evaluator, 2);
        train(s, trainer, 3);
        if (i % 2) note_params(s);
        lk_step_free(trainer);
        evaluate(s, evaluator, 2);
    }
    note_params(s);
    lk_step_free(evaluator);
}

static void the_host_writes_in_between(scene *s)
{
    lk_step *evaluator = make_evaluator(s);
    evaluate(s, evaluator, 2);
    lk_step *trainer = make_trainer(s);
    train(s, trainer, 3);
    evaluate(s, evaluator, 2);
    halve_params(s);
    train(s, trainer, 2);
    halve_params(s);
    evaluate(s, evaluator, 1);
    train(s, trainer, 2);
    evaluate(s, trainer, 1);
    note_params(s);
    lk_step_free(evaluator);
    lk_step_free(trainer);
}

/* Each trains a part of the model, and both move the statistics of its batch norm. */
static void each_trains_a_part(scene *s)
{
    lk_optimizer *other = lk_sgd(.lr = 0.1, .momentum = 0.9);
    set_trainable(s, true, false);
    lk_step *first = make_trainer(s);
    train(s, first, 3);
    set_trainable(s, false, true);
    lk_step *rest =
        lk_step(.model = s->model, .criterion = s->criterion, .optimizer = other, .engine = s->evaluators);
    lkt_not_null(rest);
    set_trainable(s, true, true); /* each has what it trains; gradients pass through all of them */
    for (int i = 0; i < 3; i++) {
        train(s, rest, 1 + i);
        train(s, first, 3 - i);
        if (i == 1) note_params(s);
        evaluate(s, i == 1 ? first : rest, 1);
    }
    lk_step_free(first);
    train(s, rest, 2);
    note_pulled(s, rest);
    lk_step_free(rest);
    note_params(s);
    lk_optimizer_free(other);
}

/* ---- Where they are played ---- */

typedef void (*act)(scene *);

static numbers play(act played, lk_engine *trainers, lk_engine *evaluators)
{
    scene s = {.trainers = trainers, .evaluators = evaluators};
    lk_manual_seed(3);
    s.model = lk_sequential(lk_linear(INPUTS, HIDDEN), lk_batch_norm1d(HIDDEN), lk_relu(),
                            lk_linear(HIDDEN, CLASSES));
    s.criterion = lk_cross_entropy_loss();
    s.optimizer = lk_sgd(.lr = 0.1, .momentum = 0.9);
    s.x = lk_tensor_create(LK_F32, LK_SHAPE(BATCH, INPUTS));
    s.y = lk_tensor_create(LK_I64, LK_SHAPE(BATCH));
    played(&s);
    lk_tensor_free(s.x);
    lk_tensor_free(s.y);
    lk_optimizer_free(s.optimizer);
    lk_criterion_free(s.criterion);
    lk_module_free(s.model);
    return s.seen;
}

static bool on_gpus(void)
{
    const char *engine = getenv("LOCKSTEP_TEST_ENGINE");
    return engine && strcmp(engine, "cuda") == 0;
}

static lk_engine *open_device(bool eager)
{
    lk_engine *engine = on_gpus() ? lk_engine_open("cuda", NULL) : lkt_far_engine_open(.eager = eager);
    lkt_not_null(engine);
    return engine;
}

static void same_numbers(const numbers *wanted, const numbers *seen, const char *where)
{
    double tolerance = on_gpus() ? 1e-4 : 0;
    assert_int_equal(wanted->count, seen->count);
    for (int i = 0; i < wanted->count; i++)
        if (!(fabs(wanted->values[i] - seen->values[i]) <= tolerance))
            fail_msg("%s: number %d is %g, not %g", where, i, seen->values[i], wanted->values[i]);
}

static void played_everywhere(void **state)
{
    const act *played = *state;
    lk_engine *host = lk_engine_open("ref", NULL);
    lk_engine *far = open_device(false), *other = open_device(true);
    struct {
        const char *where;
        lk_engine *trainers, *evaluators;
    } places[] = {{"on one device", far, far},
                  {"on two", far, other},
                  {"trained on a device", far, host},
                  {"trained on the host", host, far}};
    enum { PLACES = sizeof places / sizeof *places };
    numbers *seen = LKI_NEW_ARRAY(numbers, PLACES), *wanted = LKI_NEW(numbers);
    assert_true(seen && wanted);
    for (int i = 0; i < PLACES; i++) seen[i] = play(*played, places[i].trainers, places[i].evaluators);
    *wanted = play(*played, host, host);
    for (int i = 0; i < PLACES; i++) same_numbers(wanted, &seen[i], places[i].where);
    lki_free(seen);
    lki_free(wanted);
    lk_engine_close(host);
    lk_engine_close(far);
    lk_engine_close(other);
}

#define PLAYED(scene)                                                                                        \
    {                                                                                                        \
#scene, played_everywhere, NULL, NULL, &(act)                                                        \
        {                                                                                                    \
            scene                                                                                            \
        }                                                                                                    \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLAYED(only_evaluates), /* the first */
        PLAYED(evaluates_behind_training),
        PLAYED(evaluates_before_training),
        PLAYED(the_first_evaluator_goes),
        PLAYED(trainers_come_and_go),
        PLAYED(the_host_writes_in_between),
        PLAYED(each_trains_a_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
