/* One suite for every engine: each case of cases_*.c, run in several ways, against the reference engine in
 * f64.
 *
 * An engine must handle f32, and bf16 operands for ops that want 16 bits; it may answer LK_ERR_UNSUPPORTED
 * for f64, f16 and bf16 results. LOCKSTEP_TEST_ENGINE=name runs one engine alone; LOCKSTEP_TEST_OP=name one
 * op. */
#include "case.h"

#include "lktest.h"

#include "base/status.h"

static lkt_case_list cases;
static lk_engine *oracle;

static int build_cases(void **state)
{
    (void)state;
    oracle = lk_engine_open("ref", NULL);
    if (!oracle) return -1;
    lkt_cases_elementwise(&cases);
    lkt_cases_reduce(&cases);
    lkt_cases_movement(&cases);
    lkt_cases_scan(&cases);
    lkt_cases_product(&cases);
    lkt_cases_conv(&cases);
    lkt_cases_pool(&cases);
    lkt_cases_norm(&cases);
    lkt_cases_recurrent(&cases);
    lkt_cases_attention(&cases);
    lkt_cases_loss(&cases);
    lkt_cases_update(&cases);
    lkt_cases_empty(&cases);
    return 0;
}

static int free_cases(void **state)
{
    (void)state;
    lkt_case_list_free(&cases);
    lk_engine_close(oracle);
    return 0;
}

static void every_op_has_a_case(void **state)
{
    (void)state;
    for (int op = 0; op < LK_OP_COUNT; op++) {
        bool has_kernel = !(lkt_op_flags((lk_op)op) & (LK_OP_IS_LEAF | LK_OP_IS_VIEW | LK_OP_RUNS_ON_HOST)),
             found = false;
        for (int i = 0; i < cases.count; i++) found = found || cases.items[i]->op == (lk_op)op;
        if (has_kernel && !found) fail_msg("op %s has no case", lkt_op_name((lk_op)op));
    }
}

/* Ops that PyTorch refuses for every shape with a zero in it: there is none. */
static const lk_op never_empty[] = {LK_OP_COUNT};

static bool has_zero(const lk_tensor *tensor)
{
    return tensor && lk_tensor_count(tensor) == 0;
}

static bool is_empty_case(const lkt_case *c)
{
    for (int i = 0; i < c->input_count; i++)
        if (has_zero(c->in[i])) return true;
    for (int i = 0; i < c->output_count; i++)
        if (has_zero(c->out[i])) return true;
    return false;
}

static bool may_be_empty(lk_op op)
{
    for (size_t i = 0; i < sizeof never_empty / sizeof *never_empty; i++)
        if (never_empty[i] == op) return false;
    return !(lkt_op_flags(op) & (LK_OP_IS_LEAF | LK_OP_IS_VIEW | LK_OP_RUNS_ON_HOST));
}

static void every_op_has_an_empty_case(void **state)
{
    (void)state;
    int missing = 0;
    for (int op = 0; op < LK_OP_COUNT; op++) {
        bool found = !may_be_empty((lk_op)op);
        for (int i = 0; i < cases.count && !found; i++)
            found = cases.items[i]->op == (lk_op)op && is_empty_case(cases.items[i]);
        if (found) continue;
        print_error("op %s has no case with a dimension of size zero\n", lkt_op_name((lk_op)op));
        missing++;
    }
    assert_int_equal(missing, 0);
}

/* What went wrong so far on one engine; a run goes on, so that one look shows everything. */
typedef struct report {
    lk_engine *engine;
    int runs, failures;
} report;

enum { MAX_SHOWN = 40 };

static void complain(report *r, const lkt_case *c, const char *variant, const char *what)
{
    if (r->failures++ < MAX_SHOWN)
        print_error("%s: %s, %s: %s\n", lk_engine_name(r->engine), c->name, variant, what);
}

