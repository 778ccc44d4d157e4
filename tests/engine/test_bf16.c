/* Products and convolutions of bf16 by instructions for bf16, against the reference on the same operands, at
 * sizes around every edge of the tiles. AMX's tiles are emulated in plain C, so that their kernel is tested
 * on every machine; AVX512-BF16 and AMX themselves where the machine has them. */
#include "cpu_harness.h"

#include "engine/cpu/cpu.h"

#include <stdatomic.h>

#define LKI_SIMD 128
#define LKI_AMX_EMULATED
#include "engine/cpu/kernels/amx_block.h"

#define LKI_BF16_NAME             "emulated amx"
#define LKI_BF16_TABLE            emulated
#define LKI_BF16_THREAD_WORK      1000
#define LKI_BF16_OUTRUNS_WINOGRAD true
extern const lki_bf16_kernels emulated;
#include "engine/cpu/kernels/bf16_product.h"

/* The kernels under test; `multiply` counts, so that a case that is widened instead is noticed. */
static lki_bf16_kernels tested;
static void (*real_multiply)(const lki_bf16_gemm *g, int64_t begin, int64_t end);
static atomic_int multiplied;

static void count_multiply(const lki_bf16_gemm *g, int64_t begin, int64_t end)
{
    atomic_fetch_add(&multiplied, 1);
    real_multiply(g, begin, end);
}

static void (*real_shift)(const lki_bf16_shift *s);

static void count_shift(const lki_bf16_shift *s)
{
    atomic_fetch_add(&multiplied, 1);
    real_shift(s);
}

static void (*real_gradient)(const lki_bf16_shift *s, float *sums);

static void count_gradient(const lki_bf16_shift *s, float *sums)
{
    atomic_fetch_add(&multiplied, 1);
    real_gradient(s, sums);
}

/* Threads are worth waking for little, so that small cases are divided too. */
static void use_tested(lk_engine *engine)
{
    lki_cpu *cpu = engine->state;
    cpu->low = &tested;
}

/* Emulated, and those of this machine; false beyond. */
static bool select_kernels(int which)
{
    const lki_bf16_kernels *all[] = {&emulated,
                                     lki_bf16_kernels_of(lki_machine_level(LKI_CPU_LEVEL_AVX512BF16)),
                                     lki_bf16_kernels_of(lki_machine_level(LKI_CPU_LEVEL_AMX))};
    if (which == 3) return false;
    tested = all[which] ? *all[which] : emulated;
    real_multiply = tested.multiply;
    tested.multiply = count_multiply;
    real_shift = tested.shift_forward;
    tested.shift_forward = count_shift;
    real_gradient = tested.shift_gradient;
    tested.shift_gradient = count_gradient;
    tested.thread_work = 1000;
    tested.outruns_winograd = true;
    return true;
}

/* Compares with the reference for f32 and for bf16 results, and frees the inputs. */
static void check_low(trial *t, bool is_widened)
{
    for (int low = 0; low < 2; low++) {
        result expected = {0};
        t->out_dtype[0] = low ? LK_BF16 : LK_F32;
        t->tolerance = low ? 5e-3 : 1e-5;
        t->tune = NULL;
        run_trial(&expected, t, "ref", 1);
        t->tune = use_tested;
        for (int which = 0; select_kernels(which); which++)
            for (int threads = 1; threads <= 3; threads += 2) {
                char where[96];
                result actual = {0};
                snprintf(where, sizeof where, "(%s, %d threads%s)", tested.name, threads,
                         low ? ", to bf16" : "");
                atomic_store(&multiplied, 0);
                run_trial(&actual, t, "cpu", threads);
                if ((atomic_load(&multiplied) == 0) != is_widened)
                    fail_msg("%s: another path was taken", where);
                compare_results(&actual, &expected, t, where);
                free_result(&actual);
            }
        free_result(&expected);
    }
    for (int i = 0; i < t->input_count; i++) lk_tensor_free(t->in[i]);
}

