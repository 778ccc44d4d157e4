/* Several ranks train the model that one rank with the same global batch would train, and report the same
 * numbers. */
#include "lktest.h"

#include <lockstep/lockstep.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/comm.h"
#include "comm/net.h"
#include "launch/ranks.h"
#include "run/run.h"
#include "step/step.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SAMPLES = 203, FEATURES = 12, CLASSES = 5 };

static lk_dataset *numbers(int64_t count, uint64_t seed)
{
    lk_generator generator;
    lk_generator_seed(&generator, seed);
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(count, FEATURES)),
              *y = lk_tensor_create(LK_I64, LK_SHAPE(count));
    lk_normal(x, 0, 1, &generator);
    for (int64_t i = 0; i < count; i++) lk_tensor_set(y, i, (double)lk_randint(CLASSES, &generator));
    return lk_tensor_dataset({"features", x}, {"targets", y});
}

static lk_module *perceptron(bool batch_norm)
{
    lk_manual_seed(11);
    /* A bias before a batch norm has no gradient but rounding, which Adam would blow up. */
    if (batch_norm)
        return lk_sequential(lk_linear(FEATURES, 16, .no_bias = true), lk_batch_norm1d(16), lk_relu(),
                             lk_linear(16, CLASSES));
    return lk_sequential(lk_linear(FEATURES, 16), lk_relu(), lk_linear(16, CLASSES));
}

typedef struct job {
    int ranks, batch_size, epochs, accumulation;
    bool batch_norm, compress;
    lk_optimizer *(*optimizer)(void);
} job;

static lk_optimizer *momentum_sgd(void)
{
    return lk_sgd(.lr = 0.05, .momentum = 0.9);
}

static lk_optimizer *adam(void)
{
    return lk_adam(.lr = 0.01);
}

static lk_optimizer *frozen(void)
{
    return lk_sgd(.lr = LK_ZERO);
}

/* The shares of the ranks, in order, make up the batch of one rank: rank r takes samples r, r + ranks, ... */
static lk_runner *train_with(const job *j, lk_callback *further)
{
    lk_runner *runner = lk_supervised_runner();
    lk_callback *callbacks[] = {
        lk_accuracy_callback(.num_classes = CLASSES),
        lk_precision_recall_f1_support_callback(.num_classes = CLASSES, .compute_per_class_metrics = true),
        lk_auc_callback(.num_classes = CLASSES, .compute_per_class_metrics = true),
        lk_optimizer_callback(.accumulation_steps = j->accumulation), further};
    lk_status status = lk_train(
        runner, .model = perceptron(j->batch_norm), .criterion = lk_cross_entropy_loss(),
        .optimizer = j->optimizer(),
        .loaders =
            lk_loaders({"train", lk_loader(numbers(200, 1), .batch_size = j->batch_size, .no_shuffle = true)},
                       {"valid", lk_loader(numbers(SAMPLES, 2), .batch_size = 16)}),
        .callbacks = {callbacks, further ? 5 : 4}, .num_epochs = j->epochs, .valid_loader = "valid",
        .nproc = j->ranks, .sync_batch_norm = true, .compress_gradients = j->compress, .check_replicas = 1,
        .thread_count = 1);
    if (status) fail_msg("%d ranks: %s", j->ranks, lk_error());
    return runner;
}

static lk_runner *train(const job *j)
{
    return train_with(j, NULL);
}

static double largest_difference(const lk_runner *a, const lk_runner *b)
{
    lk_param_list ours, theirs;
    double largest = 0;
    lkt_ok(lk_module_params(a->model, &ours));
    lkt_ok(lk_module_params(b->model, &theirs));
    for (int i = 0; i < ours.count; i++)
        for (int64_t k = 0; k < lk_tensor_count(ours.items[i].param->value); k++) {
            double difference = fabs(lk_tensor_get(ours.items[i].param->value, k) -
                                     lk_tensor_get(theirs.items[i].param->value, k));
            if (difference > largest) largest = difference;
        }
    lk_param_list_free(&ours);
    lk_param_list_free(&theirs);
    return largest;
}

static void expect_same_weights(job one, job several, double tolerance)
{
    lk_runner *a = train(&one), *b = train(&several);
    double difference = largest_difference(a, b);
    if (!(difference <= tolerance)) fail_msg("the weights differ by %g", difference);
    lk_runner_free(a);
    lk_runner_free(b);
}