/* Compares one run with what is expected; an input that an output lies over is no longer one. */
static void compare(report *r, const lkt_case *c, const char *name, lkt_variant variant,
                    const lkt_result *actual, const lkt_result *expected, double tolerance)
{
    for (int i = 0; i < c->output_count; i++) {
        if (!actual->out[i]) continue;
        const char *difference = lkt_difference(actual->out[i], expected->out[i], tolerance);
        if (!difference) continue;
        char text[256];
        snprintf(text, sizeof text, "output %d: %s", i, difference);
        complain(r, c, name, text);
        return;
    }
    for (int i = 0; i < c->input_count; i++) {
        if (!actual->in[i] || variant.alias == i + 1) continue;
        const char *difference = lkt_difference(actual->in[i], expected->in[i], tolerance);
        if (!difference) continue;
        char text[256];
        snprintf(text, sizeof text, "operand %d after the call: %s", i, difference);
        complain(r, c, name, text);
        return;
    }
    double norm = expected->hyper.grad_norm;
    if (fabs(actual->hyper.grad_norm - norm) > tolerance * fmax(1, norm))
        complain(r, c, name, "another grad_norm");
}

/* The numbers that were drawn lie where they may, with the mean and the spread that was asked for. The wide
 * oracle draws others. */
static const char *random_difference(const lkt_case *c, const lkt_result *actual)
{
    const lk_random_attr *attr = &c->attr.random;
    const lk_tensor *y = actual->out[0];
    int64_t count = lk_tensor_count(y);
    double sum = 0, square = 0, a = attr->a, b = attr->b;
    for (int64_t i = 0; i < count; i++) {
        double value = lk_tensor_get(y, i);
        bool fits = isfinite(value);
        if (attr->kind == LK_RANDOM_UNIFORM) fits = value >= a && value < b;
        if (attr->kind == LK_RANDOM_BERNOULLI) fits = value == 0 || value == 1;
        if (!fits) return "a number lies where none may";
        sum += value;
        square += value * value;
    }
    if (count < 100) return NULL;
    bool uniform = attr->kind == LK_RANDOM_UNIFORM, normal = attr->kind == LK_RANDOM_NORMAL;
    double mean = uniform ? (a + b) / 2 : a, n = (double)count;
    double variance = uniform ? (b - a) * (b - a) / 12 : normal ? b * b : a * (1 - a);
    if (fabs(sum / n - mean) > 6 * sqrt(variance / n)) return "another mean";
    double spread = square / n - sum / n * (sum / n);
    return fabs(spread - variance) > 0.3 * variance ? "another variance" : NULL;
}

/* Engines that record programs draw on their own: which elements a dropout keeps is theirs to say, but all of
 * its results must tell the same story, and as many must be kept as p says, within six deviations. */
static bool draws_its_own(const report *r, const lkt_case *c)
{
    bool draws = (lkt_op_flags(c->op) & LK_OP_IS_RANDOM) && lk_op_family_of(c->op) != LK_FAMILY_ATTENTION;
    return r->engine->ops->begin_step && draws;
}

static const char *dropout_difference(const lkt_case *c, const lkt_result *actual, double tolerance)
{
    const lk_tensor *x = actual->in[0], *y = actual->out[0], *mask = actual->out[1];
    int64_t count = lk_tensor_count(x);
    double p = c->attr.dropout.p, kept = 0;
    for (int64_t i = 0; i < count; i++) {
        double from = lk_tensor_get(x, i), to = y ? lk_tensor_get(y, i) : 0;
        bool keep = mask ? lk_tensor_get(mask, i) != 0 : to != 0;
        if (mask && lk_tensor_get(mask, i) != keep) return "a mask is neither 0 nor 1";
        double expected = keep && p < 1 ? from / (1 - p) : 0;
        if (y && !(fabs(to - expected) <= tolerance * fmax(1, fabs(expected))))
            return "an element is neither dropped nor scaled";
        kept += keep;
    }
    double spread = sqrt(p * (1 - p) * (double)count);
    return fabs(kept - (1 - p) * (double)count) > 6 * spread ? "another share is kept than p says" : NULL;
}

