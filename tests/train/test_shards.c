/* With shards, the same bits come out of any number of ranks and threads. */
#include "shards_case.h"

#include "run/run.h"

#include <string.h>

/* One rank first; then others, each with another number of threads. */
static void try_ranks(lkt_shard_run run, int most)
{
    lkt_shard_run one = run;
    one.ranks = one.threads = 1;
    lkt_ok(lkt_shard_train(&one));
    for (int ranks = 1; ranks <= most; ranks *= 2) {
        lkt_shard_run several = run;
        several.ranks = ranks;
        several.threads = ranks == 1 ? 3 : 2;
        lkt_ok(lkt_shard_train(&several));
        lkt_same_run(&several, &one);
    }
}

static void perceptrons_end_alike(void **state)
{
    (void)state;
    try_ranks((lkt_shard_run){.shards = 4}, 4);
    try_ranks((lkt_shard_run){.shards = 4, .accumulation = 2, .clip_norm = 0.5, .drop_last = true}, 2);
}

static void convnets_end_alike(void **state)
{
    (void)state;
    try_ranks((lkt_shard_run){.shards = 4, .model = LKT_CONVNET, .epochs = 1, .workers = 2}, 4);
}

/* A transform of batches sees a shard; a loss of one's own has no samples that metrics could add up. */
static void what_looks_at_a_batch_sees_a_shard(void **state)
{
    (void)state;
    try_ranks((lkt_shard_run){.shards = 4, .mixes = true, .epochs = 1}, 4);
    try_ranks((lkt_shard_run){.shards = 4, .own_loss = true, .epochs = 1}, 4);
}

/* Of two gradients there is one sum. */
static void two_shards_are_two_ranks(void **state)
{
    (void)state;
    lkt_shard_run plain = {.ranks = 2, .threads = 1}, shards = {.shards = 2, .ranks = 1, .threads = 1};
    lkt_ok(lkt_shard_train(&plain));
    lkt_ok(lkt_shard_train(&shards));
    assert_string_equal(shards.hash, plain.hash);
}

/* ---- Going on with other ranks ---- */

/* Also of the epoch that was stopped. */
static void same_log(const char *a, const char *b, int epochs)
{
    for (int row = 1; row <= epochs; row++) {
        assert_true(lkt_csv(a, "train", row, "loss") == lkt_csv(b, "train", row, "loss"));
        assert_true(lkt_csv(a, "train", row, "accuracy01") == lkt_csv(b, "train", row, "accuracy01"));
        assert_true(lkt_csv(a, "valid", row, "loss") == lkt_csv(b, "valid", row, "loss"));
        assert_true(lkt_csv(a, "valid", row, "auc") == lkt_csv(b, "valid", row, "auc"));
    }
}

static void resume(lkt_shard_run first, int ranks)
{
    static char folder[1024], whole[1024];
    lkt_shard_run straight = first, second = first;
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("train_shards"));
    snprintf(whole, sizeof whole, "%s", lkt_scratch_folder("train_shards_straight"));
    straight.ranks = 1;
    straight.stop_epoch = 0;
    straight.logdir = whole;
    lkt_ok(lkt_shard_train(&straight));
    first.logdir = second.logdir = folder;
    lkt_fails(lkt_shard_train(&first), LK_ERR_STOPPED, "stopped by a signal in epoch");
    second.ranks = ranks;
    second.stop_epoch = 0;
    second.autoresume = "last";
    lkt_ok(lkt_shard_train(&second));
    lkt_same_run(&second, &straight);
    same_log(folder, whole, first.epochs);
}