static void linear_case(int64_t m, int64_t n, int64_t k, bool bias, bool relu)
{
    trial t = {.op = LK_OP_LINEAR, .input_count = bias ? 3 : 2, .output_count = 1};
    t.attr.linear.activation = relu ? LK_ACTIVATION_RELU : LK_ACTIVATION_NONE;
    t.in[0] = random_tensor(LK_BF16, LK_SHAPE(m, k), -1, 1);
    t.in[1] = random_tensor(LK_BF16, LK_SHAPE(n, k), -1, 1);
    if (bias) t.in[2] = random_tensor(LK_F32, LK_SHAPE(n), -1, 1);
    t.out_shape[0] = LK_SHAPE(m, n);
    check_low(&t, false);
}

static void linear(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1},     {3, 5, 7},     {16, 16, 32},  {17, 16, 33},
                                       {16, 17, 31},  {32, 32, 64},  {33, 33, 65},  {31, 48, 100},
                                       {49, 10, 2},   {5, 100, 784}, {48, 64, 96},  {2, 3, 2047},
                                       {7, 20, 2048}, {8, 9, 2049},  {34, 70, 3100}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        linear_case(sizes[i][0], sizes[i][1], sizes[i][2], i % 2 == 0, i % 3 == 0);
}

static void linear_grad(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{1, 1, 1},    {32, 10, 40}, {33, 17, 70},
                                       {31, 40, 16}, {300, 7, 5},  {2100, 20, 18}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t rows = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
        trial t = {.op = LK_OP_LINEAR_GRAD, .input_count = 2, .output_count = 2};
        t.attr.linear.wants_bias = true;
        t.in[0] = random_tensor(LK_BF16, LK_SHAPE(rows, n), -1, 1);
        t.in[1] = random_tensor(LK_BF16, LK_SHAPE(rows, k), -1, 1);
        t.out_shape[0] = LK_SHAPE(n, k);
        t.out_shape[1] = LK_SHAPE(n);
        check_low(&t, false);
    }
}

static void matmul(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{64, 64, 64}, {17, 40, 33}, {5, 70, 300}, {100, 3, 9}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int form = 0; form < 4; form++) {
            int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
            trial t = {.op = LK_OP_MATMUL, .input_count = 2, .output_count = 1};
            t.attr.matmul.transpose_a = form & 1;
            t.attr.matmul.transpose_b = form & 2;
            t.in[0] = random_tensor(LK_BF16, form & 1 ? LK_SHAPE(k, m) : LK_SHAPE(m, k), -1, 1);
            t.in[1] = random_tensor(LK_BF16, form & 2 ? LK_SHAPE(n, k) : LK_SHAPE(k, n), -1, 1);
            t.out_shape[0] = LK_SHAPE(m, n);
            check_low(&t, false);
        }
}