static double norm_of(job j)
{
    lk_runner *runner = train_with(&j, lk_gradient_norm_callback());
    double norm = lk_metrics_get(lk_runner_loader_metrics(runner, "train"), "grad_norm");
    lk_runner_free(runner);
    return norm;
}

/* The norm of the average is smaller than the average of the ranks' norms. */
static void the_gradients_norm_is_that_of_the_average(void **state)
{
    (void)state;
    double plain = norm_of((job){.ranks = 1, .batch_size = 20, .epochs = 1, .optimizer = frozen});
    double sums =
        norm_of((job){.ranks = 1, .batch_size = 20, .epochs = 1, .accumulation = 2, .optimizer = frozen});
    job two = {.ranks = 2, .batch_size = 10, .epochs = 1, .optimizer = frozen};
    lkt_close(norm_of(two), plain, 1e-5);
    two.accumulation = 2;
    lkt_close(norm_of(two), sums, 1e-5);
    two.compress = true;
    lkt_close(norm_of(two), sums, 5e-3 * sums);
    two.accumulation = 1;
    lkt_close(norm_of(two), plain, 5e-3 * plain);
}

static void two_ranks_are_one_of_twice_the_batch(void **state)
{
    (void)state;
    lk_optimizer *(*optimizers[])(void) = {momentum_sgd, adam};
    for (int i = 0; i < 2; i++)
        for (int batch_norm = 0; batch_norm < 2; batch_norm++)
            expect_same_weights((job){1, 10, 5, 0, batch_norm, false, optimizers[i]},
                                (job){2, 5, 5, 0, batch_norm, false, optimizers[i]}, 1e-6);
}

static void four_ranks_are_one_of_four_times_the_batch(void **state)
{
    (void)state;
    expect_same_weights((job){1, 20, 3, 0, true, false, momentum_sgd},
                        (job){4, 5, 3, 0, true, false, momentum_sgd}, 1e-6);
}

static void accumulated_gradients_travel_once(void **state)
{
    (void)state;
    expect_same_weights((job){1, 10, 3, 2, false, false, momentum_sgd},
                        (job){2, 5, 3, 2, false, false, momentum_sgd}, 1e-6);
}

static void compressed_gradients_stay_close(void **state)
{
    (void)state;
    expect_same_weights((job){1, 10, 3, 0, false, false, momentum_sgd},
                        (job){2, 5, 3, 0, false, true, momentum_sgd}, 0.02);
}

/* With weights that stay as they are, every metric of the valid loader is a function of the data alone. */
static void metrics_do_not_depend_on_the_number_of_ranks(void **state)
{
    (void)state;
    static const int worlds[] = {2, 3, 4, 7};
    job one = {1, 8, 1, 0, false, false, frozen};
    lk_runner *expected = train(&one);
    const lk_metrics *reference = lk_runner_loader_metrics(expected, "valid");
    assert_true(lk_metrics_count(reference) > 30);
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
        job several = one;
        several.ranks = worlds[w];
        lk_runner *runner = train(&several);
        const lk_metrics *metrics = lk_runner_loader_metrics(runner, "valid");
        assert_int_equal(lk_metrics_count(metrics), lk_metrics_count(reference));
        for (int i = 0; i < lk_metrics_count(reference); i++) {
            const char *name = lk_metrics_name(reference, i);
            double ours = lk_metrics_get(metrics, name), theirs = lk_metrics_value(reference, i);
            if (strstr(name, "/std")) continue; /* over batches, which are others */
            if (!(fabs(ours - theirs) <= 1e-6))
                fail_msg("%d ranks: %s is %.9g, not %.9g", worlds[w], name, ours, theirs);
        }
        lk_runner_free(runner);
    }
    lk_runner_free(expected);
}

/* A rank that dies ends the run with its name, and nobody hangs. */
static lk_status die(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    if (runner->rank == 1 && runner->batch_step == 3) raise(SIGKILL);
    return LK_OK;
}

