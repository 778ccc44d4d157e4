/* Callbacks that speak with the run's other ranks, and steps of their own inside a run on several ranks. */
#include "lktest.h"

#include <lockstep/lockstep.h>

#include <unistd.h>

enum { SAMPLES = 101, FEATURES = 3 };

static lk_dataset *numbers(int64_t count)
{
    lk_generator generator;
    lk_generator_seed(&generator, 3);
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(count, FEATURES)),
              *y = lk_tensor_create(LK_F32, LK_SHAPE(count, 1));
    lk_normal(x, 0, 1, &generator);
    lk_normal(y, 0, 1, &generator);
    return lk_tensor_dataset({"features", x}, {"targets", y});
}

typedef struct job {
    int ranks;
    bool local;
    bool with_valid;
    lk_callback *callbacks[4];
    int callback_count;
    const lk_runner_ops *ops;
    lk_module *model;
} job;

static lk_status train(job *j, lk_runner **out)
{
    lk_runner *runner = *out = j->ops ? lk_custom_runner(j->ops, j) : lk_supervised_runner();
    lk_loader *loader = lk_loader(numbers(SAMPLES), .batch_size = 5), *valid = NULL;
    if (j->with_valid) valid = lk_loader(numbers(13), .batch_size = 2);
    lk_named_loader loaders[] = {{"train", loader}, {"valid", valid}};
    if (!j->ops && !j->model) {
        lk_manual_seed(7);
        j->model = lk_linear(FEATURES, 1);
    }
    return lk_train(runner, .model = j->ops ? NULL : j->model, .criterion = j->ops ? NULL : lk_mse_loss(),
                    .optimizer = j->ops ? NULL : lk_sgd(.lr = 0.05, .momentum = 0.9),
                    .loaders = {loaders, j->with_valid ? 2 : 1},
                    .callbacks = {j->callbacks, j->callback_count}, .nproc = j->ranks, .num_epochs = 2,
                    .local_gradients = j->local, .thread_count = 1, .device = "cpu");
}

static void hash_of(const lk_module *model, char *hash)
{
    lk_state_dict *state = lk_module_state_dict(model);
    lkt_ok(lk_weights_hash(state, hash));
    lk_state_dict_free(state);
}

/* ---- Each collective, at each moment where all ranks are ---- */