static void matmul_of_batches(void **state)
{
    (void)state;
    static const lk_shape shapes[][3] = {
        {{3, {6, 20, 30}}, {3, {6, 30, 10}}, {3, {6, 20, 10}}},
        {{4, {2, 1, 9, 8}}, {4, {2, 3, 8, 5}}, {4, {2, 3, 9, 5}}},
        {{3, {7, 4, 30}}, {2, {30, 10}}, {3, {7, 4, 10}}},
        {{2, {4, 30}}, {3, {7, 30, 10}}, {3, {7, 4, 10}}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        trial t = {.op = LK_OP_MATMUL, .input_count = 2, .output_count = 1};
        t.in[0] = random_tensor(LK_BF16, shapes[i][0], -1, 1);
        t.in[1] = random_tensor(LK_BF16, shapes[i][1], -1, 1);
        t.out_shape[0] = shapes[i][2];
        check_low(&t, false);
    }
}

/* Where k ends, zeros meet zeros: what is infinite or not a number stays in its rows and columns. */
static void what_is_not_finite_stays_in_its_place(void **state)
{
    (void)state;
    trial t = {.op = LK_OP_LINEAR, .input_count = 2, .output_count = 1};
    t.attr.linear.activation = LK_ACTIVATION_RELU;
    t.in[0] = random_tensor(LK_BF16, LK_SHAPE(19, 45), -1, 1);
    t.in[1] = random_tensor(LK_BF16, LK_SHAPE(21, 45), -1, 1);
    lk_tensor_set(t.in[0], 2 * 45 + 44, INFINITY);
    lk_tensor_set(t.in[0], 18 * 45, NAN);
    lk_tensor_set(t.in[1], 20 * 45 + 44, -INFINITY);
    t.out_shape[0] = LK_SHAPE(19, 21);
    check_low(&t, false);
    trial weight = {.op = LK_OP_CONV_GRAD_WEIGHT, .input_count = 2, .output_count = 2};
    weight.attr.conv.window =
        (lk_window){.rank = 1, .groups = 1, .kernel = {3}, .stride = {1}, .dilation = {1}};
    weight.in[0] = random_tensor(LK_BF16, LK_SHAPE(1, 16, 8), -1, 1);
    weight.in[1] = random_tensor(LK_BF16, LK_SHAPE(1, 18, 10), -1, 1);
    lk_tensor_set(weight.in[1], 9, INFINITY); /* which only the last tap reads */
    weight.out_shape[0] = LK_SHAPE(16, 18, 3);
    weight.out_shape[1] = LK_SHAPE(16);
    weight.attr.conv.wants_bias = true;
    check_low(&weight, false);
}

typedef struct size {
    int rank;
    int64_t batch, in, out, groups;
    int64_t side[3], kernel[3], stride[3], padding[3], dilation[3];
} size;

static const size sizes[] = {
    {2, 2, 3, 17, 1, {9, 8}, {3, 3}, {1, 1}, {1, 1}, {1, 1}},
    {2, 3, 17, 16, 1, {7, 33}, {3, 3}, {1, 1}, {0, 2}, {1, 1}},
    {2, 2, 32, 40, 1, {6, 6}, {1, 1}, {1, 1}, {0, 0}, {1, 1}},
    {2, 1, 5, 20, 1, {11, 70}, {2, 3}, {2, 2}, {1, 1}, {1, 1}},
    {2, 1, 4, 16, 1, {9, 20}, {3, 2}, {1, 3}, {0, 0}, {1, 1}},
    {2, 2, 34, 36, 2, {8, 9}, {3, 3}, {1, 1}, {1, 1}, {2, 1}},
    {1, 2, 6, 18, 1, {50}, {5}, {1}, {4}, {1}},
    {3, 1, 3, 16, 1, {4, 5, 6}, {2, 2, 3}, {1, 1, 1}, {1, 0, 1}, {1, 1, 1}},
    {2, 1, 250, 33, 1, {5, 6}, {3, 3}, {1, 1}, {1, 1}, {1, 1}}, /* k of 2,250 */
};

static lk_window window_of(const size *s)
{
    lk_window w = {.rank = s->rank, .groups = s->groups};
    for (int i = 0; i < s->rank; i++) {
        w.kernel[i] = s->kernel[i];
        w.stride[i] = s->stride[i];
        w.padding[i] = s->padding[i];
        w.dilation[i] = s->dilation[i];
    }
    return w;
}

static lk_shape shape_of(const size *s, int64_t channels, bool output)
{
    lk_shape shape = {s->rank + 2, {s->batch, channels}};
    for (int i = 0; i < s->rank; i++) {
        int64_t reach = (s->kernel[i] - 1) * s->dilation[i] + 1;
        shape.dim[2 + i] = output ? (s->side[i] + 2 * s->padding[i] - reach) / s->stride[i] + 1 : s->side[i];
    }
    return shape;
}

static lk_shape weight_of(const size *s)
{
    lk_shape shape = {s->rank + 2, {s->out, s->in / s->groups}};
    for (int i = 0; i < s->rank; i++) shape.dim[2 + i] = s->kernel[i];
    return shape;
}

static void convolutions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size *s = &sizes[i];
        trial t = {.op = LK_OP_CONV, .input_count = i % 2 ? 2 : 3, .output_count = 1};
        t.attr.conv.window = window_of(s);
        t.attr.conv.activation = i % 3 ? LK_ACTIVATION_RELU : LK_ACTIVATION_NONE;
        t.in[0] = random_tensor(LK_BF16, shape_of(s, s->in, false), -1, 1);
        t.in[1] = random_tensor(LK_BF16, weight_of(s), -1, 1);
        if (i % 2 == 0) t.in[2] = random_tensor(LK_F32, LK_SHAPE(s->out), -1, 1);
        t.out_shape[0] = shape_of(s, s->out, true);
        check_low(&t, false);
    }
}