static void a_killed_rank_is_named(void **state)
{
    (void)state;
    lk_runner *runner = lk_supervised_runner();
    lk_status status = lk_train(runner, .model = perceptron(false), .criterion = lk_cross_entropy_loss(),
                                .optimizer = momentum_sgd(),
                                .loaders = lk_loaders({"train", lk_loader(numbers(200, 1), .batch_size = 5)}),
                                .callbacks = lk_callbacks(lk_on(batch_end, die, NULL)), .num_epochs = 2,
                                .nproc = 3, .thread_count = 1);
    assert_int_equal(status, LK_ERR_PEER);
    lkt_contains(lk_error(), "rank 1");
    lk_runner_free(runner);
}

/* The third way to start: a function of one's own in every rank. Whoever builds another model is told where
 * it differs. */
static lk_status train_a_model_of_ones_own(void *context)
{
    (void)context;
    lk_runner *runner = lk_supervised_runner();
    lk_status status = lk_train(runner,
                                .model = lk_sequential(lk_linear(FEATURES, 16 + lk_rank()), lk_relu(),
                                                       lk_linear(16 + lk_rank(), CLASSES)),
                                .criterion = lk_cross_entropy_loss(), .optimizer = momentum_sgd(),
                                .loaders = lk_loaders({"train", lk_loader(numbers(200, 1), .batch_size = 5)}),
                                .num_epochs = 1, .thread_count = 1);
    lk_runner_free(runner);
    return status;
}

static void different_models_are_an_error(void **state)
{
    (void)state;
    lk_status status = lk_distributed_run(train_a_model_of_ones_own, NULL, .nproc = 2);
    assert_int_not_equal(status, LK_OK);
    lkt_contains(lk_error(), "different models");
    lkt_contains(lk_error(), "rank 1");
}

/* So is whoever trains it in another way. */
typedef struct difference {
    double lr, momentum, head_lr, clip_norm;
    int accumulation;
    bool adam, frozen;
    const char *sentence;
} difference;

static lk_status train_in_ones_own_way(void *context)
{
    static const difference none;
    const difference *d = lk_rank() == 2 ? context : &none;
    lk_param_group_list groups = lk_param_groups({.prefix = "2.", .lr = d->head_lr ? d->head_lr : 0.01});
    double lr = d->lr ? d->lr : 0.05;
    lk_runner *runner = lk_supervised_runner();
    lk_module *model = perceptron(false);
    if (d->frozen) lk_module_param(model, "0.weight")->trainable = false;
    lk_status status =
        lk_train(runner, .model = model, .criterion = lk_cross_entropy_loss(),
                 .optimizer = d->adam ? lk_adam(.lr = lr, .groups = groups)
                                      : lk_sgd(.lr = lr, .momentum = d->momentum, .groups = groups),
                 .loaders = lk_loaders({"train", lk_loader(numbers(40, 1), .batch_size = 5)}),
                 .callbacks = lk_callbacks(
                     lk_optimizer_callback(.accumulation_steps = d->accumulation, .clip_norm = d->clip_norm)),
                 .num_epochs = 1, .thread_count = 1);
    lk_runner_free(runner);
    if (status == LK_OK) return lki_fail(LK_ERR_INVALID, "rank %d has noticed nothing", lk_rank());
    if (strcmp(lk_error(), ((const difference *)context)->sentence) == 0) return LK_OK;
    LKI_SCOPED char *text = lki_strdup(lk_error());
    return lki_fail(LK_ERR_INVALID, "rank %d says: %s", lk_rank(), text);
}

static void different_ways_to_train_are_an_error(void **state)
{
    (void)state;
    static const difference differences[] = {
        {.lr = 0.3,
         .sentence = "the ranks train differently: rank 2 has lr 0.3 in parameter group 1 where "
                     "rank 0 has lr 0.05 in parameter group 1"},
        {.head_lr = 0.1 + 0.2,
         .sentence = "the ranks train differently: rank 2 has lr 0.30000000000000004 in "
                     "parameter group 0 where rank 0 has lr 0.01 in parameter group 0"},
        {.momentum = 0.9,
         .sentence = "the ranks train differently: rank 2 has momentum 0.9 in parameter "
                     "group 0 where rank 0 has momentum 0 in parameter group 0"},
        {.adam = true,
         .sentence = "the ranks train differently: rank 2 has optimizer Adam where rank 0 has "
                     "optimizer SGD"},
        {.accumulation = 2,
         .sentence = "the ranks train differently: rank 2 has accumulation_steps 2 where "
                     "rank 0 has accumulation_steps 1"},
        {.clip_norm = 1,
         .sentence = "the ranks train differently: rank 2 has clip_norm 1 where rank 0 has "
                     "clip_norm 0"},
        {.frozen = true,
         .sentence = "the ranks hold different models: rank 2 has 0.weight f32 (16, 12) frozen "
                     "where rank 0 has 0.weight f32 (16, 12)"},
    };
    for (size_t i = 0; i < sizeof differences / sizeof *differences; i++)
        lkt_ok(lk_distributed_run(train_in_ones_own_way, (void *)&differences[i], .nproc = 3));
}

