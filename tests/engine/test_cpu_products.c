/* The cpu engine's products against the reference, at sizes around every edge of its blocking. */
#include "cpu_harness.h"

static void linear_case(int64_t m, int64_t n, int64_t k, bool bias, bool relu)
{
    trial t = {.op = LK_OP_LINEAR, .input_count = bias ? 3 : 2, .output_count = 1, .tolerance = 2e-6};
    t.attr.linear.activation = relu ? LK_ACTIVATION_RELU : LK_ACTIVATION_NONE;
    t.in[0] = random_tensor(LK_F32, LK_SHAPE(m, k), -1, 1);
    t.in[1] = random_tensor(LK_F32, LK_SHAPE(n, k), -1, 1);
    if (bias) t.in[2] = random_tensor(LK_F32, LK_SHAPE(n), -1, 1);
    t.out_shape[0] = LK_SHAPE(m, n);
    finish_trial(&t);
}

static void linear(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{32, 10, 784},  {128, 100, 784}, {1, 1, 1},      {3, 5, 7},
                                       {7, 33, 17},    {15, 17, 300},   {130, 31, 260}, {16, 1000, 24},
                                       {200, 40, 200}, {2, 300, 2100},  {129, 65, 513}, {5, 6, 64},
                                       {9, 2, 31}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        linear_case(sizes[i][0], sizes[i][1], sizes[i][2], i % 2 == 0, i % 3 == 0);
}

static void linear_of_a_sequence(void **state)
{
    (void)state;
    trial t = {.op = LK_OP_LINEAR, .input_count = 3, .output_count = 1, .tolerance = 2e-6};
    t.in[0] = random_tensor(LK_F32, LK_SHAPE(2, 3, 20), -1, 1);
    t.in[1] = random_tensor(LK_F32, LK_SHAPE(6, 20), -1, 1);
    t.in[2] = random_tensor(LK_F32, LK_SHAPE(6), -1, 1);
    t.out_shape[0] = LK_SHAPE(2, 3, 6);
    finish_trial(&t);
}

static void linear_grad(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{32, 10, 784}, {128, 100, 97}, {16, 1000, 24},
                                       {1, 1, 1},     {300, 7, 5},    {70, 50, 130}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t rows = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
        trial t = {.op = LK_OP_LINEAR_GRAD, .input_count = 2, .output_count = 2, .tolerance = 2e-6};
        t.attr.linear.wants_bias = true;
        t.in[0] = random_tensor(LK_F32, LK_SHAPE(rows, n), -1, 1);
        t.in[1] = random_tensor(LK_F32, LK_SHAPE(rows, k), -1, 1);
        t.out_shape[0] = LK_SHAPE(n, k);
        t.out_shape[1] = LK_SHAPE(n);
        finish_trial(&t);
    }
}

static void matmul(void **state)
{
    (void)state;
    static const int64_t sizes[][3] = {{64, 64, 64}, {17, 40, 33},  {5, 70, 300},
                                       {100, 3, 9},  {33, 512, 20}, {1024, 33, 1024}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int form = 0; form < 4; form++) {
            int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
            if (m > 1000 && form) continue;
            trial t = {.op = LK_OP_MATMUL, .input_count = 2, .output_count = 1, .tolerance = 2e-6};
            t.attr.matmul.transpose_a = form & 1;
            t.attr.matmul.transpose_b = form & 2;
            t.in[0] = random_tensor(LK_F32, form & 1 ? LK_SHAPE(k, m) : LK_SHAPE(m, k), -1, 1);
            t.in[1] = random_tensor(LK_F32, form & 2 ? LK_SHAPE(n, k) : LK_SHAPE(k, n), -1, 1);
            t.out_shape[0] = LK_SHAPE(m, n);
            finish_trial(&t);
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
        {{4, {1, 3, 4, 30}}, {4, {2, 1, 30, 10}}, {4, {2, 3, 4, 10}}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        trial t = {.op = LK_OP_MATMUL, .input_count = 2, .output_count = 1, .tolerance = 2e-6};
        t.in[0] = random_tensor(LK_F32, shapes[i][0], -1, 1);
        t.in[1] = random_tensor(LK_F32, shapes[i][1], -1, 1);
        t.out_shape[0] = shapes[i][2];
        finish_trial(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear), cmocka_unit_test(linear_of_a_sequence), cmocka_unit_test(linear_grad),
        cmocka_unit_test(matmul), cmocka_unit_test(matmul_of_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
