/* lockstep bench: tables and JSON of predictions and measurements, and wrong words. */
#include "command.h"

#define CONFIG LK_SOURCE_DIR "/examples/mnist.yml --loaders/train/batch_size=16"

#include "base/threads.h"

#include <jansson.h>

static json_t *json_of(const char *arguments)
{
    const said *r = lockstep(arguments);
    json_error_t error;
    if (r->exit_code != 0) fail_msg("lockstep %s: exit code %d\n%s", arguments, r->exit_code, r->err);
    json_t *value = json_loads(r->out, 0, &error);
    if (!value) fail_msg("lockstep %s: %s:\n%s", arguments, error.text, r->out);
    return value;
}

static double number(json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) fail_msg("no number %s", key);
    return json_number_value(value);
}

static void a_table_for_people(void **state)
{
    (void)state;
    const said *r = lockstep("bench --simulate --model convnet");
    assert_int_equal(r->exit_code, 0);
    lkt_contains(r->out, "convnet: 1199882 parameters in 2 buckets, batch 64 per rank");
    lkt_contains(r->out, "Gloo between hosts; 1 rank per host; 25 us one way");
    lkt_contains(r->out, "\n   4096    4096 ");
    r = lockstep("bench --simulate --ranks-per-host 8 --max-ranks 64 --latency-us=10 --bandwidth-gbit 100");
    lkt_contains(r->out, "mnist-linear: 7850 parameters in 1 bucket");
    lkt_contains(r->out, "resnet-50: 25557032 parameters in 19 buckets");
    lkt_contains(r->out, "shared memory within a host, Gloo between hosts; 8 ranks per host; 10 us one way");
    lkt_contains(r->out, "100 Gbit/s\n");
    assert_null(strstr(r->out, "\n    128 "));
}

static void the_same_as_json(void **state)
{
    (void)state;
    json_t *value = json_of("bench --simulate --model resnet-50 --max-ranks 1000 --bucket-mb 25 --json");
    json_t *resnet = json_array_get(value, 0), *rows = json_object_get(resnet, "predictions");
    assert_int_equal(json_array_size(value), 1);
    assert_int_equal(json_array_size(rows), 10); /* 1 to 512 */
    lkt_close(number(json_array_get(rows, 0), "efficiency"), 1, 1e-9);
    lkt_close(number(json_array_get(rows, 0), "samples_per_s"), 320, 1e-6);
    for (size_t i = 1; i < 10; i++) {
        json_t *row = json_array_get(rows, i);
        double compute_s =
            number(resnet, "forward_s") + number(resnet, "backward_s") + number(resnet, "update_s");
        assert_int_equal((int)number(row, "ranks"), 1 << i);
        lkt_close(number(row, "step_s"), compute_s + number(row, "exposed_s"), 1e-6);
        assert_true(number(row, "communication_s") >= number(row, "exposed_s"));
    }
    json_decref(value);
}

static void options_of_the_prediction_matter(void **state)
{
    (void)state;
    static const char *const better[] = {"--latency-us 5",     "--bandwidth-gbit 100", "--overhead-us 1",
                                         "--ranks-per-host 8", "--accumulate 8",       "--compute-ms 1000"};
    char arguments[200];
    json_t *value = json_of("bench --simulate --model cnn3d --max-ranks 64 --json"), *other;
    double plain =
        number(json_array_get(json_object_get(json_array_get(value, 0), "predictions"), 6), "efficiency");
    json_decref(value);
    for (size_t i = 0; i < sizeof better / sizeof *better; i++) {
        snprintf(arguments, sizeof arguments, "bench --simulate --model cnn3d --max-ranks 64 --json %s",
                 better[i]);
        other = json_of(arguments);
        if (number(json_array_get(json_object_get(json_array_get(other, 0), "predictions"), 6),
                   "efficiency") <= plain)
            fail_msg("%s does not help", better[i]);
        json_decref(other);
    }
    value = json_of("bench --simulate --model mlp --backend mpi --compress --json");
    json_decref(value);
}

static void steps_are_measured(void **state)
{
    (void)state;
    json_t *value = json_of("bench --seconds 0.02 --json --model mnist-linear"),
           *step = json_array_get(value, 0);
    assert_int_equal((int)number(step, "parameters"), 7850);
    assert_true(number(step, "step_s") > 0);
    json_decref(value);
    value = json_of("bench --seconds 0.02 --json -C " LK_SOURCE_DIR
                    "/examples/mnist.yml --loaders/train/batch_size=16");
    step = json_array_get(value, 0);
    assert_string_equal(json_string_value(json_object_get(step, "name")), "mnist.yml");
    assert_int_equal((int)number(step, "batch_size"), 16);
    json_decref(value);
    value = json_of("bench --simulate --measure --seconds 0.02 --json --model mlp --ranks-per-host 2");
    assert_int_equal(json_array_size(json_object_get(json_array_get(value, 0), "predictions")), 13);
    json_decref(value);
    const said *r = lockstep("bench --seconds 0.02 --model mlp");
    lkt_contains(r->out, "samples/s\nmlp ");
}