/* ---- More than one run of the same ranks ---- */

static lk_status train_small(lk_runner *runner, lk_callback *callback)
{
    return lk_train(runner, .model = runner->model ? NULL : perceptron(false),
                    .criterion = lk_cross_entropy_loss(), .optimizer = momentum_sgd(),
                    .loaders = lk_loaders({"train", lk_loader(numbers(40, 1), .batch_size = 5)}),
                    .callbacks = {&callback, callback != NULL}, .num_epochs = 2, .thread_count = 1,
                    .check_replicas = 1);
}

static lk_status train_again_and_again(void *context)
{
    (void)context;
    lk_status status = LK_OK;
    for (int i = 0; i < 2 && !status; i++) {
        lk_runner *runner = lk_supervised_runner();
        for (int k = 0; k < 2 && !status; k++) status = train_small(runner, NULL);
        if (!status && runner->world_size != 3)
            status = lki_fail(LK_ERR_INVALID, "a run of %d ranks", runner->world_size);
        lk_runner_free(runner);
    }
    return status;
}

static lk_status train_another(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    lk_runner *other = lk_supervised_runner();
    lk_status status = train_small(other, NULL);
    if (!status && other->world_size != runner->world_size)
        status = lki_fail(LK_ERR_INVALID, "a run of %d ranks", other->world_size);
    lk_runner_free(other);
    return status;
}

static lk_status train_two_at_once(void *context)
{
    (void)context;
    lk_runner *runner = lk_supervised_runner();
    lk_status status = train_small(runner, lk_on(epoch_end, train_another, NULL));
    lk_runner_free(runner);
    return status;
}

static void ranks_train_more_than_once(void **state)
{
    (void)state;
    lkt_ok(lk_distributed_run(train_again_and_again, NULL, .nproc = 3));
    lkt_ok(lk_distributed_run(train_two_at_once, NULL, .nproc = 2));
}

/* Threads of the engine stay with the process that has made them: ranks that follow start their own. */
static lk_status train_in_bf16(int ranks)
{
    enum { WIDTH = 300 };
    lk_runner *runner = lk_supervised_runner();
    lk_status status =
        lk_train(runner,
                 .model = lk_sequential(lk_linear(FEATURES, WIDTH), lk_relu(), lk_linear(WIDTH, WIDTH),
                                        lk_relu(), lk_linear(WIDTH, CLASSES)),
                 .criterion = lk_cross_entropy_loss(), .optimizer = adam(),
                 .loaders = lk_loaders({"train", lk_loader(numbers(83, 1), .batch_size = 8)}),
                 .num_epochs = 1, .precision = "bf16", .device = "cpu", .nproc = ranks, .thread_count = 2);
    lk_runner_free(runner);
    return status;
}

static void ranks_follow_a_run_of_one(void **state)
{
    (void)state;
    setenv("LOCKSTEP_COMM_TIMEOUT", "20", 1);
    lkt_ok(train_in_bf16(1));
    lkt_ok(train_in_bf16(2));
    lkt_ok(train_in_bf16(1));
    lkt_ok(train_in_bf16(3));
    unsetenv("LOCKSTEP_COMM_TIMEOUT");
}

/* ---- A gradient that the rest of the backward half reads ---- */

enum { SIDE = 64, DEPTH = 6 };

typedef struct sum_model {
    lk_module *all, *direct, *deep, *position;
} sum_model;

static lk_param *first_param(lk_module *module)
{
    lk_param_list list;
    lkt_ok(lk_module_params(module, &list));
    lk_param *param = list.items[0].param;
    lk_param_list_free(&list);
    return param;
}

