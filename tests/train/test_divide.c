/* Ranks that divide the update give the bits that ranks give which do it all: of weights, logs, checkpoints
 * and the optimizer's state in them. */
#include "case_resume.h"

#include "base/status.h"
#include "comm/shm/shared_window.h"
#include "run/run.h"
#include "step/step.h"

#include <signal.h>

/* The models here are small: windows are given for anything, or for nothing. */
enum { SHARED = 1, PRIVATE = 1 << 30 };

static lk_optimizer *plain_sgd(void)
{
    return lk_sgd(.lr = 0.05);
}

static lk_optimizer *nesterov(void)
{
    return lk_sgd(.lr = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01);
}

static lk_optimizer *amsgrad(void)
{
    return lk_adam(.lr = 0.01, .amsgrad = true);
}

static lk_optimizer *adamw(void)
{
    return lk_adamw(.lr = 0.01, .weight_decay = 0.1);
}

static lk_optimizer *rmsprop(void)
{
    return lk_rmsprop(.lr = 0.01, .centered = true, .momentum = 0.5);
}

static lk_optimizer *adagrad(void)
{
    return lk_adagrad(.lr = 0.05, .initial_accumulator_value = 0.1);
}

static lk_optimizer *nadam(void)
{
    return lk_nadam(.lr = 0.02);
}

static lk_optimizer *radam(void)
{
    return lk_radam(.lr = 0.02, .beta2 = 0.8);
}

static lk_optimizer *adadelta(void)
{
    return lk_adadelta();
}

static lk_optimizer *adamax(void)
{
    return lk_adamax(.weight_decay = 0.01);
}

static lk_optimizer *rprop(void)
{
    return lk_rprop();
}

static lk_optimizer *asgd(void)
{
    return lk_asgd(.lr = 0.05, .t0 = 2);
}

static lk_optimizer *lion(void)
{
    return lk_lion(.lr = 0.01, .weight_decay = 0.01);
}

static lk_optimizer *lamb(void)
{
    return lk_lamb(.lr = 0.01);
}

typedef struct job {
    int ranks, accumulation;
    double clip_norm;
    int check; /* compare the ranks after so many updates */
    bool compress;
    bool wide; /* gradients that are averaged where they lie */
    lk_optimizer *(*optimizer)(void);
    bool divides; /* what is expected of it */
} job;

static lk_status look(lk_callback *callback, lk_runner *runner)
{
    const job *j = callback->context;
    if (runner->step->flat.common_states == j->divides) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "rank %d %s its update", runner->rank,
                    j->divides ? "does not divide" : "divides");
}

/* Lines of 64 bytes do not fit its parameters. */
static lk_module *odd_model(bool wide)
{
    lk_manual_seed(3);
    if (wide)
        return lk_sequential(lk_linear(LKT_FEATURES, 401), lk_relu(), lk_linear(401, 307), lk_relu(),
                             lk_linear(307, LKT_CLASSES));
    return lk_sequential(lk_linear(LKT_FEATURES, 37), lk_batch_norm1d(37), lk_relu(), lk_linear(37, 29),
                         lk_relu(), lk_linear(29, LKT_CLASSES));
}

static const char *train(job *j)
{
    lk_runner *runner = lk_supervised_runner();
    lki_set_window_least(j->divides || j->optimizer == lamb ? SHARED : PRIVATE);
    lk_status status = lk_train(
        runner, .model = odd_model(j->wide), .criterion = lk_cross_entropy_loss(),
        .optimizer = j->optimizer(),
        .loaders = lk_loaders({"train", lk_loader(lkt_points(96, 1), .batch_size = 8, .shuffle = true)}),
        .callbacks = lk_callbacks(
            lk_optimizer_callback(.accumulation_steps = j->accumulation, .clip_norm = j->clip_norm),
            lk_gradient_norm_callback(), lk_on(batch_end, look, j)),
        .num_epochs = 3, .seed = 5, .nproc = j->ranks, .compress_gradients = j->compress,
        .check_replicas = j->check, .thread_count = 1);
    if (status) fail_msg("%d ranks: %s", j->ranks, lk_error());
    const char *hash = lkt_hash(runner->model);
    lk_runner_free(runner);
    return hash;
}