static void run_variant(report *r, const lkt_case *c, const char *name, lkt_variant variant,
                        const lkt_result *expected, double tolerance, bool may_be_unsupported)
{
    lkt_result actual;
    lk_status status = lkt_run(r->engine, c, variant, &actual);
    r->runs++;
    const char *difference = NULL;
    if (status == LK_OK && c->op == LK_OP_RANDOM)
        difference = random_difference(c, &actual);
    else if (status == LK_OK && draws_its_own(r, c))
        difference = dropout_difference(c, &actual, tolerance);
    else if (status == LK_OK && lkt_case_is_compared(r->engine, c))
        compare(r, c, name, variant, &actual, expected, tolerance);
    else if (status != LK_OK && (status != LK_ERR_UNSUPPORTED || !may_be_unsupported))
        complain(r, c, name, lk_error());
    if (difference) complain(r, c, name, difference);
    lkt_result_free(&actual);
}

/* The oracle's result for the numbers that the operands hold once they are of `dtype`. */
static void expect(const lkt_case *c, lk_dtype dtype, lkt_result *expected)
{
    lkt_case rounded = *c;
    for (int i = 0; i < c->input_count; i++) {
        if (!c->in[i] || !lk_dtype_is_float(c->in[i]->dtype) || c->keeps_f32[i]) continue;
        rounded.in[i] = lk_tensor_cast(c->in[i], dtype);
        lkt_not_null(rounded.in[i]);
    }
    lkt_ok(lkt_run(oracle, &rounded, (lkt_variant){.cast = true, .dtype = LK_F64, .out_dtype = LK_F64},
                   expected));
    for (int i = 0; i < c->input_count; i++)
        if (rounded.in[i] != c->in[i]) lk_tensor_free(rounded.in[i]);
}

/* Whether output 0 may lie over input i. */
static bool can_alias(const lkt_case *c, int i)
{
    return (lkt_op_flags(c->op) & LK_OP_IS_ELEMENTWISE) && c->in[i] && c->in[i]->dtype == c->out[0]->dtype &&
           lk_shape_equal(c->in[i]->shape, c->out[0]->shape);
}

/* What the oracle must give for a case of cases_empty.c: PyTorch's number, and operands that stay. */
static void check_empty(report *r, const lkt_case *c, const lkt_result *result)
{
    for (int i = 0; i < c->output_count; i++)
        for (int64_t k = 0; result->out[i] && k < lk_tensor_count(result->out[i]); k++) {
            double value = lk_tensor_get(result->out[i], k);
            if (isnan(c->outcome) ? isnan(value) : value == c->outcome) continue;
            complain(r, c, "oracle", "an empty operand gives another number than PyTorch's");
            return;
        }
    for (int i = 0; i < c->input_count; i++)
        if (c->in[i] && lkt_difference(result->in[i], c->in[i], 0))
            complain(r, c, "oracle", "an empty batch changes an operand");
}

static void run_f32(report *r, const lkt_case *c)
{
    double tolerance = c->tolerance != 0 ? c->tolerance : 1e-5;
    lkt_result expected;
    lkt_ok(lkt_run(oracle, c, (lkt_variant){.cast = true, .dtype = LK_F64, .out_dtype = LK_F64}, &expected));
    if (c->is_empty) check_empty(r, c, &expected);
    run_variant(r, c, "plain", (lkt_variant){0}, &expected, tolerance, false);
    run_variant(r, c, "moved after prepare", (lkt_variant){.moves = true}, &expected, tolerance, false);
    run_variant(r, c, "misaligned", (lkt_variant){.offset_nbytes = 4}, &expected, tolerance, false);
    for (int i = 0; i < c->input_count; i++)
        if (can_alias(c, i))
            run_variant(r, c, "in place", (lkt_variant){.alias = i + 1}, &expected, tolerance, false);
    for (int i = 0; i < c->output_count; i++)
        if (c->output_count > 1 && !c->unwanted[i])
            run_variant(r, c, "an output unwanted", (lkt_variant){.hidden_output = i + 1}, &expected,
                        tolerance, false);
    lkt_variant doubles = {.cast = true, .dtype = LK_F64, .out_dtype = LK_F64};
    if (c->op != LK_OP_CAST) run_variant(r, c, "f64", doubles, &expected, 1e-10, true);
    lkt_result_free(&expected);
}