/* direct(x) + deep(x) + position, a parameter of the sum's own shape, as BERT adds up its embeddings. */
static lk_value *add_up(lk_graph *graph, const char *const *names, lk_value *const *in, int count,
                        void *context)
{
    (void)names, (void)count;
    const sum_model *m = context;
    lk_value *sum = lk_op_add(lk_module_forward(m->direct, in[0]), lk_module_forward(m->deep, in[0]));
    sum = lk_op_add(sum, lk_graph_param(graph, first_param(m->position)));
    return lk_op_pointwise_loss(sum, in[1], NULL, NULL, LK_LOSS_MSE, 0, LK_REDUCTION_SUM);
}

static sum_model make_sum_model(void)
{
    lk_module *layers[2 * DEPTH];
    lk_manual_seed(3);
    sum_model m = {.direct = lk_linear(SIDE, SIDE, .no_bias = true)};
    for (int i = 0; i < DEPTH; i++) {
        layers[2 * i] = lk_linear(SIDE, SIDE);
        layers[2 * i + 1] = lk_tanh();
    }
    m.deep = lk_sequential_with(layers, 2 * DEPTH);
    m.position = lk_linear(SIDE, SIDE, .no_bias = true);
    m.all = lk_named_sequential({"direct", m.direct}, {"deep", m.deep}, {"position", m.position});
    return m;
}

static lk_tensor *waves(int seed)
{
    lk_tensor *tensor = lk_tensor_create(LK_F32, LK_SHAPE(SIDE, SIDE));
    for (int i = 0; i < SIDE * SIDE; i++) lk_tensor_set(tensor, i, sin(seed * 1.7 + 0.37 * i));
    return tensor;
}

/* Of direct's weight, from the rank's own batch. */
static lk_status gradient_of(lk_comm *comm, int rank, float *out)
{
    sum_model m = make_sum_model();
    lk_engine *engine = lk_engine_open("cpu", LK_OPTIONS(lk_engine_options, .thread_count = 1));
    lk_step *step = lk_step(.model = m.all, .function = add_up, .context = &m, .optimizer = frozen(),
                            .engine = engine, .comm = comm, .bucket_nbytes = 8192, .owned = true);
    lk_tensor *x = waves(rank), *y = waves(rank + 10);
    const lk_input fields[] = {{"features", x}, {"targets", y}};
    lk_status status = step ? lk_step_train(step, fields, 2) : LK_ERR_INVALID;
    if (!status) memcpy(out, first_param(m.direct)->grad->data, sizeof(float) * SIDE * SIDE);
    lk_step_free(step);
    lk_engine_close(engine);
    lk_tensor_free(x);
    lk_tensor_free(y);
    return status;
}

static lk_status compare_gradients(void *context)
{
    (void)context;
    static float both[SIDE * SIDE], alone[2][SIDE * SIDE];
    const lki_role *role = lki_process_role();
    lki_shm_options options = {.rank = role->rank, .size = role->world_size, .fd = role->shm_fd};
    lk_comm *comm;
    LKI_TRY(lki_comm_shm_create(&comm, &options));
    lk_status status = gradient_of(comm, role->rank, both);
    for (int i = 0; i < 2 && !status; i++) status = gradient_of(NULL, i, alone[i]);
    for (int i = 0; i < SIDE * SIDE && !status; i++) {
        double mean = ((double)alone[0][i] + (double)alone[1][i]) / 2;
        if (fabs(both[i] - mean) > 1e-3)
            status =
                lki_fail(LK_ERR_INVALID, "gradient %d is %g, the mean of the ranks' %g", i, both[i], mean);
    }
    lk_comm_free(comm);
    return status;
}

static void a_gradient_that_is_read_on_is_not_averaged_there(void **state)
{
    (void)state;
    lkt_ok(lk_distributed_run(compare_gradients, NULL, .nproc = 2));
}

/* ---- What ranks do together ---- */

static lk_status train_numbers(lk_loader_list loaders, lk_callback *callback, lk_runner **out)
{
    lk_callback *callbacks[] = {callback};
    *out = lk_supervised_runner();
    return lk_train(*out, .model = perceptron(true), .criterion = lk_cross_entropy_loss(),
                    .optimizer = momentum_sgd(), .loaders = loaders,
                    .callbacks = {callbacks, callback != NULL}, .num_epochs = 4, .nproc = 2,
                    .thread_count = 1);
}

