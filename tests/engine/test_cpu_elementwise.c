/* The cpu engine's elementwise ops, softmax, losses and updates against the reference, at every vector width.
 */
#include "cpu_harness.h"
#include "scalar.h"

static trial elementwise_trial(lk_op op, int inputs, lk_shape shape, double low, double high)
{
    trial t = {.op = op, .input_count = inputs, .output_count = 1, .tolerance = 1e-6};
    t.out_shape[0] = shape;
    for (int i = 0; i < inputs; i++) t.in[i] = random_tensor(LK_F32, shape, low, high);
    return t;
}

/* The relative error of one element must stay within `ulps` units of f32, unlike check_trial's bound over the
 * whole. */
static void check_accuracy(lk_op op, double low, double high, double ulps)
{
    trial t = elementwise_trial(op, 1, LK_SHAPE(20011), low, high);
    result expected = {0}, actual = {0};
    lk_tensor *wide = lk_tensor_cast(t.in[0], LK_F64);
    trial exact = t;
    exact.in[0] = wide;
    exact.out_dtype[0] = LK_F64;
    run_trial(&expected, &exact, "ref", 1);
    run_trial(&actual, &t, "cpu", 1);
    double worst = 0;
    for (int64_t i = 0; i < 20011; i++) {
        double e = lk_tensor_get(expected.out[0], i), a = lk_tensor_get(actual.out[0], i);
        if (fabs(e) < 1e-37 || fabs(e) > 3e38) continue;
        int exponent;
        frexp(e, &exponent);
        double error = fabs(a - e) / ldexp(1, exponent - 24);
        if (error > worst) worst = error;
    }
    if (worst > ulps) fail_msg("%s on %g..%g: %.2f ulp", lk_op_name(op), low, high, worst);
    free_result(&expected);
    free_result(&actual);
    lk_tensor_free(wide);
    lk_tensor_free(t.in[0]);
}

static void accuracy(void **state)
{
    (void)state;
    check_accuracy(LK_OP_EXP, -87, 88, 2);
    check_accuracy(LK_OP_EXP, -1, 1, 2);
    check_accuracy(LK_OP_LOG, 1e-6, 10, 2);
    check_accuracy(LK_OP_LOG, 0.9, 1.1, 2);
    check_accuracy(LK_OP_LOG, 1, 1e30, 2);
    check_accuracy(LK_OP_TANH, -10, 10, 2.5);
    check_accuracy(LK_OP_TANH, -0.1, 0.1, 2);
    check_accuracy(LK_OP_SIGMOID, -20, 20, 2.5);
    check_accuracy(LK_OP_ERF, -5, 5, 3);
    check_accuracy(LK_OP_ERF, -0.5, 0.5, 3);
}

static void special_values(void **state)
{
    (void)state;
    static const float values[] = {0,      -0.0f,  1,     -1,     INFINITY, -INFINITY, NAN,
                                   1e-42f, 1e-38f, 3e38f, -3e38f, 88.8f,    -103.9f,   -104.5f,
                                   0.5f,   -0.5f,  1e-8f, -200,   200};
    int64_t n = sizeof values / sizeof *values;
    static const lk_op ops[] = {LK_OP_EXP,   LK_OP_LOG,  LK_OP_TANH,      LK_OP_SIGMOID, LK_OP_ERF,
                                LK_OP_RELU,  LK_OP_SQRT, LK_OP_ABS,       LK_OP_NEG,     LK_OP_SIGN,
                                LK_OP_CLAMP, LK_OP_ELU,  LK_OP_LEAKY_RELU};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        trial t = {.op = ops[i], .input_count = 1, .output_count = 1, .tolerance = 1e-30};
        t.attr.scalar = lkt_scalar(ops[i], ops[i] == LK_OP_CLAMP ? -2 : 0.25, 2, false);
        t.in[0] = lk_tensor_from(LK_F32, LK_SHAPE(n), values);
        t.out_shape[0] = LK_SHAPE(n);
        t.tolerance = 3e-7;
        finish_trial(&t);
    }
    static const lk_op pairs[] = {LK_OP_MAXIMUM,    LK_OP_MINIMUM, LK_OP_RELU_GRAD,
                                  LK_OP_CLAMP_GRAD, LK_OP_ADD,     LK_OP_DIV};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        trial t = {.op = pairs[i], .input_count = 2, .output_count = 1, .tolerance = 3e-7};
        float reversed[sizeof values / sizeof *values];
        for (int64_t j = 0; j < n; j++) reversed[j] = values[n - 1 - j];
        t.attr.scalar = lkt_scalar(pairs[i], -2, 2, false);
        t.in[0] = lk_tensor_from(LK_F32, LK_SHAPE(n), values);
        t.in[1] = lk_tensor_from(LK_F32, LK_SHAPE(n), reversed);
        t.out_shape[0] = LK_SHAPE(n);
        finish_trial(&t);
    }
}