static bool has_op(json_t *list, const char *op)
{
    size_t i;
    json_t *item;
    json_array_foreach(list, i,
                       item) if (!strcmp(json_string_value(json_object_get(item, "op")), op)) return true;
    return false;
}

/* Per op beside the roofline, what falls back, and what fills the memory. */
static void the_ops_of_a_step(void **state)
{
    (void)state;
    json_t *value = json_of("bench --seconds 0.05 --json -C " CONFIG), *step = json_array_get(value, 0);
    json_t *ops = json_object_get(step, "ops"), *calls = json_object_get(step, "calls"),
           *worst = json_object_get(step, "worst"), *memory = json_object_get(step, "memory"), *item;
    double share = 0, seconds = 0, at_peak = 0;
    size_t i;
    assert_true(has_op(ops, "linear") && has_op(ops, "linear_grad") && has_op(ops, "update"));
    json_array_foreach(ops, i, item) share += number(item, "share"), seconds += number(item, "time_s");
    lkt_close(share, 1, 1e-6);
    json_array_foreach(calls, i, item) seconds -= number(item, "time_s");
    lkt_close(seconds, 0, 1e-9);
    assert_true(json_array_size(worst) <= 3);
    json_array_foreach(worst, i, item) assert_true(number(item, "time_s") > number(item, "roofline_s"));
    json_array_foreach(json_object_get(memory, "at_peak"), i, item) at_peak += number(item, "nbytes");
    lkt_close(at_peak, number(memory, "peak_nbytes"), 0);
    assert_true(at_peak > 0 && at_peak <= number(memory, "arena_nbytes"));
    /* Flatten, Linear(784, 10) by Adam: a batch of 16. */
    lkt_close(number(memory, "parameters_nbytes"), 4 * 7850, 64);
    lkt_close(number(memory, "state_nbytes"), 2 * 4 * 7850, 128);
    json_decref(value);
    const said *r = lockstep("bench --seconds 0.05 -C " CONFIG);
    lkt_contains(r->out, "roofline  limit");
    lkt_contains(r->out, "at the roofline of ");
    lkt_contains(r->out, "optimizer state\nat the peak, ");
}

static void fallbacks_are_named(void **state)
{
    (void)state;
    const said *r = lockstep("bench --seconds 0.05 -C " CONFIG " --run/0/optimizer/_target_=LAMB");
    lkt_contains(r->out, "is computed by ref's plain kernel: ");
    lkt_contains(r->out, "ref's kernel\n");
}

static void splits_of_the_cores(void **state)
{
    (void)state;
    json_t *value = json_of("bench --split --seconds 0.3 --json -C " CONFIG), *all = json_array_get(value, 0),
           *rows = json_object_get(all, "splits"), *row;
    const char *command = json_string_value(json_object_get(all, "command"));
    double best = 0, ranks = 0;
    size_t i;
    assert_int_equal((int)number(all, "global_batch"), 16);
    json_array_foreach(rows, i, row)
    {
        assert_int_equal((int)(number(row, "ranks") * number(row, "batch_size")), 16);
        assert_int_equal((int)(number(row, "ranks") * number(row, "threads")), lki_core_count());
        if (number(row, "samples_per_s") <= best) continue;
        best = number(row, "samples_per_s");
        ranks = number(row, "ranks");
    }
    char wanted[80];
    snprintf(wanted, sizeof wanted, " --nproc %d --loaders/train/batch_size=%d", (int)ranks, 16 / (int)ranks);
    lkt_contains(command, "lockstep run -C " LK_SOURCE_DIR "/examples/mnist.yml ");
    lkt_contains(command, wanted);
    json_decref(value);
    const said *r = lockstep("bench --split --seconds 0.3 -C " CONFIG);
    lkt_contains(r->out, "global batch 16 on ");
    lkt_contains(r->out, "the fastest: lockstep run -C ");
    r = lockstep("bench --split --seconds 0.000001 -C " CONFIG);
    assert_int_equal(r->exit_code, 1);
    lkt_contains(r->err, "raise --seconds");
    check_refused(NULL, "bench --split", 2, "--split needs -C FILE");
    check_refused(NULL, "bench --split --simulate -C " CONFIG, 2, "--split trains here");
    check_refused(NULL, "bench --split -C /nowhere/x.yml", 2, "/nowhere/x.yml");
}