/* A first loader that leaves a rank without a batch. */
static void a_step_is_made_by_all_ranks(void **state)
{
    (void)state;
    lk_runner *runner;
    lkt_ok(train_numbers(lk_loaders({"valid", lk_loader(numbers(1, 2), .batch_size = 8)},
                                    {"train", lk_loader(numbers(40, 1), .batch_size = 8)}),
                         NULL, &runner));
    assert_int_equal(runner->epoch_step, 4);
    lk_runner_free(runner);
}

static lk_status stop_on_rank_1(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    if (runner->rank == 1 && runner->epoch_step == 2) runner->need_early_stop = true;
    return LK_OK;
}

static lk_status stop_on_rank_1_at_once(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    runner->need_early_stop = runner->rank == 1;
    return LK_OK;
}

static void any_rank_may_stop_the_run(void **state)
{
    (void)state;
    lk_callback *const callbacks[] = {
        lk_on(experiment_start, stop_on_rank_1_at_once, NULL), lk_on(batch_end, stop_on_rank_1, NULL),
        lk_on(epoch_end, stop_on_rank_1, NULL), lk_on(settled, stop_on_rank_1, NULL)};
    for (int i = 0; i < 4; i++) {
        lk_runner *runner;
        lkt_ok(train_numbers(lk_loaders({"train", lk_loader(numbers(40, 1), .batch_size = 8)}), callbacks[i],
                             &runner));
        assert_int_equal(runner->epoch_step, i == 0 ? 0 : 2);
        assert_true(runner->need_early_stop);
        lk_runner_free(runner);
    }
}

static lk_status return_a_number(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    return runner->rank == 1 && runner->batch_step == 2 ? LK_ERR_RANGE : LK_OK;
}

static lk_status return_a_number_as_a_rank(void *context)
{
    (void)context;
    return lk_rank() == 1 ? LK_ERR_RANGE : LK_OK;
}

static void a_failure_without_a_sentence_has_a_name(void **state)
{
    (void)state;
    lk_runner *runner;
    assert_int_equal(train_numbers(lk_loaders({"train", lk_loader(numbers(40, 1), .batch_size = 8)}),
                                   lk_on(batch_end, return_a_number, NULL), &runner),
                     LK_ERR_RANGE);
    lkt_contains(lk_error(), "rank 1");
    lkt_contains(lk_error(), "callback on_batch_end: index out of range");
    lk_runner_free(runner);
    assert_int_equal(lk_distributed_run(return_a_number_as_a_rank, NULL, .nproc = 2), LK_ERR_RANGE);
    lkt_contains(lk_error(), "failed: the rank's function: index out of range");
}

/* ---- After a run on ranks ---- */

static lk_status count_samples(const lk_tensor *output, const lk_batch *batch, void *context)
{
    (void)output;
    *(int64_t *)context += batch->count;
    return LK_OK;
}

/* Also where every rank calls it: each of them goes through all of the data. */
static lk_status check_evaluation(lk_runner *runner, double loss)
{
    int64_t seen = 0;
    LKI_TRY(lk_evaluate_loader(runner, lk_loader(numbers(SAMPLES, 2), .batch_size = 16)));
    double evaluated = lk_metrics_get(runner->loader_metrics, "loss");
    if (fabs(evaluated - loss) > 1e-6)
        return lki_fail(LK_ERR_INVALID, "the loss is %.9g, the run's was %.9g", evaluated, loss);
    LKI_TRY(
        lk_predict_loader(runner, lk_loader(numbers(SAMPLES, 2), .batch_size = 16), count_samples, &seen));
    if (seen != SAMPLES) return lki_fail(LK_ERR_INVALID, "%d samples were predicted", (int)seen);
    return LK_OK;
}

static void evaluations_after_ranks_see_all_samples(void **state)
{
    (void)state;
    job two = {2, 5, 1, 0, true, false, adam};
    lk_runner *runner = train(&two);
    assert_int_equal(runner->world_size, 2);
    lkt_ok(check_evaluation(runner, lk_metrics_get(lk_runner_loader_metrics(runner, "valid"), "loss")));
    lkt_ok(lk_train(runner, .loaders = lk_loaders({"train", lk_loader(numbers(200, 1), .batch_size = 5)}),
                    .thread_count = 1));
    assert_int_equal(runner->world_size, 1);
    assert_int_equal(runner->sample_step, 200);
    assert_int_equal(runner->batch_step, 40);
    lk_runner_free(runner);
}

