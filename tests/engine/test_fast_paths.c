/* Every fast path of an engine is entered, on both sides of its thresholds, and gives what the reference
 * engine gives in f64. The cpu engine runs all cases at each of its vector levels, with one thread and with
 * three. LOCKSTEP_TEST_ENGINE=cuda runs them there instead. */
#include "case.h"
#include "case_steps.h"

#include "lktest.h"

#include "base/memory.h"

enum { MAX_SHOWN = 30, MAX_PATHS = 96 };

static lkt_case_list cases;
static lkt_result *expected;
static uint64_t entered[MAX_PATHS];

static int prepare_cases(void **state)
{
    (void)state;
    lkt_cases_fast(&cases);
    expected = LKI_NEW_ARRAY(lkt_result, cases.count);
    lk_engine *oracle = lk_engine_open("ref", NULL);
    if (!oracle || !expected) return -1;
    for (int i = 0; i < cases.count; i++)
        lkt_ok(lkt_run(oracle, cases.items[i],
                       (lkt_variant){.cast = true, .dtype = LK_F64, .out_dtype = LK_F64}, &expected[i]));
    lk_engine_close(oracle);
    return 0;
}

static int free_cases(void **state)
{
    (void)state;
    for (int i = 0; i < cases.count; i++) lkt_result_free(&expected[i]);
    lki_free(expected);
    lkt_case_list_free(&cases);
    return 0;
}

static bool is_norm(const lkt_case *c)
{
    return lk_op_family_of(c->op) == LK_FAMILY_NORM;
}

/* The mean and deviation of infinities are infinite or not a number: engines may say either. */
static bool has_infinities(const lk_tensor *tensor)
{
    for (int64_t i = 0; i < lk_tensor_count(tensor); i++)
        if (!isfinite(lk_tensor_get(tensor, i))) return true;
    return false;
}

static int run_case(lk_engine *engine, int index, lkt_variant variant, const char *where)
{
    const lkt_case *c = cases.items[index];
    lkt_result actual;
    const char *difference = NULL;
    if (lkt_run(engine, c, variant, &actual)) difference = lk_error();
    for (int i = 0; i < c->output_count && !difference && lkt_case_is_compared(engine, c); i++)
        if (actual.out[i] && !(i && is_norm(c) && has_infinities(expected[index].out[i])))
            difference = lkt_difference(actual.out[i], expected[index].out[i],
                                        variant.cast        ? 3e-2
                                        : c->tolerance != 0 ? c->tolerance
                                                            : 1e-5);
    if (difference) print_error("%s: %s: %s\n", where, c->name, difference);
    lkt_result_free(&actual);
    return difference != NULL;
}

static int run_all(lk_engine *engine, const char *where)
{
    int failures = 0;
    for (int i = 0; i < cases.count && failures < MAX_SHOWN; i++) {
        failures += run_case(engine, i, (lkt_variant){0}, where);
        if (i % 5 == 0)
            failures += run_case(engine, i, (lkt_variant){.moves = true, .offset_nbytes = 4}, where);
    }
    return failures;
}

static void count_entries(lk_engine *engine)
{
    int count;
    const lk_engine_path *paths = engine->ops->paths(engine, &count);
    assert_in_range(count, 1, MAX_PATHS);
    for (int i = 0; i < count; i++) entered[i] += paths[i].entered;
}

static int report_missed(lk_engine *engine, const char *where)
{
    int count, missed = 0;
    const lk_engine_path *paths = engine->ops->paths(engine, &count);
    for (int i = 0; i < count; i++) {
        if (!paths[i].is_here || entered[i]) continue;
        print_error("%s: no case has entered the path \"%s\"\n", where, paths[i].name);
        missed++;
    }
    return missed;
}