#define EXPECT(condition)                                                                                    \
    if (!(condition)) {                                                                                      \
        fprintf(stderr, "rank %d: %s\n", runner->rank, #condition);                                          \
        return LK_ERR_INVALID;                                                                               \
    }

static lk_status speak(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    int64_t size = runner->world_size, rank = runner->rank;
    int64_t sum = rank + 1, pieces[8] = {0}, word = rank == size - 1 ? 42 : 0;
    double highest = (double)rank, mean = (double)rank;
    lk_status status = lk_runner_all_reduce(runner, &sum, 1, LK_I64, LK_REDUCE_SUM);
    if (!status) status = lk_runner_all_reduce(runner, &highest, 1, LK_F64, LK_REDUCE_MAX);
    if (!status) status = lk_runner_all_reduce(runner, &mean, 1, LK_F64, LK_REDUCE_AVG);
    if (!status) status = lk_runner_all_gather(runner, &rank, pieces, 1, LK_I64);
    if (!status) status = lk_runner_broadcast(runner, &word, 1, LK_I64, (int)size - 1);
    if (!status) status = lk_runner_barrier(runner);
    if (status) return status;
    EXPECT(sum == size * (size + 1) / 2);
    EXPECT(highest == (double)(size - 1));
    EXPECT(fabs(mean - (double)(size - 1) / 2) < 1e-15);
    for (int64_t r = 0; r < size; r++) EXPECT(pieces[r] == r);
    EXPECT(word == 42);
    return LK_OK;
}

static lk_status speak_in_train(lk_callback *callback, lk_runner *runner)
{
    return runner->is_train_loader ? speak(callback, runner) : LK_OK;
}

static void collectives_at_every_moment(void **state)
{
    (void)state;
    static const lk_callback_ops ops = {LK_SIZE(lk_callback_ops),      .name = "speak",
                                        .on_experiment_start = speak,  .on_epoch_start = speak,
                                        .on_loader_start = speak,      .on_batch_start = speak_in_train,
                                        .on_backward = speak_in_train, .on_batch_end = speak_in_train,
                                        .on_loader_end = speak,        .on_epoch_end = speak,
                                        .on_experiment_end = speak};
    for (int ranks = 1; ranks <= 3; ranks++) {
        lk_runner *runner;
        job j = {.ranks = ranks,
                 .with_valid = true,
                 .callbacks = {lk_callback_create(&ops, NULL, LK_ORDER_EXTERNAL)},
                 .callback_count = 1};
        lkt_ok(train(&j, &runner));
        lk_runner_free(runner);
    }
}

static void a_batch_that_not_all_have_is_refused(void **state)
{
    (void)state;
    lk_runner *runner;
    job j = {
        .ranks = 3, .with_valid = true, .callbacks = {lk_on(batch_end, speak, NULL)}, .callback_count = 1};
    lkt_fails(train(&j, &runner), LK_ERR_INVALID, "loader \"valid\" has 3 batches on rank 0 and 2 on rank 2");
    lk_runner_free(runner);
}

static lk_status wrong_operation(lk_callback *callback, lk_runner *runner)
{
    int64_t number = 1;
    (void)callback;
    return lk_runner_all_reduce(runner, &number, 1, LK_I64, LK_REDUCE_AVG);
}

static void one_rank_checks_as_several(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        lk_runner *runner;
        job j = {
            .ranks = ranks, .callbacks = {lk_on(epoch_start, wrong_operation, NULL)}, .callback_count = 1};
        lkt_fails(train(&j, &runner), LK_ERR_DTYPE, "avg needs a floating dtype");
        lk_runner_free(runner);
    }
}

/* Rank 1 does not make the call: it comes to the next collective of the run, which is another one. */
static lk_status only_some(lk_callback *callback, lk_runner *runner)
{
    double numbers[7] = {0};
    (void)callback;
    return runner->rank == 1 ? LK_OK : lk_runner_all_reduce(runner, numbers, 7, LK_F64, LK_REDUCE_SUM);
}

static void a_rank_that_does_not_call_is_named(void **state)
{
    (void)state;
    lk_runner *runner;
    job j = {.ranks = 2, .callbacks = {lk_on(epoch_end, only_some, NULL)}, .callback_count = 1};
    lk_status status = train(&j, &runner);
    assert_int_not_equal(status, LK_OK);
    lkt_contains(lk_error(), "rank 1");
    lk_runner_free(runner);
}

/* ---- Torchbearer's callbacks ---- */

static lk_status share_weights(lk_callback *callback, lk_runner *runner)
{
    lk_param_list params;
    (void)callback;
    lk_status status = lk_module_params(runner->model, &params);
    for (int i = 0; !status && i < params.count; i++)
        status = lk_runner_broadcast(runner, params.items[i].param->value->data,
                                     lk_tensor_count(params.items[i].param->value), LK_F32, 0);
    lk_param_list_free(&params);
    return status;
}

static lk_status average(lk_callback *callback, lk_runner *runner)
{
    int64_t count;
    (void)callback;
    void *grads = lk_step_flat_grads(runner->step, &count);
    lk_status status = lk_runner_all_reduce(runner, grads, count, LK_F32, LK_REDUCE_AVG);
    return status ? status : lk_step_grads_changed(runner->step);
}

/* So that sharing the weights shows. */
static lk_status spoil(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    if (runner->rank) lk_tensor_set(lk_module_param(runner->model, "weight")->value, 0, runner->rank);
    return LK_OK;
}