static void run_low(report *r, const lkt_case *c, lk_dtype low)
{
    double tolerance = c->low_tolerance != 0 ? c->low_tolerance : 2e-2;
    lkt_result expected;
    expect(c, low, &expected);
    lkt_variant to_f32 = {.cast = true, .dtype = low, .out_dtype = LK_F32}, to_low = to_f32;
    to_low.out_dtype = low;
    run_variant(r, c, low == LK_BF16 ? "bf16 to f32" : "f16 to f32", to_f32, &expected, 1e-3, low == LK_F16);
    run_variant(r, c, low == LK_BF16 ? "bf16" : "f16", to_low, &expected, tolerance, true);
    lkt_result_free(&expected);
}

/* Activations of 16 bits in and out, the rest f32, as the precision pass leaves them. */
static void run_kept(report *r, const lkt_case *c, lk_dtype low)
{
    lkt_result expected;
    expect(c, low, &expected);
    lkt_variant kept = {.cast = true, .dtype = low, .out_dtype = low, .keeps = true}, odd = kept,
                placed = kept;
    odd.offset_nbytes = 2;
    run_variant(r, c, low == LK_BF16 ? "kept as bf16" : "kept as f16", kept, &expected, 2e-2, false);
    run_variant(r, c, low == LK_BF16 ? "bf16, misaligned" : "f16, misaligned", odd, &expected, 2e-2, false);
    for (int i = 0; i < c->input_count; i++) {
        placed.alias = i + 1;
        if (can_alias(c, i)) run_variant(r, c, "16 bits in place", placed, &expected, 2e-2, false);
    }
    lkt_result_free(&expected);
}

/* An op that passes make only if the engine prefers it. Where it does not, it need not have one. */
static void run_optional(report *r, const lkt_case *c)
{
    static const struct {
        const char *name;
        lkt_variant variant;
    } forms[] = {
        {"channels last", {.channels_last = true}},
        {"channels last, moved after prepare", {.channels_last = true, .moves = true}},
        {"channels last, misaligned", {.channels_last = true, .offset_nbytes = 4}},
        {"channels last, output 0 unwanted", {.channels_last = true, .hidden_output = 1}},
        {"channels last, output 1 unwanted", {.channels_last = true, .hidden_output = 2}},
    };
    lkt_result expected;
    lkt_ok(lkt_run(oracle, c, (lkt_variant){.cast = true, .dtype = LK_F64, .out_dtype = LK_F64}, &expected));
    double tolerance = c->tolerance != 0 ? c->tolerance : 1e-5;
    if (c->is_empty) check_empty(r, c, &expected);
    run_variant(r, c, "plain", (lkt_variant){0}, &expected, tolerance, true);
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (lkt_preference(r->engine, c, forms[i].variant))
            run_variant(r, c, forms[i].name, forms[i].variant, &expected, tolerance, false);
    lkt_result_free(&expected);
    for (int k = 0; k < 2 && (lkt_op_flags(c->op) & LK_OP_KEEPS_16_BITS); k++) {
        lk_dtype low = k ? LK_F16 : LK_BF16;
        lkt_variant kept = {
            .cast = true, .dtype = low, .out_dtype = low, .keeps = true, .channels_last = true};
        if (!lkt_preference(r->engine, c, kept)) continue;
        expect(c, low, &expected);
        run_variant(r, c, k ? "f16 with channels last" : "bf16 with channels last", kept, &expected, 2e-2,
                    false);
        lkt_result_free(&expected);
    }
}

