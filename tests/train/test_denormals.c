/* A step flushes denormals, trains as PyTorch does, which keeps them, and leaves the caller's mode as it was,
 * also where it fails. */
#include "lktest.h"

#include <lockstep/lockstep.h>

#include "base/float_mode.h"
#include "comm/reduction.h"
#include "step/step.h"

static const bool can_flush = LKI_FLOAT_FLUSH != 0;

/* As tests/oracle/denormals.py. */
enum { STEPS = 1000, WAKE = 820, EVERY = 20, LOOK = 420 };

static void look_for_denormals(const lk_step *step)
{
    int normal = 0;
    for (int s = 0; s < 2; s++) {
        const float *moment = lki_buffer_data(step->flat.states[s]);
        for (int64_t i = 0; i < 12 * 4; i++) {
            if (can_flush) assert_true(fpclassify(moment[i]) != FP_SUBNORMAL);
            normal += fpclassify(moment[i]) == FP_NORMAL;
        }
    }
    assert_true(normal > 0);
}

static void train_to_denormals(const char *engine_name, const double *losses)
{
    lk_manual_seed(7);
    lk_module *model = lk_linear(12, 4);
    lk_tensor *x = lk_randn(LK_SHAPE(8, 12)), *silent = lk_tensor_create(LK_F32, LK_SHAPE(8, 12)),
              *y = lk_tensor_create(LK_I64, LK_SHAPE(8));
    for (int64_t i = 0; i < 8; i++) lk_tensor_set(y, i, (double)(i % 4));
    for (int64_t i = 0; i < 8 * 12; i++) lk_tensor_set(silent, i, i % 12 < 6 ? lk_tensor_get(x, i) : 0);
    lk_engine *engine = lk_engine_open(engine_name, LK_OPTIONS(lk_engine_options, .thread_count = 1));
    lk_step *step = lk_step(.model = model, .criterion = lk_cross_entropy_loss(), .engine = engine,
                            .owned = true, .optimizer = lk_adam(.lr = 0.01, .beta1 = 0.8, .beta2 = 0.9));
    lkt_not_null(step);
    for (int i = 0; i < STEPS; i++) {
        lk_input fields[] = {{"features", i == 0 || i >= WAKE ? x : silent}, {"targets", y}};
        lkt_ok(lk_step_train(step, fields, 2));
        if (i % EVERY == EVERY - 1) lkt_close(lk_step_loss(step), losses[i / EVERY], 2e-5);
        if (i == LOOK) look_for_denormals(step);
    }
    lk_step_free(step);
    lk_engine_close(engine);
    lk_tensor_free(x);
    lk_tensor_free(silent);
    lk_tensor_free(y);
}

static void losses_equal_pytorchs(void **state)
{
    (void)state;
    double losses[STEPS / EVERY];
    FILE *file = fopen(LK_SOURCE_DIR "/tests/golden/train/denormals.txt", "r");
    lkt_not_null(file);
    for (int i = 0; i < STEPS / EVERY; i++) assert_int_equal(fscanf(file, "%lf", &losses[i]), 1);
    fclose(file);
    train_to_denormals("cpu", losses);
    train_to_denormals("ref", losses);
}

/* Each entry point, in the mode that the caller has: what it is afterwards must be the same. */
static lki_float_mode callers;

static void expect_callers_mode(const char *after)
{
    if (lki_float_mode_now().control != callers.control) fail_msg("%s left another mode behind", after);
}