static void expect_same(job divided)
{
    job whole = divided;
    divided.divides = true;
    whole.divides = false;
    assert_string_equal(train(&divided), train(&whole));
}

static void every_rule_gives_the_same_bits(void **state)
{
    (void)state;
    lk_optimizer *(*optimizers[])(void) = {plain_sgd, nesterov, amsgrad, adamw, rmsprop, adagrad, nadam,
                                           radam,     adadelta, adamax,  rprop, asgd,    lion};
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++)
        for (int ranks = 2; ranks <= 3; ranks++)
            expect_same((job){.ranks = ranks, .optimizer = optimizers[i]});
}

static void accumulated_clipped_and_compressed(void **state)
{
    (void)state;
    expect_same((job){.ranks = 2, .optimizer = adamw, .accumulation = 3});
    expect_same((job){.ranks = 3, .optimizer = nesterov, .clip_norm = 0.1});
    expect_same((job){.ranks = 2, .optimizer = adamw, .compress = true});
    expect_same((job){.ranks = 2, .optimizer = adamw, .wide = true});
    expect_same((job){.ranks = 3, .optimizer = nesterov, .wide = true, .clip_norm = 0.1});
}

static void those_that_do_it_all(void **state)
{
    (void)state;
    job norms = {.ranks = 2, .optimizer = lamb};
    train(&norms); /* a rule that looks at whole parameters */
    lki_set_window_least(SHARED);
    job alone = {.ranks = 1, .optimizer = adamw};
    train(&alone);
}

/* Comparing the replicas does not keep the ranks from dividing their work. */
static void compared_after_each_update(void **state)
{
    (void)state;
    expect_same((job){.ranks = 2, .optimizer = adamw, .check = 1});
    expect_same((job){.ranks = 3, .optimizer = nesterov, .wide = true, .check = 2});
}

/* Two ranks with everything that has a state; the checkpoint holds the optimizer's. */
static void checkpoints_are_the_same(void **state)
{
    (void)state;
    char folders[3][1024];
    for (int i = 0; i < 3; i++)
        snprintf(folders[i], sizeof folders[i], "%s",
                 lkt_scratch_folder(i == 0   ? "divide_private"
                                    : i == 1 ? "divide_shared"
                                             : "divide_stopped"));
    lkt_run_options whole = {.logdir = folders[0], .nproc = 2}, divided = {.logdir = folders[1], .nproc = 2};
    lki_set_window_least(PRIVATE);
    lkt_ok(lkt_whole_run(&whole));
    lki_set_window_least(SHARED);
    lkt_ok(lkt_whole_run(&divided));
    lkt_same_runs(&divided, &whole);
    lkt_run_options stopped = {.logdir = folders[2], .nproc = 2, .stop_batch = 17},
                    resumed = {.logdir = folders[2], .nproc = 2, .autoresume = "last"};
    lkt_fails(lkt_whole_run(&stopped), LK_ERR_STOPPED, "stopped by");
    lkt_ok(lkt_whole_run(&resumed));
    lkt_same_runs(&resumed, &whole);
}

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
    lki_set_window_least(SHARED);
    lk_status status = lk_train(
        runner, .model = odd_model(false), .criterion = lk_cross_entropy_loss(), .optimizer = adamw(),
        .loaders = lk_loaders({"train", lk_loader(lkt_points(96, 1), .batch_size = 8)}),
        .callbacks = lk_callbacks(lk_on(batch_end, die, NULL)), .num_epochs = 2, .nproc = 3,
        .thread_count = 1);
    assert_int_equal(status, LK_ERR_PEER);
    lkt_contains(lk_error(), "rank 1");
    lk_runner_free(runner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_gives_the_same_bits),
        cmocka_unit_test(accumulated_clipped_and_compressed),
        cmocka_unit_test(those_that_do_it_all),
        cmocka_unit_test(compared_after_each_update),
        cmocka_unit_test(checkpoints_are_the_same),
        cmocka_unit_test(a_killed_rank_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