static void engine_conforms(void **state)
{
    report r = {.engine = lk_engine_open(*state, NULL)};
    lkt_not_null(r.engine);
    const char *only = getenv("LOCKSTEP_TEST_OP");
    for (int i = 0; i < cases.count; i++) {
        const lkt_case *c = cases.items[i];
        if (only && strcmp(only, lkt_op_name(c->op))) continue;
        if (lkt_op_flags(c->op) & LK_OP_IS_OPTIONAL) {
            run_optional(&r, c);
            continue;
        }
        run_f32(&r, c);
        if (lkt_op_flags(c->op) & LK_OP_KEEPS_16_BITS) {
            run_kept(&r, c, LK_BF16);
            run_kept(&r, c, LK_F16);
        }
        if (!(lkt_op_flags(c->op) & LK_OP_WANTS_16_BITS)) continue;
        run_low(&r, c, LK_BF16);
        run_low(&r, c, LK_F16);
    }
    int failures = r.failures, runs = r.runs;
    lk_engine_close(r.engine);
    if (failures) fail_msg("%d of %d runs failed", failures, runs);
}

/* What only the data shows is an error with a sentence, on every engine. */
static void bad_indices_are_errors(void **state)
{
    lk_engine *engine = lk_engine_open(*state, NULL);
    lkt_not_null(engine);
    static const lk_op ops[] = {LK_OP_CROSS_ENTROPY, LK_OP_NLL,     LK_OP_EMBEDDING,
                                LK_OP_GATHER,        LK_OP_SCATTER, LK_OP_SCATTER_ADD};
    static const int64_t wrong[] = {10, -1};
    for (int k = 0; k < 12; k++) {
        lkt_case *c = lkt_case_create(ops[k / 2]);
        if (c->op == LK_OP_EMBEDDING)
            c->attr.embedding.padding_index = -1;
        else if (lk_op_family_of(c->op) == LK_FAMILY_GATHER)
            c->attr.gather.axis = 1;
        else
            c->attr.class_loss.ignore_index = -100;
        lkt_in_f32(c, c->op == LK_OP_EMBEDDING ? LK_SHAPE(10, 4) : LK_SHAPE(5, 10), LKT_NORMAL);
        bool scatters = c->op == LK_OP_SCATTER || c->op == LK_OP_SCATTER_ADD;
        lk_shape index = scatters || c->op == LK_OP_GATHER ? LK_SHAPE(5, 2) : LK_SHAPE(5);
        lk_tensor_set(lkt_in_index(c, index, 10), 3, (double)wrong[k % 2]);
        if (scatters) lkt_in_f32(c, index, LKT_NORMAL);
        if (scatters) lkt_out_f32(c, LK_SHAPE(5, 10));
        if (c->op == LK_OP_EMBEDDING) lkt_out_f32(c, LK_SHAPE(5, 4));
        if (c->op == LK_OP_GATHER) lkt_out_f32(c, index);
        if (c->op == LK_OP_NLL || c->op == LK_OP_CROSS_ENTROPY) lkt_out_f32(c, lk_scalar_shape());
        if (c->op == LK_OP_CROSS_ENTROPY) lkt_out_f32(c, LK_SHAPE(5, 10));
        char sentence[64];
        snprintf(sentence, sizeof sentence, "%lld at position 3 is outside of 0..9", (long long)wrong[k % 2]);
        lkt_result result;
        lkt_fails(lkt_run(engine, c, (lkt_variant){0}, &result), LK_ERR_RANGE, sentence);
        lkt_result_free(&result);
        lkt_case_free(c);
    }
    lk_engine_close(engine);
}

int main(void)
{
    enum { MAX_TESTS = 18 };
    struct CMUnitTest tests[MAX_TESTS] = {cmocka_unit_test(every_op_has_a_case),
                                          cmocka_unit_test(every_op_has_an_empty_case)};
    size_t count = 2;
    const char *only = getenv("LOCKSTEP_TEST_ENGINE");
    for (const char *const *name = lk_engine_names(); *name && count + 2 <= MAX_TESTS; name++) {
        if (only && strcmp(only, *name)) continue;
        tests[count++] = (struct CMUnitTest){"engine_conforms", engine_conforms, NULL, NULL, (void *)*name};
        tests[count++] =
            (struct CMUnitTest){"bad_indices_are_errors", bad_indices_are_errors, NULL, NULL, (void *)*name};
    }
    return _cmocka_run_group_tests("conformance", tests, count, build_cases, free_cases);
}