static void others_go_on_inside_an_epoch(void **state)
{
    (void)state;
    lkt_shard_run run = {.shards = 4,
                         .epochs = 4,
                         .threads = 1,
                         .accumulation = 3,
                         .batch_size = 3,
                         .stop_epoch = 2,
                         .stop_batch = 5};
    const int ranks[][2] = {{4, 2}, {4, 1}, {1, 2}, {2, 4}};
    for (int i = 0; i < 4; i++) {
        run.ranks = ranks[i][0];
        run.stops_in_valid = false;
        resume(run, ranks[i][1]);
        run.own_loss = !run.own_loss;
    }
    run.stops_in_valid = true;
    run.stop_batch = 1;
    run.ranks = 4;
    resume(run, 2);
}

static void others_cannot_go_on_with_other_shards(void **state)
{
    (void)state;
    static char folder[1024];
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("train_other_shards"));
    lkt_shard_run run = {.shards = 4,
                         .ranks = 2,
                         .epochs = 4,
                         .batch_size = 3,
                         .stop_epoch = 2,
                         .stop_batch = 2,
                         .logdir = folder};
    lkt_fails(lkt_shard_train(&run), LK_ERR_STOPPED, "stopped by a signal in epoch");
    run.autoresume = "last";
    run.stop_epoch = 0;
    run.shards = 2;
    lkt_fails(lkt_shard_train(&run), LK_ERR_INVALID, "shards 4 and cannot go on with 2");
    run.shards = 0;
    lkt_fails(lkt_shard_train(&run), LK_ERR_INVALID, "shards 4 and cannot go on with 0");
}

/* ---- What cannot be ---- */

static lk_status handle(lk_runner *runner, const lk_batch *batch)
{
    return lk_runner_supervised_batch(runner, batch);
}

#define REFUSED(expected, fragment, given_ops, ...)                                                          \
    do {                                                                                                     \
        lk_runner *runner = lk_custom_runner((given_ops), NULL);                                             \
        lkt_not_null(runner);                                                                                \
        lkt_fails(                                                                                           \
            lk_train(runner, .model = lkt_shard_module(LKT_PERCEPTRON),                                      \
                     .criterion = lk_cross_entropy_loss(), .optimizer = lk_adam(.lr = 0.01),                 \
                     .loaders = lk_loaders({"train", lk_loader(lkt_pictures(16, 1), .batch_size = 2)}),      \
                     __VA_ARGS__),                                                                           \
            expected, fragment);                                                                             \
        lk_runner_free(runner);                                                                              \
    } while (0)

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    static const lk_runner_ops own = {LK_SIZE(lk_runner_ops), .handle_batch = handle},
                               none = {LK_SIZE(lk_runner_ops)};
    REFUSED(LK_ERR_INVALID, "power of two up to 1024", &none, .shards = 6);
    REFUSED(LK_ERR_INVALID, "power of two up to 1024", &none, .shards = -2);
    REFUSED(LK_ERR_INVALID, "compress_gradients cannot", &none, .shards = 2, .compress_gradients = true);
    REFUSED(LK_ERR_INVALID, "sync_batch_norm cannot", &none, .shards = 2, .sync_batch_norm = true);
    REFUSED(LK_ERR_INVALID, "local_gradients cannot", &none, .shards = 2, .local_gradients = true);
    REFUSED(LK_ERR_INVALID, "3 ranks cannot share 4 shards: start 1, 2 or 4 ranks", &none, .shards = 4,
            .nproc = 3, .device = "cpu");
    REFUSED(LK_ERR_INVALID, "4 ranks cannot share 2 shards: start 1 or 2 ranks", &none, .shards = 2,
            .nproc = 4, .device = "cpu");
    REFUSED(LK_ERR_UNSUPPORTED, "handle_batch of your own", &own, .shards = 2, .device = "cpu");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(perceptrons_end_alike),
        cmocka_unit_test(convnets_end_alike),
        cmocka_unit_test(what_looks_at_a_batch_sees_a_shard),
        cmocka_unit_test(two_shards_are_two_ranks),
        cmocka_unit_test(others_go_on_inside_an_epoch),
        cmocka_unit_test(others_cannot_go_on_with_other_shards),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
