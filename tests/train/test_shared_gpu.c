/* More ranks than GPUs: they share one, go through the host's memory, end as one rank with the same global
 * batch does, and the run's first line says so. A process that has used a GPU itself can have such ranks too.
 */
#include "case.h"

#include "device/open_plugin.h"

enum { SAMPLES = 96, BATCH = 16, RANKS = 2 };

static lk_runner *train(int ranks, const char *logdir)
{
    lk_runner *runner = lk_supervised_runner();
    lk_named_loader loaders[] = {
        {"train", lk_loader(lkt_points(SAMPLES, 1), .batch_size = BATCH / ranks, .no_shuffle = true)}};
    lkt_ok(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_sgd(.lr = 0.1), .seed = 5, .num_epochs = 2, .logdir = logdir,
                    .device = "cuda", .ddp = ranks > 1, .nproc = ranks, .loaders = {loaders, 1}));
    if (runner->step) lkt_ok(lk_step_pull(runner->step)); /* the weights may be the GPU's still */
    return runner;
}

static void ranks_share_a_gpu(void **state)
{
    (void)state;
    const char *order = getenv("LOCKSTEP_EMULATED_ORDER");
    char name[64];
    if (!lki_cuda_has_device()) {
        print_message("there is no GPU here\n");
        skip();
    }
    snprintf(name, sizeof name, "train_shared_gpu_%s", order ? order : "real");
    const char *logdir = lkt_scratch_folder(name);
    lk_runner *shared = train(RANKS, logdir);
    char *log = lkt_read(lkt_path(logdir, "log.txt"));
    if (!strstr(log, "GPUs, one per rank")) {
        lkt_contains(log, "2 ranks share GPU 0");
        lkt_contains(log, "through the host's memory");
    }
    free(log);
    lk_runner *alone = train(1, NULL);
    double a[LKT_FEATURES], b[LKT_FEATURES];
    lkt_weights(shared->model, "0.weight", a, LKT_FEATURES);
    lkt_weights(alone->model, "0.weight", b, LKT_FEATURES);
    for (int i = 0; i < LKT_FEATURES; i++) lkt_close(a[i], b[i], 1e-5);
    lk_runner_free(shared);
    lk_runner_free(alone);
}

/* CUDA does not survive a fork: the ranks load libraries of their own. */
static void ranks_after_the_gpu_was_used(void **state)
{
    (void)state;
    if (!lki_cuda_has_device()) skip();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    print_message("sanitizers cannot load a library a second time\n");
    skip();
#endif
    lk_runner *alone = train(1, NULL), *ranks = train(RANKS, NULL), *again = train(RANKS, NULL);
    double a[LKT_FEATURES], b[LKT_FEATURES], c[LKT_FEATURES];
    lkt_weights(alone->model, "0.weight", a, LKT_FEATURES);
    lkt_weights(ranks->model, "0.weight", b, LKT_FEATURES);
    lkt_weights(again->model, "0.weight", c, LKT_FEATURES);
    for (int i = 0; i < LKT_FEATURES; i++) {
        lkt_close(a[i], b[i], 1e-5);
        assert_true(b[i] == c[i]);
    }
    lk_runner_free(alone);
    lk_runner_free(ranks);
    lk_runner_free(again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_share_a_gpu),
                                       cmocka_unit_test(ranks_after_the_gpu_was_used)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