/* The step of the ranks is gone: the evaluation makes one of its own, for which nothing has to be trainable.
 */
static void a_frozen_model_is_evaluated_after_ranks(void **state)
{
    (void)state;
    job two = {2, 5, 1, 0, true, false, adam};
    lk_runner *runner = train(&two);
    lk_module_set_trainable(runner->model, false);
    lkt_ok(check_evaluation(runner, lk_metrics_get(lk_runner_loader_metrics(runner, "valid"), "loss")));
    lk_module_set_trainable(runner->model, true);
    lkt_ok(lk_train(runner, .loaders = lk_loaders({"train", lk_loader(numbers(200, 1), .batch_size = 5)}),
                    .thread_count = 1));
    assert_int_equal(runner->step->update.step_count, 20 + 40); /* the optimizer goes on */
    lk_runner_free(runner);
}

/* In a function that every rank runs. The evaluation between two runs makes a step for one rank. */
static lk_status train_and_evaluate_in_turns(void *context)
{
    (void)context;
    lk_runner *runner = lk_supervised_runner();
    lk_status status = LK_OK;
    for (int i = 0; i < 2 && !status; i++) {
        status = lk_train(runner, .model = i ? NULL : perceptron(true),
                          .criterion = i ? NULL : lk_cross_entropy_loss(), .optimizer = i ? NULL : adam(),
                          .loaders = lk_loaders({"train", lk_loader(numbers(200, 1), .batch_size = 5)},
                                                {"valid", lk_loader(numbers(SAMPLES, 2), .batch_size = 16)}),
                          .check_replicas = 1, .thread_count = 1);
        if (status) break;
        status = check_evaluation(runner, lk_metrics_get(lk_runner_loader_metrics(runner, "valid"), "loss"));
        if (!status && runner->is_master != (lk_rank() == 0))
            status = lki_fail(LK_ERR_INVALID, "rank %d: is_master is %d", lk_rank(), runner->is_master);
    }
    lk_runner_free(runner);
    return status;
}

static pid_t start_rank(int rank, int port)
{
    char number[16];
    fflush(NULL);
    pid_t pid = fork();
    if (pid) return pid;
    snprintf(number, sizeof number, "%d", rank);
    setenv("RANK", number, 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    snprintf(number, sizeof number, "%d", port);
    setenv("MASTER_PORT", number, 1);
    lk_status status = lk_distributed_run(train_and_evaluate_in_turns, NULL);
    if (status) fprintf(stderr, "rank %d: %s\n", rank, lk_error());
    _exit(status != LK_OK);
}

static void every_rank_may_evaluate(void **state)
{
    (void)state;
    int fd, port = 0, ended;
    pid_t ranks[2];
    lkt_ok(lki_net_listen(&fd, &port));
    close(fd);
    for (int r = 0; r < 2; r++) ranks[r] = start_rank(r, port);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(waitpid(ranks[r], &ended, 0), ranks[r]);
        assert_int_equal(ended, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_are_one_of_twice_the_batch),
        cmocka_unit_test(four_ranks_are_one_of_four_times_the_batch),
        cmocka_unit_test(accumulated_gradients_travel_once),
        cmocka_unit_test(the_gradients_norm_is_that_of_the_average),
        cmocka_unit_test(a_gradient_that_is_read_on_is_not_averaged_there),
        cmocka_unit_test(compressed_gradients_stay_close),
        cmocka_unit_test(metrics_do_not_depend_on_the_number_of_ranks),
        cmocka_unit_test(a_killed_rank_is_named),
        cmocka_unit_test(different_models_are_an_error),
        cmocka_unit_test(different_ways_to_train_are_an_error),
        cmocka_unit_test(ranks_train_more_than_once),
        cmocka_unit_test(ranks_follow_a_run_of_one),
        cmocka_unit_test(a_step_is_made_by_all_ranks),
        cmocka_unit_test(any_rank_may_stop_the_run),
        cmocka_unit_test(a_failure_without_a_sentence_has_a_name),
        cmocka_unit_test(evaluations_after_ranks_see_all_samples),
        cmocka_unit_test(a_frozen_model_is_evaluated_after_ranks),
        cmocka_unit_test(every_rank_may_evaluate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