static void averaging_by_callbacks_is_ddp(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) {
        lk_runner *a, *b;
        char built_in[65], own[65];
        job one = {.ranks = ranks};
        job other = {.ranks = ranks,
                     .local = true,
                     .callbacks = {lk_on(experiment_start, spoil, NULL),
                                   lk_on(experiment_start, share_weights, NULL),
                                   lk_on(backward, average, NULL)},
                     .callback_count = 3};
        lkt_ok(train(&one, &a));
        lkt_ok(train(&other, &b));
        hash_of(a->model, built_in);
        hash_of(b->model, own);
        assert_string_equal(own, built_in);
        lk_runner_free(a);
        lk_runner_free(b);
    }
}

static void local_gradients_excludes_what_needs_averages(void **state)
{
    (void)state;
    lk_runner *runner = lk_supervised_runner();
    lkt_fails(lk_train(runner, .model = lk_linear(FEATURES, 1), .criterion = lk_mse_loss(),
                       .optimizer = lk_sgd(.lr = 0.1),
                       .loaders = lk_loaders({"train", lk_loader(numbers(8), .batch_size = 2)}), .nproc = 2,
                       .local_gradients = true, .sync_batch_norm = true),
              LK_ERR_INVALID, "local_gradients");
    lk_runner_free(runner);
}

/* ---- A step of one's own in handle_batch ---- */

typedef enum own_kind { RUNNERS, PLAIN, ALONE, FROM_OUTSIDE, KEPT } own_kind;

static own_kind kind;
static lk_module *model;
static lk_criterion *criterion;
static lk_optimizer *optimizer;
static lk_step *own;

static lk_status handle_batch(lk_runner *runner, const lk_batch *batch)
{
    lk_input inputs[] = {{"features", lk_batch_get(batch, "features")},
                         {"targets", lk_batch_get(batch, "targets")}};
    lk_step_options options = {LK_SIZE(lk_step_options), .model = model, .criterion = criterion,
                               .optimizer = optimizer};
    if (kind == ALONE) options.comm = lk_comm_alone();
    if (!own && kind != RUNNERS) own = lk_step_with(&options);
    lk_step *step = kind == RUNNERS ? lk_runner_step(runner, "main", &options) : own;
    if (!step) return lk_error_status();
    lk_status status = lk_step_train(step, inputs, 2);
    return status ? status : lk_metrics_set(runner->batch_metrics, "loss", lk_step_loss(step));
}

/* All ranks' hashes in rank order; whether they are one. */
static char first_hash[65];
static bool all_equal;

static lk_status compare(lk_callback *callback, lk_runner *runner)
{
    char mine[64], all[8 * 64];
    (void)callback;
    lk_state_dict *state = lk_module_state_dict(model);
    char text[65];
    lk_status status = lk_weights_hash(state, text);
    lk_state_dict_free(state);
    memcpy(mine, text, 64);
    if (!status) status = lk_runner_all_gather(runner, mine, all, 64, LK_U8);
    all_equal = !status;
    for (int r = 1; r < runner->world_size; r++) all_equal = all_equal && !memcmp(all, all + 64 * r, 64);
    memcpy(first_hash, all, 64);
    if (own && kind != KEPT) lk_step_free(own);
    if (kind != KEPT) own = NULL;
    return status;
}

/* The comm that it has taken is gone. */
static void use_after_the_run(void)
{
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(2, FEATURES)),
              *y = lk_tensor_create(LK_F32, LK_SHAPE(2, 1));
    lk_input inputs[] = {{"features", x}, {"targets", y}};
    lkt_not_null(own);
    lkt_fails(lk_step_train(own, inputs, 2), LK_ERR_INVALID, "has ended");
    lkt_ok(lk_step_evaluate(own, inputs, 2));
    lk_step_free(own);
    own = NULL;
    lk_tensor_free(x);
    lk_tensor_free(y);
}

