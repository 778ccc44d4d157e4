/* LOGDIR/system.jsonl: how fast a run is, and where the time of each rank goes. */
#include "case.h"

#include <math.h>
#include <jansson.h>
#include <string.h>
#include <unistd.h>

enum { MAX_POINTS = 64 };

typedef struct points {
    json_t *items[MAX_POINTS];
    int count;
} points;

static lk_status train(const char *logdir, int epochs, int nproc, bool resume)
{
    lk_runner *runner = lk_supervised_runner();
    lk_status status =
        lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                 .optimizer = lk_sgd(.lr = 0.1),
                 .loaders = lk_loaders({"train", lk_loader(lkt_points(40, 1), .batch_size = 8)},
                                       {"valid", lk_loader(lkt_points(24, 2), .batch_size = 8)}),
                 .num_epochs = epochs, .logdir = logdir, .valid_loader = "valid",
                 .autoresume = resume ? "last" : NULL, .nproc = nproc, .device = "cpu", .thread_count = 1);
    lk_runner_free(runner);
    return status;
}

static points read_points(const char *logdir)
{
    points all = {0};
    char *text = lkt_read(lkt_path(logdir, "system.jsonl"));
    for (char *line = strtok(text, "\n"); line && all.count < MAX_POINTS; line = strtok(NULL, "\n"))
        lkt_not_null(all.items[all.count++] = json_loads(line, 0, NULL));
    free(text);
    return all;
}

static void drop(points *all)
{
    for (int i = 0; i < all->count; i++) json_decref(all->items[i]);
    all->count = 0;
}

static double metric(const json_t *point, const char *name)
{
    const json_t *value = json_object_get(json_object_get(point, "metrics"), name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static int64_t integer(const json_t *point, const char *name)
{
    return json_integer_value(json_object_get(point, name));
}

static void test_one_rank(void **state)
{
    (void)state;
    const char *logdir = lkt_scratch_folder("vitals_one");
    lkt_ok(train(logdir, 3, 0, false));
    points all = read_points(logdir);
    assert_true(all.count >= 3); /* one per epoch, and more where a machine takes 10 s for one */
    const json_t *last = all.items[all.count - 1];
    assert_string_equal(json_string_value(json_object_get(last, "loader")), "system");
    assert_int_equal(integer(last, "epoch"), 3);
    assert_int_equal(integer(last, "sample"), 120);
    assert_true(metric(last, "samples_per_s") > 0 && metric(last, "step_ms") > 0);
    assert_true(metric(last, "memory_mb") > 1);
    assert_true(isnan(metric(last, "communication_share")) && isnan(metric(last, "tokens_per_s")));
    assert_true(isnan(metric(last, "gpu_memory_mb")));
    double parts = metric(last, "rank0/compute_ms") + metric(last, "rank0/loader_ms");
    assert_true(fabs(parts - metric(last, "step_ms")) <= 1e-6 * parts);
    drop(&all);
}

static void test_every_rank_is_there(void **state)
{
    (void)state;
    const char *logdir = lkt_scratch_folder("vitals_ranks");
    lkt_ok(train(logdir, 2, 2, false));
    points all = read_points(logdir);
    for (int i = 0; i < all.count; i++) {
        double share = metric(all.items[i], "communication_share");
        assert_true(share >= 0 && share <= 1);
        for (int r = 0; r < 2; r++) {
            char name[64];
            snprintf(name, sizeof name, "rank%d/communication_ms", r);
            assert_true(metric(all.items[i], name) >= 0);
            snprintf(name, sizeof name, "rank%d/compute_ms", r);
            assert_true(metric(all.items[i], name) >= 0);
        }
    }
    drop(&all);
}

/* A run that goes on keeps the points up to where it goes on, and adds its own. */
static void test_resuming(void **state)
{
    (void)state;
    const char *logdir = lkt_scratch_folder("vitals_resume");
    lkt_ok(train(logdir, 2, 0, false));
    lkt_shell_in(logdir,
                 "echo '{\"scope\":\"batch\",\"loader\":\"system\",\"epoch\":3,\"batch\":15,\"sample\":120,"
                 "\"metrics\":{\"step_ms\":7}}' >> system.jsonl");
    lkt_ok(train(logdir, 4, 0, true));
    points all = read_points(logdir);
    int64_t before = 0;
    for (int i = 0; i < all.count; i++) {
        assert_true(integer(all.items[i], "sample") > before);
        assert_true(metric(all.items[i], "step_ms") != 7);
        before = integer(all.items[i], "sample");
    }
    assert_int_equal(before, 160);
    drop(&all);
}

static void test_no_logdir(void **state)
{
    (void)state;
    char before[4096];
    lkt_not_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(lkt_scratch_folder("vitals_none")), 0);
    lkt_ok(train(NULL, 1, 0, false));
    assert_false(lkt_exists("system.jsonl"));
    assert_int_equal(chdir(before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_every_rank_is_there),
        cmocka_unit_test(test_resuming),
        cmocka_unit_test(test_no_logdir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