/* A 16-bit case or two: the suite of conformance has more. */
static int run_low(lk_engine *engine, const char *where)
{
    lkt_case *c = lkt_case_create(LK_OP_RELU);
    lkt_in(c, LK_BF16, LK_SHAPE(19), LKT_NORMAL);
    lkt_out(c, LK_BF16, LK_SHAPE(19));
    lkt_case *sum = lkt_case_create(LK_OP_SUM);
    lkt_in(sum, LK_BF16, LK_SHAPE(19), LKT_COARSE);
    lkt_out_f32(sum, lk_scalar_shape());
    sum->attr.reduce.axes = 1;
    int failures = 0;
    for (int i = 0; i < 2; i++) {
        lkt_result result;
        failures += lkt_run(engine, i ? sum : c, (lkt_variant){0}, &result) != LK_OK;
        lkt_result_free(&result);
    }
    if (failures) print_error("%s: 16 bits: %s\n", where, lk_error());
    lkt_case_free(c);
    lkt_case_free(sum);
    return failures;
}

static void at_level(void **state)
{
    const char *level = *state;
    int failures = 0;
    memset(entered, 0, sizeof entered);
    setenv("LOCKSTEP_CPU_LEVEL", level, 1);
    for (int threads = 1; threads <= 3; threads += 2) {
        lk_engine *engine = lk_engine_open("cpu", LK_OPTIONS(lk_engine_options, .thread_count = threads));
        lkt_not_null(engine);
        failures += run_all(engine, level) + run_low(engine, level);
        count_entries(engine);
        if (threads == 3) failures += report_missed(engine, level);
        lk_engine_close(engine);
    }
    unsetenv("LOCKSTEP_CPU_LEVEL");
    if (failures) fail_msg("%d failures at level %s", failures, level);
}

static uint64_t entered_path(lk_engine *engine, const char *name)
{
    int count;
    const lk_engine_path *paths = engine->ops->paths(engine, &count);
    for (int i = 0; i < count; i++)
        if (strcmp(paths[i].name, name) == 0) return paths[i].entered;
    return 0;
}

/* Large linear layers in 16 bits with a bias of f32 are for the library, which has the tensor cores. */
static int run_low_linears(lk_engine *engine, const char *where)
{
    static const char library[] = "product: cuBLASLt";
    int failures = 0, runs = 0;
    uint64_t before = entered_path(engine, library);
    for (int i = 0; i < cases.count; i++) {
        if (strncmp(cases.items[i]->name, "linear fast bf16 64 80 64", 25) != 0) continue;
        failures += run_case(engine, i, (lkt_variant){0}, where);
        runs++;
    }
    bool all = runs > 0 && entered_path(engine, library) == before + (uint64_t)runs;
    if (!all) print_error("%s: of %d linear layers in 16 bits not all entered %s\n", where, runs, library);
    return failures + !all;
}

static void on_engine(void **state)
{
    memset(entered, 0, sizeof entered);
    lk_engine *engine = lk_engine_open(*state, NULL);
    lkt_not_null(engine);
    int failures = run_all(engine, *state);
    if (engine->ops->paths) {
        if (strcmp(*state, "cuda") == 0) failures += run_low_linears(engine, *state);
        failures += lkt_run_fast_steps(engine, *state);
        count_entries(engine);
        failures += report_missed(engine, *state);
    }
    lk_engine_close(engine);
    if (failures) fail_msg("%d failures on engine %s", failures, (const char *)*state);
}

int main(void)
{
    const struct CMUnitTest levels[] = {
        {"avx512", at_level, NULL, NULL, "avx512"},
        {"avx2", at_level, NULL, NULL, "avx2"},
        {"base", at_level, NULL, NULL, "base"},
    };
    const char *engine = getenv("LOCKSTEP_TEST_ENGINE");
    if (!engine) return cmocka_run_group_tests(levels, prepare_cases, free_cases);
    const struct CMUnitTest one[] = {{"engine", on_engine, NULL, NULL, (void *)engine}};
    return cmocka_run_group_tests(one, prepare_cases, free_cases);
}