static lk_status run_own(own_kind wanted, int ranks)
{
    static const lk_runner_ops ops = {LK_SIZE(lk_runner_ops), .handle_batch = handle_batch};
    static const lk_callback_ops last = {LK_SIZE(lk_callback_ops), .name = "compare",
                                         .on_experiment_end = compare};
    lk_runner *runner;
    kind = wanted;
    lk_manual_seed(42);
    model = lk_linear(FEATURES, 1);
    criterion = lk_mse_loss();
    optimizer = lk_sgd(.lr = 0.1);
    job j = {.ranks = ranks,
             .ops = &ops,
             .callbacks = {lk_callback_create(&last, NULL, LK_ORDER_EXTERNAL)},
             .callback_count = 1};
    lk_status status = train(&j, &runner);
    lk_runner_free(runner);
    if (kind == KEPT) use_after_the_run();
    lk_optimizer_free(optimizer);
    lk_criterion_free(criterion);
    lk_module_free(model);
    return status;
}

static void a_plain_step_is_averaged(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) {
        char expected[65];
        lkt_ok(run_own(RUNNERS, ranks));
        assert_true(all_equal);
        memcpy(expected, first_hash, sizeof expected);
        lkt_ok(run_own(PLAIN, ranks));
        assert_true(all_equal);
        assert_memory_equal(first_hash, expected, 64);
    }
    lkt_ok(run_own(ALONE, 2)); /* asked for */
    assert_false(all_equal);
    lkt_ok(run_own(KEPT, 2));
}

static void a_step_from_outside_is_refused(void **state)
{
    (void)state;
    lk_engine *engine = lk_engine_open("ref", NULL); /* without threads: it lives through a fork */
    lk_module *outside = lk_linear(FEATURES, 1);
    lk_criterion *loss = lk_mse_loss();
    lk_optimizer *rule = lk_sgd(.lr = 0.1);
    own = lk_step(.model = outside, .criterion = loss, .optimizer = rule, .engine = engine);
    lkt_not_null(own);
    lkt_fails(run_own(FROM_OUTSIDE, 2), LK_ERR_INVALID, "lk_runner_step");
    lk_step_free(own);
    own = NULL;
    lk_optimizer_free(rule);
    lk_criterion_free(loss);
    lk_module_free(outside);
    lk_engine_close(engine);
}

/* ---- Numbers that differ between ranks ---- */

static char warned[1024];
static int warning_count;

static void note_warning(const char *level, const char *text, void *context)
{
    (void)level, (void)context;
    warning_count++;
    snprintf(warned, sizeof warned, "%s", text);
}

static lk_status set_own(lk_callback *callback, lk_runner *runner)
{
    bool joins = callback->context != NULL;
    double seen = 10 + runner->rank;
    if (joins) {
        lk_status status = lk_runner_all_reduce(runner, &seen, 1, LK_F64, LK_REDUCE_SUM);
        if (status) return status;
    }
    if (runner->is_master) lk_metrics_set(runner->loader_metrics, "masters_own", 1);
    return lk_metrics_set(runner->loader_metrics, "seen", seen);
}

static void differences_are_told_once(void **state)
{
    (void)state;
    lk_set_log_sink(note_warning, NULL);
    for (int i = 0; i < 2; i++) {
        lk_runner *runner;
        job j = {.ranks = 2,
                 .with_valid = true,
                 .callbacks = {lk_on(loader_end, set_own, i ? &warning_count : NULL), lk_timer_callback()},
                 .callback_count = 2};
        warning_count = 0;
        lkt_ok(train(&j, &runner));
        assert_int_equal(warning_count, i ? 0 : 1);
        if (!i) lkt_contains(warned, "loader metric \"seen\" is 10 on rank 0 and 11 on rank 1");
        lk_runner_free(runner);
    }
    lk_set_log_sink(NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_at_every_moment),
        cmocka_unit_test(a_batch_that_not_all_have_is_refused),
        cmocka_unit_test(one_rank_checks_as_several),
        cmocka_unit_test(a_rank_that_does_not_call_is_named),
        cmocka_unit_test(averaging_by_callbacks_is_ddp),
        cmocka_unit_test(local_gradients_excludes_what_needs_averages),
        cmocka_unit_test(a_plain_step_is_averaged),
        cmocka_unit_test(a_step_from_outside_is_refused),
        cmocka_unit_test(differences_are_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