#define KEEPS_MODE(call)                                                                                     \
    do {                                                                                                     \
        (void)(call);                                                                                        \
        expect_callers_mode(#call);                                                                          \
    } while (0)

static void try_good_steps(void)
{
    lk_engine *engine = lk_engine_open("cpu", LK_OPTIONS(lk_engine_options, .thread_count = 2));
    lk_step *step =
        lk_step(.model = lk_sequential(lk_conv2d(1, 4, 3), lk_relu(), lk_flatten(), lk_linear(4 * 36, 3)),
                .criterion = lk_cross_entropy_loss(), .optimizer = lk_adam(.lr = 0.01), .clip_norm = 1.0,
                .engine = engine, .owned = true);
    lk_tensor *x = lk_randn(LK_SHAPE(4, 1, 8, 8)), *y = lk_tensor_full(LK_I64, LK_SHAPE(4), 1);
    lk_input fields[] = {{"features", x}, {"targets", y}};
    for (int i = 0; i < 2; i++) {
        KEEPS_MODE(lk_step_train(step, fields, 2));
        KEEPS_MODE(lk_step_evaluate(step, fields, 2));
        KEEPS_MODE(lk_step_begin(step, fields, 2, true));
        KEEPS_MODE(lk_step_forward(step));
        KEEPS_MODE(lk_step_criterion(step));
        KEEPS_MODE(lk_step_backward(step));
        KEEPS_MODE(lk_step_update(step));
    }
    assert_true(isfinite(lk_step_loss(step)));
    lk_step_free(step);
    lk_engine_close(engine);
    lk_tensor_free(x);
    lk_tensor_free(y);
}

/* A shape that does not fit, an index out of range and a loss that is not finite. */
static void try_bad_steps(void)
{
    static const struct {
        double feature, target;
        int64_t width;
        lk_status expected;
    } cases[] = {
        {1, 0, 4, LK_ERR_SHAPE},
        {1, 7, 3, LK_ERR_RANGE},
        {NAN, 0, 3, LK_ERR_NAN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lk_step *step = lk_step(.model = lk_linear(3, 3), .criterion = lk_cross_entropy_loss(),
                                .optimizer = lk_sgd(.lr = 0.1), .owned = true);
        lk_tensor *x = lk_tensor_full(LK_F32, LK_SHAPE(2, cases[i].width), cases[i].feature),
                  *y = lk_tensor_full(LK_I64, LK_SHAPE(2), cases[i].target);
        lk_input fields[] = {{"features", x}, {"targets", y}};
        assert_int_equal(lk_step_train(step, fields, 2), cases[i].expected);
        expect_callers_mode("a step that failed");
        lk_step_free(step);
        lk_tensor_free(x);
        lk_tensor_free(y);
    }
}

static lk_value *square(lk_value *const *inputs, int count, void *context)
{
    (void)count;
    (void)context;
    return lk_op_mul(inputs[0], inputs[0]);
}

static void the_callers_mode_is_kept(void **state)
{
    (void)state;
    lki_float_mode before = lki_float_mode_now();
    for (int flush = 0; flush < 2; flush++) {
        if (flush) lki_float_mode_flush();
        callers = lki_float_mode_now();
        try_good_steps();
        try_bad_steps();
        lk_tensor *x = lk_tensor_full(LK_F64, LK_SHAPE(3, 2), 1.5);
        KEEPS_MODE(lk_gradcheck(square, NULL, &x, 1, 1e-4));
        lk_tensor_free(x);
        lki_float_mode_restore(before);
    }
}

static lki_float_mode seen_by_rule;

static void look_around(const lk_update *update)
{
    (void)update;
    seen_by_rule = lki_float_mode_now();
}

static void a_rule_of_your_own_runs_in_your_mode(void **state)
{
    (void)state;
    lk_step *step = lk_step(.model = lk_linear(3, 3), .criterion = lk_cross_entropy_loss(), .owned = true,
                            .optimizer = lk_custom_optimizer(.update = look_around, .lr = 0.1));
    lk_tensor *x = lk_tensor_full(LK_F32, LK_SHAPE(2, 3), 1), *y = lk_tensor_full(LK_I64, LK_SHAPE(2), 1);
    seen_by_rule = (lki_float_mode){~UINT64_C(0)};
    lkt_ok(lk_step_train(step, (lk_input[]){{"features", x}, {"targets", y}}, 2));
    assert_true(seen_by_rule.control == lki_float_mode_now().control);
    lk_step_free(step);
    lk_tensor_free(x);
    lk_tensor_free(y);
}

/* Ranks whose threads are in different modes get the same bits from a reduction. */
static void reductions_do_not_depend_on_the_mode(void **state)
{
    (void)state;
    enum { COUNT = 37 };
    callers = lki_float_mode_now();
    float a[COUNT], b[COUNT], sums[2][COUNT], halves[2][COUNT];
    for (int i = 0; i < COUNT; i++) {
        a[i] = i % 3 ? 0x1.8p-127f : (float)i;
        b[i] = i % 2 ? 0x1p-126f : -0.25f * (float)i;
    }
    for (int flush = 0; flush < 2; flush++) {
        lki_float_mode mode = lki_float_mode_now();
        if (flush) lki_float_mode_flush();
        lki_reduce(sums[flush], (const void *[]){a, b}, 2, COUNT, LK_F32, LK_REDUCE_AVG, 2);
        memcpy(halves[flush], b, sizeof b);
        lki_scale(halves[flush], COUNT, LK_F32, 2);
        lki_float_mode_restore(mode);
        expect_callers_mode("a reduction");
    }
    assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
    assert_memory_equal(halves[0], halves[1], sizeof halves[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_equal_pytorchs),
        cmocka_unit_test(the_callers_mode_is_kept),
        cmocka_unit_test(a_rule_of_your_own_runs_in_your_mode),
        cmocka_unit_test(reductions_do_not_depend_on_the_mode),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
