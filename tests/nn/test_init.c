/* The initialisers and the plain draws against PyTorch 1.13, bit for bit. */
#include "golden.h"
#include "lktest.h"

#include <lockstep/nn.h>
#include <lockstep/random.h>

static lkt_golden *golden;

static lk_status draw(const char *kind, lk_param *param)
{
    if (strcmp(kind, "uniform") == 0) return lk_init_uniform(param, -0.3, 0.7);
    if (strcmp(kind, "normal") == 0) return lk_init_normal(param, 0.1, 0.02);
    if (strcmp(kind, "trunc_normal") == 0) return lk_init_trunc_normal(param, 0.1, 0.5, -0.6, 0.9);
    if (strcmp(kind, "constant") == 0) return lk_init_constant(param, 0.3);
    if (strcmp(kind, "xavier_uniform") == 0) return lk_init_xavier_uniform(param, 1.5);
    if (strcmp(kind, "xavier_normal") == 0) return lk_init_xavier_normal(param, 0.7);
    if (strcmp(kind, "kaiming_uniform") == 0) return lk_init_kaiming_uniform(param);
    if (strcmp(kind, "kaiming_uniform_options") == 0)
        return lk_init_kaiming_uniform(param, .a = 0.2, .fan_out = true);
    if (strcmp(kind, "kaiming_normal") == 0)
        return lk_init_kaiming_normal(param, .nonlinearity = LK_NONLINEARITY_RELU);
    if (strcmp(kind, "kaiming_normal_options") == 0)
        return lk_init_kaiming_normal(param, .fan_out = true, .nonlinearity = LK_NONLINEARITY_TANH);
    if (strcmp(kind, "orthogonal") == 0) return lk_init_orthogonal(param, 1.3);
    fail_msg("there is no initialiser \"%s\" here", kind);
    return LK_ERR_NOT_FOUND;
}

/* PyTorch and we call the C library's erff, whose last place differs between kinds of machines. */
#if defined(__x86_64__)
enum { HAS_X86_MATHS = 1 };
#else
enum { HAS_X86_MATHS = 0 };
#endif

/* Every golden "<kind>_<shape>/value". */
static void initialisers_equal_pytorch(void **state)
{
    (void)state;
    int compared = 0;
    for (int i = 0; i < lkt_golden_count(golden); i++) {
        const char *name = lkt_golden_name(golden, i), *slash = strstr(name, "/value");
        if (!slash) continue;
        char kind[64];
        snprintf(kind, sizeof kind, "%.*s", (int)(slash - name), name);
        const lk_tensor *expected = lkt_golden_get(golden, "%s", name);
        lk_manual_seed((uint64_t)lk_tensor_get(lkt_golden_get(golden, "%s/seed", kind), 0));
        *strrchr(kind, '_') = 0;
        lk_param *param = lk_param_create("weight", lk_tensor_create(LK_F32, expected->shape), true);
        lkt_ok(draw(kind, param));
        /* PyTorch orthogonalises in f32 with LAPACK: its own rounding. */
        if (strcmp(kind, "orthogonal") == 0)
            lkt_near(param->value, expected, lkt_largest(expected), 1e-5, name);
        else if (strcmp(kind, "trunc_normal") == 0 && !HAS_X86_MATHS)
            lkt_near(param->value, expected, lkt_largest(expected), 1e-6, name);
        else
            lkt_same_bits(param->value, expected, name);
        lk_param_free(param);
        compared++;
    }
    assert_int_equal(compared, 44);
}

/* Short draws, draws of whole blocks, with a tail, and a long one; and where the generator stands afterwards.
 */
static void normal_numbers_have_pytorchs_bits(void **state)
{
    (void)state;
    static const int64_t counts[] = {1, 7, 15, 16, 17, 31, 33, 100, 1000003};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        long long count = counts[i];
        const lk_tensor *sample = lkt_golden_get(golden, "randn_%lld/sample", count);
        int64_t stride = count < 1000 ? 1 : 9973;
        lk_manual_seed((uint64_t)count);
        lk_tensor *values = lk_tensor_create(LK_F32, LK_SHAPE(count));
        lkt_ok(lk_normal(values, 0.2, 1.7, lk_default_generator()));
        for (int64_t k = 0; k < lk_tensor_count(sample); k++)
            if (((float *)values->data)[k * stride] != ((float *)sample->data)[k])
                fail_msg("number %lld of %lld is %.9g, expected %.9g", (long long)(k * stride), count,
                         lk_tensor_get(values, k * stride), lk_tensor_get(sample, k));
        lk_tensor *next = lk_rand(LK_SHAPE(3));
        lkt_same_bits(next, lkt_golden_get(golden, "randn_%lld/next", count), "the numbers after it");
        lk_tensor_free(values);
        lk_tensor_free(next);
    }
}

static void gains(void **state)
{
    (void)state;
    lkt_close(lk_init_gain(LK_NONLINEARITY_RELU, 0), sqrt(2), 1e-15);
    lkt_close(lk_init_gain(LK_NONLINEARITY_LEAKY_RELU, 0.2), sqrt(2 / 1.04), 1e-15);
    lkt_close(lk_init_gain(LK_NONLINEARITY_TANH, 0), 5.0 / 3, 1e-15);
    lkt_close(lk_init_gain(LK_NONLINEARITY_SELU, 0), 0.75, 1e-15);
    lkt_close(lk_init_gain(LK_NONLINEARITY_SIGMOID, 0), 1, 1e-15);
}

static void bad_arguments(void **state)
{
    (void)state;
    lk_param *vector = lk_param_create("bias", lk_tensor_create(LK_F32, LK_SHAPE(4)), true);
    lk_param *integers = lk_param_create("count", lk_tensor_create(LK_I64, LK_SHAPE(4, 4)), true);
    lkt_fails(lk_init_xavier_uniform(vector, 1), LK_ERR_SHAPE,
              "bias: fans need at least 2 dimensions, found 1");
    lkt_fails(lk_init_orthogonal(vector, 1), LK_ERR_SHAPE, "at least 2 dimensions");
    lkt_fails(lk_init_normal(integers, 0, 1), LK_ERR_DTYPE, "i64");
    lkt_fails(lk_init_trunc_normal(integers, 0, 1, -1, 1), LK_ERR_DTYPE, "i64");
    assert_int_not_equal(lk_init_uniform(NULL, 0, 1), LK_OK);
    lk_param_free(vector);
    lk_param_free(integers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(initialisers_equal_pytorch),
        cmocka_unit_test(normal_numbers_have_pytorchs_bits),
        cmocka_unit_test(gains),
        cmocka_unit_test(bad_arguments),
    };
    golden = lkt_golden_open("nn/init.lkg");
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lkt_golden_free(golden);
    return failed;
}
