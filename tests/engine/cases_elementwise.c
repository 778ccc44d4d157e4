/* Cases of the elementwise ops: sizes around vector widths, every pattern of broadcasting, fused chains. */
#include "case.h"
#include "scalar.h"

#include <math.h>

/* Odd sizes below, at and above vector widths, and one that needs several threads. */
static const int64_t sizes[] = {0, 1, 3, 8, 16, 17, 31, 67, 1027, 100003};
enum { SIZE_COUNT = sizeof sizes / sizeof *sizes };

static void binary(lkt_case_list *list, lk_op op, lkt_fill left, lkt_fill right, lk_dtype result)
{
    for (int i = 0; i < SIZE_COUNT; i++) {
        lkt_case *c = lkt_case_add(list, op, "of %lld", (long long)sizes[i]);
        lkt_in_f32(c, LK_SHAPE(sizes[i]), left);
        lkt_in_f32(c, LK_SHAPE(sizes[i]), right);
        lkt_out(c, result, LK_SHAPE(sizes[i]));
    }
    static const struct {
        lk_shape a, b, out;
    } shapes[] = {
        {{2, {5, 37}}, {1, {37}}, {2, {5, 37}}},
        {{1, {37}}, {2, {5, 37}}, {2, {5, 37}}},
        {{2, {5, 37}}, {2, {5, 1}}, {2, {5, 37}}},
        {{2, {5, 1}}, {2, {1, 37}}, {2, {5, 37}}},
        {{2, {5, 37}}, {0, {0}}, {2, {5, 37}}},
        {{0, {0}}, {2, {5, 37}}, {2, {5, 37}}},
        {{0, {0}}, {0, {0}}, {0, {0}}},
        {{3, {2, 1, 19}}, {2, {3, 1}}, {3, {2, 3, 19}}},
        {{4, {2, 3, 4, 5}}, {3, {3, 1, 1}}, {4, {2, 3, 4, 5}}},
        {{4, {2, 3, 4, 5}}, {4, {2, 1, 4, 1}}, {4, {2, 3, 4, 5}}},
        {{4, {1, 3, 1, 5}}, {4, {2, 1, 4, 1}}, {4, {2, 3, 4, 5}}},
        {{3, {4, 0, 3}}, {1, {3}}, {3, {4, 0, 3}}},
        {{3, {8, 16, 33}}, {3, {8, 1, 33}}, {3, {8, 16, 33}}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char a[64], b[64];
        lkt_case *c = lkt_case_add(list, op, "%s with %s", lk_shape_format(a, sizeof a, shapes[i].a),
                                   lk_shape_format(b, sizeof b, shapes[i].b));
        lkt_in_f32(c, shapes[i].a, left);
        lkt_in_f32(c, shapes[i].b, right);
        lkt_out(c, result, shapes[i].out);
    }
}

static void where(lkt_case_list *list)
{
    static const struct {
        lk_shape condition, a, b, out;
    } shapes[] = {
        {{1, {67}}, {1, {67}}, {1, {67}}, {1, {67}}},
        {{2, {3, 1}}, {1, {19}}, {0, {0}}, {2, {3, 19}}},
        {{2, {3, 19}}, {2, {3, 19}}, {2, {1, 19}}, {2, {3, 19}}},
        {{1, {0}}, {1, {0}}, {1, {1}}, {1, {0}}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        lkt_case *c = lkt_case_add(list, LK_OP_WHERE, "pattern %zu", i);
        lkt_in(c, LK_BOOL, shapes[i].condition, LKT_MASK);
        lkt_in_f32(c, shapes[i].a, LKT_NORMAL);
        lkt_in_f32(c, shapes[i].b, LKT_NORMAL);
        lkt_out_f32(c, shapes[i].out);
    }
}

/* Numbers at which a kernel may go wrong, after a few ordinary ones. */
static void put_odd_numbers(lk_tensor *tensor)
{
    static const double odd[] = {0,   -0.0, 1,     -1,     20,   -20,      88,        -88,
                                 120, -120, 1e-20, -1e-20, 1e30, INFINITY, -INFINITY, NAN};
    int64_t count = lk_tensor_count(tensor);
    for (int64_t i = 0; i < count; i++) lk_tensor_set(tensor, i, odd[i % 16]);
}

typedef struct unary_op {
    lk_op op;
    lkt_fill fill;
    int mode;
    double alpha, beta;
    bool odd; /* also with the odd numbers */
} unary_op;

static const unary_op unary_ops[] = {
    {LK_OP_NEG, LKT_NORMAL, 0, 0, 0, true},
    {LK_OP_ABS, LKT_NORMAL, 0, 0, 0, true},
    {LK_OP_SIGN, LKT_COARSE, 0, 0, 0, true},
    {LK_OP_FLOOR, LKT_COARSE, 0, 0, 0, true},
    {LK_OP_CEIL, LKT_COARSE, 0, 0, 0, true},
    {LK_OP_ROUND, LKT_COARSE, 0, 0, 0, true},
    {LK_OP_EXP, LKT_NORMAL, 0, 0, 0, true},
    {LK_OP_LOG, LKT_POSITIVE, 0, 0, 0, true},
    {LK_OP_SQRT, LKT_POSITIVE, 0, 0, 0, true},
    {LK_OP_SIN, LKT_NORMAL, 0, 0, 0, false},
    {LK_OP_COS, LKT_NORMAL, 0, 0, 0, false},
    {LK_OP_ERF, LKT_NORMAL, 0, 0, 0, true},
    {LK_OP_TANH, LKT_NORMAL, 0, 0, 0, true},
    {LK_OP_SIGMOID, LKT_NORMAL, 0, 0, 0, true},
    {LK_OP_RELU, LKT_COARSE, 0, 0, 0, true},
    {LK_OP_LEAKY_RELU, LKT_COARSE, 0, 0.01, 0, true},
    {LK_OP_ELU, LKT_NORMAL, 0, 1, 0, true},
    {LK_OP_ELU, LKT_NORMAL, 0, 1.5, 0, false},
    {LK_OP_GELU, LKT_NORMAL, 0, 0, 0, false},
    {LK_OP_GELU, LKT_NORMAL, 1, 0, 0, false},
    {LK_OP_SILU, LKT_NORMAL, 0, 0, 0, false},
    {LK_OP_SOFTPLUS, LKT_NORMAL, 0, 1, 20, true},
    {LK_OP_SOFTPLUS, LKT_NORMAL, 0, 2, 1.5, false},
    {LK_OP_CLAMP, LKT_COARSE, 0, -0.5, 1, true},
    {LK_OP_ADD_SCALAR, LKT_NORMAL, 0, 0.75, 0, true},
    {LK_OP_MUL_SCALAR, LKT_NORMAL, 0, -1.25, 0, true},
    {LK_OP_POW_SCALAR, LKT_POSITIVE, 0, 0.5, 0, false},
    {LK_OP_POW_SCALAR, LKT_NORMAL, 0, 2, 0, true},
    {LK_OP_POW_SCALAR, LKT_NORMAL, 0, 3, 0, true},
    {LK_OP_POW_SCALAR, LKT_POSITIVE, 0, -1.5, 0, false},
    {LK_OP_COPY, LKT_NORMAL, 0, 0, 0, true},
};

static const unary_op gradient_ops[] = {
    {LK_OP_TANH_GRAD, LKT_UNIT, 0, 0, 0, false},
    {LK_OP_SIGMOID_GRAD, LKT_UNIT, 0, 0, 0, false},
    {LK_OP_RELU_GRAD, LKT_COARSE, 0, 0, 0, false},
    {LK_OP_LEAKY_RELU_GRAD, LKT_COARSE, 0, 0.01, 0, false},
    {LK_OP_ELU_GRAD, LKT_NORMAL, 0, 1.5, 0, false},
    {LK_OP_GELU_GRAD, LKT_NORMAL, 0, 0, 0, false},
    {LK_OP_GELU_GRAD, LKT_NORMAL, 1, 0, 0, false},
    {LK_OP_SILU_GRAD, LKT_NORMAL, 0, 0, 0, false},
    {LK_OP_SOFTPLUS_GRAD, LKT_NORMAL, 0, 1, 20, false},
    {LK_OP_SOFTPLUS_GRAD, LKT_NORMAL, 0, 2, 1.5, false},
    {LK_OP_CLAMP_GRAD, LKT_COARSE, 0, -0.5, 1, false},
};

static lkt_case *add_unary(lkt_case_list *list, const unary_op *u, const char *what, int64_t size)
{
    lkt_case *c =
        lkt_case_add(list, u->op, "%s %lld mode %d alpha %g", what, (long long)size, u->mode, u->alpha);
    c->attr.scalar = lkt_scalar(u->op, u->alpha, u->beta, u->mode);
    lkt_out_f32(c, LK_SHAPE(size));
    return c;
}

static void unary(lkt_case_list *list)
{
    for (size_t k = 0; k < sizeof unary_ops / sizeof *unary_ops; k++) {
        const unary_op *u = &unary_ops[k];
        for (int i = 0; i < SIZE_COUNT; i++)
            lkt_in_f32(add_unary(list, u, "of", sizes[i]), LK_SHAPE(sizes[i]), u->fill);
        if (u->odd)
            put_odd_numbers(lkt_in_f32(add_unary(list, u, "odd numbers", 32), LK_SHAPE(32), LKT_ZERO));
    }
    for (size_t k = 0; k < sizeof gradient_ops / sizeof *gradient_ops; k++) {
        const unary_op *u = &gradient_ops[k];
        for (int i = 0; i < SIZE_COUNT; i++) {
            lkt_case *c = add_unary(list, u, "of", sizes[i]);
            lkt_in_f32(c, LK_SHAPE(sizes[i]), LKT_NORMAL);
            lkt_in_f32(c, LK_SHAPE(sizes[i]), u->fill);
        }
    }
}

static void casts(lkt_case_list *list)
{
    static const lk_dtype dtypes[] = {LK_F32, LK_BF16, LK_I64, LK_I32, LK_U8, LK_BOOL};
    for (int from = 0; from < 6; from++)
        for (int to = 0; to < 6; to++)
            for (int i = 0; i < SIZE_COUNT; i++) {
                lkt_case *c = lkt_case_add(list, LK_OP_CAST, "%s to %s of %lld", lk_dtype_name(dtypes[from]),
                                           lk_dtype_name(dtypes[to]), (long long)sizes[i]);
                bool is_signed = dtypes[from] != LK_U8 && dtypes[to] != LK_U8;
                lkt_in(c, dtypes[from], LK_SHAPE(sizes[i]), is_signed ? LKT_NORMAL : LKT_POSITIVE);
                lkt_out(c, dtypes[to], LK_SHAPE(sizes[i]));
                c->tolerance = dtypes[to] == LK_BF16 ? 4e-3 : 1e-7;
            }
}

static void fulls(lkt_case_list *list)
{
    static const lk_dtype dtypes[] = {LK_F32, LK_I64, LK_BOOL};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < SIZE_COUNT; i++) {
            lkt_case *c =
                lkt_case_add(list, LK_OP_FULL, "%s of %lld", lk_dtype_name(dtypes[k]), (long long)sizes[i]);
            c->attr.fill.value = k ? 1 : 1.5;
            lkt_out(c, dtypes[k], LK_SHAPE(sizes[i]));
        }
}

/* Appends a step to the chain; operands are numbered as lk_fused says. */
static void step(lkt_case *c, lk_op op, int a, int b, int third, double first, double second)
{
    int s = c->fused.step_count++;
    c->fused.step[s].op = op;
    c->fused.step[s].operand[0] = a;
    c->fused.step[s].operand[1] = b;
    c->fused.step[s].operand[2] = third;
    c->fused.step[s].scalar = lkt_scalar(op, first, second, false);
}

static lkt_case *add_fused(lkt_case_list *list, const char *what, lk_shape out, int input_count,
                           const lk_shape *in)
{
    char text[64];
    lkt_case *c = lkt_case_add(list, LK_OP_FUSED, "%s %s", what, lk_shape_format(text, sizeof text, out));
    for (int i = 0; i < input_count; i++) lkt_in_f32(c, in[i], LKT_NORMAL);
    c->fused.input_count = input_count;
    lkt_out_f32(c, out);
    return c;
}

static void fused(lkt_case_list *list)
{
    for (int i = 0; i < SIZE_COUNT; i++) {
        lk_shape s = LK_SHAPE(sizes[i]);
        lkt_case *c = add_fused(list, "one step", s, 1, (lk_shape[]){s});
        step(c, LK_OP_TANH, 0, 0, 0, 0, 0);
        c = add_fused(list, "scale, add, sigmoid", s, 2, (lk_shape[]){s, s});
        step(c, LK_OP_MUL_SCALAR, 0, 0, 0, 0.5, 0);
        step(c, LK_OP_ADD, 2, 1, 0, 0, 0);
        step(c, LK_OP_SIGMOID, 3, 0, 0, 0, 0);
        c = add_fused(list, "a result used twice", s, 1, (lk_shape[]){s});
        step(c, LK_OP_EXP, 0, 0, 0, 0, 0);
        step(c, LK_OP_ADD_SCALAR, 1, 0, 0, 1, 0);
        step(c, LK_OP_DIV, 1, 2, 0, 0, 0);
        step(c, LK_OP_MUL, 3, 0, 0, 0, 0);
    }
    static const lk_shape in[] = {{3, {2, 3, 37}}, {2, {3, 1}}, {1, {37}}, {0, {0}}};
    lkt_case *c = add_fused(list, "broadcasting", in[0], 4, in);
    step(c, LK_OP_MUL, 0, 1, 0, 0, 0);
    step(c, LK_OP_ADD, 4, 2, 0, 0, 0);
    step(c, LK_OP_SUB, 5, 3, 0, 0, 0);
    step(c, LK_OP_RELU, 6, 0, 0, 0, 0);
    c = add_fused(list, "a gradient", in[0], 3, in);
    step(c, LK_OP_CLAMP, 0, 0, 0, -1, 1.5);
    step(c, LK_OP_GELU_GRAD, 2, 3, 0, 0, 0);
    step(c, LK_OP_MAXIMUM, 4, 1, 0, 0, 0);
    c = add_fused(list, "as long as it can be", in[0], 1, in);
    for (int s = 0; s < LK_MAX_FUSED_STEPS; s++)
        step(c, s % 2 ? LK_OP_SIN : LK_OP_ADD_SCALAR, s, 0, 0, 0.25, 0);
    lk_shape wide[LK_MAX_FUSED_INPUTS];
    for (int i = 0; i < LK_MAX_FUSED_INPUTS; i++) wide[i] = LK_SHAPE(41);
    c = add_fused(list, "as wide as it can be", wide[0], LK_MAX_FUSED_INPUTS, wide);
    for (int s = 0; s < LK_MAX_FUSED_INPUTS - 1; s++)
        step(c, s % 2 ? LK_OP_MUL : LK_OP_ADD, s ? LK_MAX_FUSED_INPUTS + s - 1 : 0, s + 1, 0, 0, 0);
}

/* Every unary op and gradient as a step of a chain, because an engine may run chains by other code. */
static void fused_steps(lkt_case_list *list)
{
    for (size_t k = 0; k < sizeof unary_ops / sizeof *unary_ops; k++) {
        const unary_op *u = &unary_ops[k];
        if (u->op == LK_OP_COPY) continue; /* the fuse pass leaves it alone */
        lkt_case *c = lkt_case_add(list, LK_OP_FUSED, "%s %g in a chain", lkt_op_name(u->op), u->alpha);
        c->fused.input_count = 1;
        lkt_in_f32(c, LK_SHAPE(77), u->fill);
        lkt_out_f32(c, LK_SHAPE(77));
        step(c, u->op, 0, 0, 0, u->alpha, u->beta);
        c->fused.step[0].scalar = lkt_scalar(u->op, u->alpha, u->beta, u->mode);
        step(c, LK_OP_MUL_SCALAR, 1, 0, 0, 2, 0);
    }
    for (size_t k = 0; k < sizeof gradient_ops / sizeof *gradient_ops; k++) {
        const unary_op *u = &gradient_ops[k];
        lkt_case *c = lkt_case_add(list, LK_OP_FUSED, "%s %g in a chain", lkt_op_name(u->op), u->alpha);
        c->fused.input_count = 2;
        lkt_in_f32(c, LK_SHAPE(77), LKT_NORMAL);
        lkt_in_f32(c, LK_SHAPE(77), u->fill);
        lkt_out_f32(c, LK_SHAPE(77));
        step(c, u->op, 0, 1, 0, u->alpha, u->beta);
        c->fused.step[0].scalar = lkt_scalar(u->op, u->alpha, u->beta, u->mode);
        step(c, LK_OP_MUL_SCALAR, 2, 0, 0, 2, 0);
    }
}

void lkt_cases_elementwise(lkt_case_list *list)
{
    binary(list, LK_OP_ADD, LKT_NORMAL, LKT_NORMAL, LK_F32);
    binary(list, LK_OP_SUB, LKT_NORMAL, LKT_NORMAL, LK_F32);
    binary(list, LK_OP_MUL, LKT_NORMAL, LKT_NORMAL, LK_F32);
    binary(list, LK_OP_DIV, LKT_NORMAL, LKT_POSITIVE, LK_F32);
    binary(list, LK_OP_POW, LKT_POSITIVE, LKT_NORMAL, LK_F32);
    binary(list, LK_OP_MAXIMUM, LKT_COARSE, LKT_COARSE, LK_F32);
    binary(list, LK_OP_MINIMUM, LKT_COARSE, LKT_COARSE, LK_F32);
    binary(list, LK_OP_GREATER, LKT_COARSE, LKT_COARSE, LK_BOOL);
    binary(list, LK_OP_GREATER_EQUAL, LKT_COARSE, LKT_COARSE, LK_BOOL);
    binary(list, LK_OP_EQUAL, LKT_COARSE, LKT_COARSE, LK_BOOL);
    where(list);
    unary(list);
    casts(list);
    fulls(list);
    fused(list);
    fused_steps(list);
}