static json_t *row_of(json_t *rows, const char *op)
{
    size_t i;
    json_t *row;
    json_array_foreach(rows, i,
                       row) if (!strcmp(json_string_value(json_object_get(row, "op")), op)) return row;
    fail_msg("no row of %s", op);
    return NULL;
}

static void ops_over_random_shapes(void **state)
{
    (void)state;
    json_t *rows = json_of("bench --ops --seconds 0.01 --filter grad --engine cpu --json"), *row;
    static const char *const some[] = {"linear_grad", "conv_grad_weight", "attention_grad",
                                       "layer_norm_grad"};
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        row = row_of(rows, some[i]);
        json_t *shares =
            json_object_get(row, json_is_null(json_object_get(row, "large")) ? "small" : "large");
        assert_true(number(shares, "worst") > 0 && number(shares, "worst") <= number(shares, "median"));
        assert_true(json_is_false(json_object_get(row, "falls_back")));
    }
    assert_true(json_is_false(json_object_get(row_of(rows, "max_grad"), "falls_back")));
    row = row_of(rows, "gather_grad"); /* the data decides what it reads */
    assert_true(json_is_null(json_object_get(row, "large")) && json_is_null(json_object_get(row, "small")));
    assert_false(has_op(rows, "linear"));
    json_decref(rows);
    check_refused(NULL, "bench --ops --model mlp", 2, "--ops draws nets of its own");
    check_refused(NULL, "bench --filter pool", 2, "--filter needs --ops");
    check_refused(NULL, "bench --ops --engine tpu", 2, "--engine: expected");
}

static void ranks_are_timed(void **state)
{
    (void)state;
    json_t *value = json_of("bench --nproc 2 --seconds 0.01 --model mnist-linear --json");
    assert_int_equal(json_array_size(value), 5);
    json_t *row = json_array_get(value, 1);
    assert_string_equal(json_string_value(json_object_get(row, "comm")), "shm");
    assert_int_equal((int)number(row, "ranks"), 2);
    assert_int_equal((int)number(row, "nbytes"), 31400);
    assert_true(number(row, "median_s") >= number(row, "best_s"));
    json_decref(value);
}

static void wrong_words(void **state)
{
    (void)state;
    check_refused(NULL, "bench --simulate --latency-us fast", 2,
                  "--latency-us: expected a number above 0, found \"fast\"");
    check_refused(NULL, "bench --simulate --latency-us 0", 2, "--latency-us: expected a number above 0");
    check_refused(NULL, "bench --simulate --bandwidth-gbit -1", 2,
                  "--bandwidth-gbit: expected a number above 0");
    check_refused(NULL, "bench --simulate --bandwidth-gbit nan", 2,
                  "--bandwidth-gbit: expected a number above 0");
    check_refused(NULL, "bench --simulate --bucket-mb inf", 2, "--bucket-mb: expected a number above 0");
    check_refused(NULL, "bench --simulate --compute-ms x", 2, "--compute-ms: expected a number");
    check_refused(NULL, "bench --seconds x", 2, "--seconds: expected a number");
    check_refused(NULL, "bench --simulate --ranks-per-host 0", 2,
                  "--ranks-per-host: expected at least 1, found 0");
    check_refused(NULL, "bench --simulate --max-ranks 9999999", 2, "--max-ranks: expected at most 1048576");
    check_refused(NULL, "bench --simulate --model alexnet", 2, "--model: expected one of");
    check_refused(NULL, "bench --simulate --backend nccl", 2, "--backend: expected one of");
    check_refused(NULL, "bench --simulate --backend shm", 2, "--backend shm is for one host");
    check_refused(NULL, "bench --simulate --nproc 2", 2, "use --max-ranks");
    check_refused(NULL, "bench --model resnet-50", 2, "cannot be run: use --simulate");
    check_refused(NULL, "bench --model mlp -C x.yml", 2, "choose one");
    check_refused(NULL, "bench --optimizer/lr=1", 2, "an override needs -C FILE");
    check_refused(NULL, "bench -C /nowhere/x.yml", 2, "/nowhere/x.yml");
    check_refused(NULL, "bench --nproc 0", 2, "--nproc: expected at least 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_for_people),
        cmocka_unit_test(the_same_as_json),
        cmocka_unit_test(options_of_the_prediction_matter),
        cmocka_unit_test(steps_are_measured),
        cmocka_unit_test(the_ops_of_a_step),
        cmocka_unit_test(fallbacks_are_named),
        cmocka_unit_test(splits_of_the_cores),
        cmocka_unit_test(ops_over_random_shapes),
        cmocka_unit_test(ranks_are_timed),
        cmocka_unit_test(wrong_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