static void every_op(void **state)
{
    (void)state;
    static const struct {
        lk_op op;
        int inputs;
        double low, high, alpha, beta;
        int mode;
    } cases[] = {
        {LK_OP_ADD, 2, -2, 2, 0, 0, 0},
        {LK_OP_SUB, 2, -2, 2, 0, 0, 0},
        {LK_OP_MUL, 2, -2, 2, 0, 0, 0},
        {LK_OP_DIV, 2, 0.5, 2, 0, 0, 0},
        {LK_OP_POW, 2, 0.1, 2, 0, 0, 0},
        {LK_OP_SIN, 1, -9, 9, 0, 0, 0},
        {LK_OP_COS, 1, -9, 9, 0, 0, 0},
        {LK_OP_LEAKY_RELU, 1, -2, 2, 0.1, 0, 0},
        {LK_OP_ELU, 1, -4, 2, 0.7, 0, 0},
        {LK_OP_GELU, 1, -4, 4, 0, 0, 0},
        {LK_OP_GELU, 1, -4, 4, 0, 0, 1},
        {LK_OP_SILU, 1, -9, 9, 0, 0, 0},
        {LK_OP_SOFTPLUS, 1, -9, 30, 1.5, 20, 0},
        {LK_OP_CLAMP, 1, -2, 2, -1, 1.5, 0},
        {LK_OP_ADD_SCALAR, 1, -2, 2, 3, 0, 0},
        {LK_OP_MUL_SCALAR, 1, -2, 2, 3, 0, 0},
        {LK_OP_POW_SCALAR, 1, 0.1, 2, 3, 0, 0},
        {LK_OP_POW_SCALAR, 1, -2, 2, 2, 0, 0},
        {LK_OP_POW_SCALAR, 1, 0.1, 2, -.5, 0, 0},
        {LK_OP_COPY, 1, -2, 2, 0, 0, 0},
        {LK_OP_TANH_GRAD, 2, -1, 1, 0, 0, 0},
        {LK_OP_SIGMOID_GRAD, 2, 0, 1, 0, 0, 0},
        {LK_OP_RELU_GRAD, 2, -1, 1, 0, 0, 0},
        {LK_OP_LEAKY_RELU_GRAD, 2, -1, 1, 0.1, 0, 0},
        {LK_OP_ELU_GRAD, 2, -4, 1, 0.7, 0, 0},
        {LK_OP_GELU_GRAD, 2, -4, 4, 0, 0, 0},
        {LK_OP_GELU_GRAD, 2, -4, 4, 0, 0, 1},
        {LK_OP_SILU_GRAD, 2, -9, 9, 0, 0, 0},
        {LK_OP_SOFTPLUS_GRAD, 2, -9, 30, 1.5, 20, 0},
        {LK_OP_CLAMP_GRAD, 2, -2, 2, -1, 1.5, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int size = 0; size < 3; size++) {
            static const int64_t counts[] = {1, 37, 40000};
            trial t = elementwise_trial(cases[i].op, cases[i].inputs, LK_SHAPE(counts[size]), cases[i].low,
                                        cases[i].high);
            t.attr.scalar = lkt_scalar(cases[i].op, cases[i].alpha, cases[i].beta, cases[i].mode);
            finish_trial(&t);
        }
}

static void broadcasting(void **state)
{
    (void)state;
    static const lk_shape shapes[][3] = {
        {{2, {32, 10}}, {1, {10}}, {2, {32, 10}}},
        {{2, {32, 700}}, {2, {32, 1}}, {2, {32, 700}}},
        {{2, {32, 700}}, {0, {0}}, {2, {32, 700}}},
        {{4, {3, 1, 5, 7}}, {3, {6, 1, 7}}, {4, {3, 6, 5, 7}}},
        {{2, {1, 9}}, {2, {40, 1}}, {2, {40, 9}}},
        {{3, {4, 5, 6}}, {3, {1, 5, 1}}, {3, {4, 5, 6}}},
        {{1, {1}}, {1, {1}}, {1, {1}}},
        {{0, {0}}, {0, {0}}, {0, {0}}},
        {{4, {2, 3, 40, 41}}, {4, {1, 3, 1, 1}}, {4, {2, 3, 40, 41}}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        trial t = {.op = LK_OP_SUB, .input_count = 2, .output_count = 1, .tolerance = 1e-7};
        t.in[0] = random_tensor(LK_F32, shapes[i][0], -1, 1);
        t.in[1] = random_tensor(LK_F32, shapes[i][1], -1, 1);
        t.out_shape[0] = shapes[i][2];
        finish_trial(&t);
    }
}

static void fused_chain(void **state)
{
    (void)state;
    /* tanh(a * row + column) - a, then squared, plus the scalar */
    static const lk_fused program = {
        .input_count = 4,
        .step_count = 6,
        .step = {{LK_OP_MUL, {0, 1, 0}, {0}},
                 {LK_OP_ADD, {4, 2, 0}, {0}},
                 {LK_OP_TANH, {5, 0, 0}, {0}},
                 {LK_OP_SUB, {6, 0, 0}, {0}},
                 {LK_OP_MUL, {7, 7, 0}, {0}},
                 {LK_OP_ADD, {8, 3, 0}, {0}}},
    };
    trial t = {.op = LK_OP_FUSED, .input_count = 4, .output_count = 1, .tolerance = 1e-6};
    t.attr.fused.chain = &program;
    t.in[0] = random_tensor(LK_F32, LK_SHAPE(70, 131), -1, 1);
    t.in[1] = random_tensor(LK_F32, LK_SHAPE(131), -1, 1);
    t.in[2] = random_tensor(LK_F32, LK_SHAPE(70, 1), -1, 1);
    t.in[3] = random_tensor(LK_F32, lk_scalar_shape(), -1, 1);
    t.out_shape[0] = LK_SHAPE(70, 131);
    finish_trial(&t);
}

static void other_dtypes(void **state)
{
    (void)state;
    static const lk_dtype dtypes[] = {LK_F32, LK_F64, LK_BF16, LK_F16, LK_I64, LK_I32, LK_U8, LK_BOOL};
    for (int from = 0; from < 8; from++)
        for (int to = 0; to < 8; to++) {
            trial t = {.op = LK_OP_CAST, .input_count = 1, .output_count = 1, .tolerance = 0};
            t.attr.cast.dtype = dtypes[to];
            t.in[0] = random_tensor(dtypes[from], LK_SHAPE(1333), 0, 100);
            t.out_dtype[0] = dtypes[to];
            t.out_shape[0] = LK_SHAPE(1333);
            finish_trial(&t);
        }
    for (int d = 0; d < 4; d++) {
        trial t = {.op = LK_OP_GREATER, .input_count = 2, .output_count = 1, .tolerance = 0};
        t.in[0] = random_tensor(dtypes[d], LK_SHAPE(50, 3), -1, 1);
        t.in[1] = random_tensor(dtypes[d], LK_SHAPE(3), -1, 1);
        t.out_dtype[0] = LK_BOOL;
        t.out_shape[0] = LK_SHAPE(50, 3);
        finish_trial(&t);
        trial w = {.op = LK_OP_WHERE, .input_count = 3, .output_count = 1, .tolerance = 0};
        w.in[0] = random_tensor(LK_BOOL, LK_SHAPE(50, 3), -1, 1);
        for (int64_t i = 0; i < 150; i += 3) lk_tensor_set(w.in[0], i, 0);
        w.in[1] = random_tensor(dtypes[d], LK_SHAPE(50, 3), -1, 1);
        w.in[2] = random_tensor(dtypes[d], LK_SHAPE(3), -1, 1);
        w.out_dtype[0] = dtypes[d];
        w.out_shape[0] = LK_SHAPE(50, 3);
        finish_trial(&w);
    }
}

static void softmax(void **state)
{
    (void)state;
    static const lk_shape shapes[] = {{2, {32, 10}}, {2, {5, 100}}, {3, {4, 7, 33}},
                                      {2, {3, 16}},  {1, {9}},      {2, {2, 1000}}};
    static const lk_op ops[] = {LK_OP_SOFTMAX, LK_OP_LOG_SOFTMAX, LK_OP_SOFTMAX_GRAD, LK_OP_LOG_SOFTMAX_GRAD};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int axis = 0; axis < shapes[i].rank; axis++)
            for (int op = 0; op < 4; op++) {
                trial t = elementwise_trial(ops[op], op < 2 ? 1 : 2, shapes[i], op < 2 ? -9 : 0.1,
                                            op < 2 ? 9 : 0.9);
                t.attr.axis.axis = axis;
                t.tolerance = 1e-6;
                finish_trial(&t);
            }
}

/* A norm over one number gives zero, and so is its gradient, to the last bit: istd is large there, and Adam
 * would make steps of whatever rounding leaves. */
static void norms_of_one_number(void **state)
{
    (void)state;
    for (int grouped = 0; grouped < 2; grouped++) {
        lk_shape shape = grouped ? LK_SHAPE(9, 7) : LK_SHAPE(63, 1), sets = grouped ? shape : LK_SHAPE(63);
        lk_shape weights = LK_SHAPE(grouped ? 7 : 1);
        lk_tensor *x = random_tensor(LK_F32, shape, -2, 2), *mean = lk_tensor_create(LK_F32, sets);
        memcpy(mean->data, x->data, 63 * sizeof(float));
        trial t = {.op = grouped ? LK_OP_GROUP_NORM_GRAD : LK_OP_LAYER_NORM_GRAD,
                   .attr = {.norm = {.axis_count = 1, .group_count = 7}},
                   .in = {random_tensor(LK_F32, shape, -2, 2), x, random_tensor(LK_F32, weights, 0.5, 2),
                          mean, random_tensor(LK_F32, sets, 300, 320)},
                   .input_count = 5,
                   .out_dtype = {LK_F32, LK_F32, LK_F32},
                   .out_shape = {shape, weights, weights},
                   .output_count = 3,
                   .tolerance = 1e-6};
        finish_trial(&t);
    }
}

static lk_tensor *random_targets(lk_shape shape, int64_t classes)
{
    lk_tensor *target = random_tensor(LK_I64, shape, 0, (double)classes - 1e-6);
    return target;
}

static void cross_entropy(void **state)
{
    (void)state;
    for (int form = 0; form < 24; form++) {
        bool spatial = form & 1, weighted = form & 2, ignoring = form & 4;
        trial t = {
            .op = LK_OP_CROSS_ENTROPY, .input_count = weighted ? 3 : 2, .output_count = 2, .tolerance = 1e-6};
        lk_shape logits = spatial ? LK_SHAPE(3, 5, 7, 2) : LK_SHAPE(32, 10);
        lk_shape samples = spatial ? LK_SHAPE(3, 7, 2) : LK_SHAPE(32);
        t.attr.class_loss.reduction = (lk_reduction)(form / 8);
        t.attr.class_loss.ignore_index = ignoring ? 2 : -100;
        t.in[0] = random_tensor(LK_F32, logits, -5, 5);
        t.in[1] = random_targets(samples, logits.dim[1]);
        if (weighted) t.in[2] = random_tensor(LK_F32, LK_SHAPE(logits.dim[1]), 0.1, 2);
        t.out_shape[0] = t.attr.class_loss.reduction == LK_REDUCTION_NONE ? samples : lk_scalar_shape();
        t.out_shape[1] = logits;
        check_trial(&t);
        trial g = {.op = LK_OP_CROSS_ENTROPY_GRAD,
                   .input_count = weighted ? 4 : 3,
                   .output_count = 1,
                   .tolerance = 1e-6};
        g.attr = t.attr;
        result forward = {0};
        run_trial(&forward, &t, "ref", 1);
        g.in[0] = random_tensor(LK_F32, t.out_shape[0], 0.5, 2);
        g.in[1] = forward.out[1];
        g.in[2] = t.in[1];
        g.in[3] = t.in[2];
        g.out_shape[0] = logits;
        check_trial(&g);
        lk_tensor_free(g.in[0]);
        free_result(&forward);
        for (int i = 0; i < 3; i++) lk_tensor_free(t.in[i]);
    }
}

static void a_target_out_of_range(void **state)
{
    (void)state;
    trial t = {.op = LK_OP_CROSS_ENTROPY, .input_count = 2, .output_count = 2};
    t.attr.class_loss.ignore_index = -100;
    t.in[0] = random_tensor(LK_F32, LK_SHAPE(4, 3), -1, 1);
    t.in[1] = random_targets(LK_SHAPE(4), 3);
    lk_tensor_set(t.in[1], 2, 3);
    t.out_shape[0] = lk_scalar_shape();
    t.out_shape[1] = LK_SHAPE(4, 3);
    result r = {0};
    run_trial(&r, &t, "cpu", 1);
    assert_int_equal(r.status, LK_ERR_RANGE);
    lkt_contains(lk_error(), "target 3 at position 2 is outside of 0..2");
    free_result(&r);
    lk_tensor_free(t.in[0]);
    lk_tensor_free(t.in[1]);
}

static void pointwise_losses(void **state)
{
    (void)state;
    for (int kind = LK_LOSS_MSE; kind <= LK_LOSS_KL_DIV; kind++)
        for (int form = 0; form < 8; form++) {
            bool none = form & 1,
                 weighted = (form & 2) && (kind == LK_LOSS_BCE || kind == LK_LOSS_BCE_WITH_LOGITS);
            trial t = {.op = LK_OP_POINTWISE_LOSS,
                       .input_count = weighted ? 4 : 2,
                       .output_count = 1,
                       .tolerance = 1e-6};
            lk_shape shape = form & 4 ? LK_SHAPE(3, 6007) : LK_SHAPE(5, 7);
            bool unit = kind == LK_LOSS_BCE;
            t.attr.pointwise_loss.kind = (lk_pointwise_loss)kind;
            t.attr.pointwise_loss.parameter = kind == LK_LOSS_KL_DIV ? (form & 2) != 0 : 0.3;
            t.attr.pointwise_loss.reduction = none       ? LK_REDUCTION_NONE
                                              : form & 4 ? LK_REDUCTION_MEAN
                                                         : LK_REDUCTION_BATCH_MEAN;
            t.in[0] = random_tensor(LK_F32, shape, unit ? 0 : -2, unit ? 1 : 2);
            t.in[1] = random_tensor(LK_F32, shape, 0, 1);
            if (weighted) {
                t.in[2] = random_tensor(LK_F32, shape, 0, 2);
                if (kind == LK_LOSS_BCE_WITH_LOGITS) t.in[3] = random_tensor(LK_F32, shape, 0, 2);
            }
            t.out_shape[0] = none ? shape : lk_scalar_shape();
            check_trial(&t);
            trial g = {.op = LK_OP_POINTWISE_LOSS_GRAD, .input_count = t.input_count + 1, .output_count = 1};
            g.tolerance = 2e-6;
            g.attr = t.attr;
            g.in[0] = random_tensor(LK_F32, t.out_shape[0], 0.5, 2);
            for (int i = 0; i < 4; i++) g.in[i + 1] = t.in[i];
            g.out_shape[0] = shape;
            finish_trial(&g);
        }
}

static void updates(void **state)
{
    (void)state;
    for (int rule = LK_UPDATE_SGD; rule < LK_UPDATE_COUNT; rule++)
        for (int form = 0; form < 16; form++) {
            lk_hyper hyper = {.lr = 0.01,
                              .momentum = form & 1 ? 0.9 : 0,
                              .dampening = 0.1,
                              .weight_decay = form & 2 ? 0.05 : 0};
            hyper.beta1 = 0.9, hyper.beta2 = 0.999, hyper.eps = 1e-8, hyper.alpha = 0.99,
            hyper.lr_decay = 0.01;
            hyper.nesterov = hyper.amsgrad = hyper.centered = form & 4;
            hyper.maximize = form & 8;
            hyper.grad_scale = form & 8 ? 0.5 : 0;
            hyper.step = form % 3 + 1;
            if (rule == LK_UPDATE_RPROP) hyper.clip = 50;
            trial t = {.op = LK_OP_UPDATE, .input_count = 5, .tolerance = 1e-6};
            t.attr.update.rule = (lk_update_rule)rule;
            t.attr.update.hyper = &hyper;
            lk_shape shape = form & 1 ? LK_SHAPE(7850) : LK_SHAPE(37);
            for (int i = 0; i < 5; i++) t.in[i] = random_tensor(LK_F32, shape, i < 2 ? -1 : 0.5, 1);
            /* A gradient average whose square stays below the average of squares; a product far from 1. */
            if (rule == LK_UPDATE_RMSPROP || rule == LK_UPDATE_NADAM)
                for (int64_t i = 0; i < lk_tensor_count(t.in[4]); i++) lk_tensor_set(t.in[4], i, 0.1);
            finish_trial(&t);
        }
}

static void clipping_and_accumulation(void **state)
{
    (void)state;
    for (int form = 0; form < 8; form++) {
        lk_hyper hyper = {.clip = form & 1 ? 0.5 : 1e6, .grad_scale = form & 2 ? 0.25 : 0, .first = form & 4};
        static const lk_op ops[] = {LK_OP_CLIP_NORM, LK_OP_CLIP_VALUE, LK_OP_ACCUMULATE};
        for (int i = 0; i < 3; i++) {
            trial t = {.op = ops[i], .input_count = i == 2 ? 2 : 1, .tolerance = 1e-6};
            t.attr.update.hyper = &hyper;
            t.in[0] = random_tensor(LK_F32, LK_SHAPE(50021), -3, 3);
            if (i == 2) t.in[1] = random_tensor(LK_F32, LK_SHAPE(50021), -3, 3);
            finish_trial(&t);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accuracy),
        cmocka_unit_test(special_values),
        cmocka_unit_test(every_op),
        cmocka_unit_test(broadcasting),
        cmocka_unit_test(fused_chain),
        cmocka_unit_test(other_dtypes),
        cmocka_unit_test(softmax),
        cmocka_unit_test(norms_of_one_number),
        cmocka_unit_test(cross_entropy),
        cmocka_unit_test(a_target_out_of_range),
        cmocka_unit_test(pointwise_losses),
        cmocka_unit_test(updates),
        cmocka_unit_test(clipping_and_accumulation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
