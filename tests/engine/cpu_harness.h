/* Runs one call on the ref engine and on the cpu engine, at every vector width and with one and three
 * threads, and compares what they wrote: outputs, and inputs that the op changes in place. */
#ifndef CPU_HARNESS_H
#define CPU_HARNESS_H

#include "lktest.h"

#include <lockstep/sys/engine.h>

#include "base/memory.h"
#include "tensor/buffer.h"

enum { MAX_IN = 8 };

typedef struct trial {
    lk_op op;
    lk_attr attr;
    lk_tensor *in[MAX_IN]; /* NULL where absent */
    int input_count;
    lk_dtype out_dtype[LK_MAX_OUTPUTS];
    lk_shape out_shape[LK_MAX_OUTPUTS];
    int output_count;
    double tolerance;                /* relative to the largest magnitude of the result */
    uint64_t seed;                   /* of the generator, for ops that draw */
    void (*tune)(lk_engine *engine); /* where given, changes the engine before it prepares the call */
} trial;

typedef struct result {
    lk_tensor *in[MAX_IN], *out[LK_MAX_OUTPUTS];
    lk_status status;
    lk_hyper hyper;
} result;

static inline lk_tensor *random_tensor(lk_dtype dtype, lk_shape shape, double low, double high)
{
    static lk_generator generator;
    if (!generator.left) lk_generator_seed(&generator, 7);
    lk_tensor *tensor = lk_tensor_create(dtype, shape);
    lkt_not_null(tensor);
    for (int64_t i = 0; i < lk_tensor_count(tensor); i++)
        lk_tensor_set(tensor, i, low + (high - low) * lk_generator_f64(&generator));
    return tensor;
}

static inline void run_trial(result *r, const trial *t, const char *engine_name, int threads)
{
    lk_engine *engine = lk_engine_open(engine_name, LK_OPTIONS(lk_engine_options, .thread_count = threads));
    lkt_not_null(engine);
    if (t->tune) t->tune(engine);
    lk_tensor in[MAX_IN];
    memset(in, 0, sizeof in);
    int layouts[MAX_IN] = {0};
    lk_attr attr = t->attr;
    lk_generator generator;
    lk_generator_seed(&generator, t->seed);
    if (lk_op_family_of(t->op) == LK_FAMILY_UPDATE) {
        r->hyper = *attr.update.hyper;
        attr.update.hyper = &r->hyper;
    }
    lk_call call = {
        .op = t->op, .attr = &attr, .input_count = t->input_count, .output_count = t->output_count};
    call.in = in;
    call.in_layout = layouts;
    call.engine = engine;
    call.generator = &generator;
    for (int i = 0; i < t->input_count; i++) {
        r->in[i] = t->in[i] ? lk_tensor_clone(t->in[i]) : NULL;
        if (t->in[i]) in[i] = *r->in[i];
    }
    for (int i = 0; i < t->output_count; i++) {
        r->out[i] = lk_tensor_full(t->out_dtype[i], t->out_shape[i], 7);
        call.out[i] = *r->out[i];
    }
    lkt_ok(engine->ops->prepare(engine, &call));
    call.scratch = lki_calloc_aligned(call.scratch_nbytes + 64, "scratch");
    memset(call.scratch, 0x7f, call.scratch_nbytes);
    uint64_t allocations = lki_allocation_count();
    r->status = call.run(&call);
    assert_int_equal(allocations, lki_allocation_count());
    lki_free(call.scratch);
    if (call.free_state) call.free_state(call.state);
    lk_engine_close(engine);
}

static inline void free_result(result *r)
{
    for (int i = 0; i < MAX_IN; i++) lk_tensor_free(r->in[i]);
    for (int i = 0; i < LK_MAX_OUTPUTS; i++) lk_tensor_free(r->out[i]);
}

static inline void compare_tensors(const lk_tensor *actual, const lk_tensor *expected, const trial *t,
                                   const char *where)
{
    double largest = 1e-30;
    int64_t count = expected ? lk_tensor_count(expected) : 0;
    for (int64_t i = 0; i < count; i++) {
        double magnitude = fabs(lk_tensor_get(expected, i));
        if (isfinite(magnitude) && magnitude > largest) largest = magnitude;
    }
    for (int64_t i = 0; i < count; i++) {
        double a = lk_tensor_get(actual, i), e = lk_tensor_get(expected, i);
        bool same = a == e || (isnan(a) && isnan(e)) || fabs(a - e) <= t->tolerance * largest;
        if (!same)
            fail_msg("%s %s: element %lld is %.9g, expected %.9g (largest %.3g)", lk_op_name(t->op), where,
                     (long long)i, a, e, largest);
    }
}

static inline void compare_results(const result *actual, const result *expected, const trial *t,
                                   const char *where)
{
    assert_int_equal(actual->status, expected->status);
    if (expected->status != LK_OK) return;
    for (int i = 0; i < t->output_count; i++) compare_tensors(actual->out[i], expected->out[i], t, where);
    for (int i = 0; i < t->input_count; i++) compare_tensors(actual->in[i], expected->in[i], t, where);
    if (lk_op_family_of(t->op) == LK_FAMILY_UPDATE)
        lkt_close(actual->hyper.grad_norm, expected->hyper.grad_norm, 1e-5);
}

/* Levels that differ for products of bf16 alone are asked for those. */
static inline void check_trial(const trial *t)
{
    static const char *const levels[] = {"base", "avx2", "avx512", "avx512bf16", "amx"};
    int level_count = t->in[0] && t->in[0]->dtype == LK_BF16 ? 5 : 3;
    result expected = {0};
    run_trial(&expected, t, "ref", 1);
    for (int level = 0; level < level_count; level++)
        for (int threads = 1; threads <= 3; threads += 2) {
            char where[64];
            result actual = {0};
            setenv("LOCKSTEP_CPU_LEVEL", levels[level], 1);
            snprintf(where, sizeof where, "(%s, %d threads)", levels[level], threads);
            run_trial(&actual, t, "cpu", threads);
            compare_results(&actual, &expected, t, where);
            free_result(&actual);
        }
    unsetenv("LOCKSTEP_CPU_LEVEL");
    free_result(&expected);
}

/* Checks and frees the inputs. */
static inline void finish_trial(trial *t)
{
    check_trial(t);
    for (int i = 0; i < t->input_count; i++) lk_tensor_free(t->in[i]);
}

#endif