/* Strides, and fewer than 16 channels on the other side, are left to f32. */
static void gradients_of_inputs(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size *s = &sizes[i];
        bool strided = false;
        for (int axis = 0; axis < s->rank; axis++) strided = strided || s->stride[axis] != 1;
        trial t = {.op = LK_OP_CONV_GRAD_INPUT, .input_count = 2, .output_count = 1};
        t.attr.conv.window = window_of(s);
        t.in[0] = random_tensor(LK_BF16, shape_of(s, s->out, true), -1, 1);
        t.in[1] = random_tensor(LK_BF16, weight_of(s), -1, 1);
        t.out_shape[0] = shape_of(s, s->in, false);
        check_low(&t, strided || s->in / s->groups < 16);
    }
}

static void gradients_of_weights(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size *s = &sizes[i];
        trial t = {.op = LK_OP_CONV_GRAD_WEIGHT, .input_count = 2, .output_count = 2};
        t.attr.conv.window = window_of(s);
        t.attr.conv.wants_bias = true;
        t.in[0] = random_tensor(LK_BF16, shape_of(s, s->out, true), -1, 1);
        t.in[1] = random_tensor(LK_BF16, shape_of(s, s->in, false), -1, 1);
        t.out_shape[0] = weight_of(s);
        t.out_shape[1] = LK_SHAPE(s->out);
        check_low(&t, false);
    }
}

/* Results do not depend on the number of threads, but for sums over samples. */
static void the_number_of_threads_changes_no_bit(void **state)
{
    (void)state;
    trial t = {.op = LK_OP_LINEAR, .input_count = 2, .output_count = 1, .tune = use_tested};
    t.in[0] = random_tensor(LK_BF16, LK_SHAPE(70, 2500), -1, 1);
    t.in[1] = random_tensor(LK_BF16, LK_SHAPE(90, 2500), -1, 1);
    t.out_shape[0] = LK_SHAPE(70, 90);
    for (int which = 0; select_kernels(which); which++) {
        result one = {0};
        run_trial(&one, &t, "cpu", 1);
        for (int threads = 2; threads <= 4; threads++) {
            result many = {0};
            run_trial(&many, &t, "cpu", threads);
            assert_memory_equal(one.out[0]->data, many.out[0]->data, lk_tensor_nbytes(one.out[0]));
            free_result(&many);
        }
        free_result(&one);
    }
    lk_tensor_free(t.in[0]);
    lk_tensor_free(t.in[1]);
}

static void multiply_nothing(const lki_bf16_gemm *g, int64_t begin, int64_t end)
{
    (void)g;
    (void)begin;
    (void)end;
}

static void kernels_are_tried_before_they_are_trusted(void **state)
{
    (void)state;
    assert_true(lki_bf16_kernels_work(&emulated));
    assert_null(lki_bf16_kernels_of(lki_machine_level(LKI_CPU_LEVEL_AVX512)));
    lki_bf16_kernels wrong = emulated;
    wrong.multiply = multiply_nothing;
    assert_false(lki_bf16_kernels_work(&wrong));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear),
        cmocka_unit_test(linear_grad),
        cmocka_unit_test(matmul),
        cmocka_unit_test(matmul_of_batches),
        cmocka_unit_test(what_is_not_finite_stays_in_its_place),
        cmocka_unit_test(convolutions),
        cmocka_unit_test(gradients_of_inputs),
        cmocka_unit_test(gradients_of_weights),
        cmocka_unit_test(the_number_of_threads_changes_no_bit),
        cmocka_unit_test(kernels_are_tried_before_they_are_trusted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
