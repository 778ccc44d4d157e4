/* The exact sum: any order and any partition give the same words, and the value is the correctly rounded one
 * (against 128-bit integers, and against sums whose exact value is known). */
#include "lktest.h"

#include <lockstep/random.h>

#include "metric/exact.h"

#include <float.h>

enum { COUNT = 4000 };

static double draw(lk_generator *generator, int range)
{
    double mantissa = (double)(int64_t)lk_generator_u64(generator);
    return ldexp(mantissa, (int)lk_randint(2 * range, generator) - range - 64);
}

static lk_exact_sum sum_of(const double *values, int count)
{
    lk_exact_sum sum = {0};
    for (int i = 0; i < count; i++) lk_exact_sum_add(&sum, values[i]);
    return sum;
}

static void assert_same(lk_exact_sum a, lk_exact_sum b)
{
    lki_exact_normalize(&a);
    lki_exact_normalize(&b);
    assert_memory_equal(&a, &b, sizeof a);
}

static void shuffle(double *values, int count, lk_generator *generator)
{
    for (int i = count - 1; i > 0; i--) {
        int j = (int)lk_randint(i, generator);
        double kept = values[i];
        values[i] = values[j];
        values[j] = kept;
    }
}

static void orders_and_partitions_do_not_show(void **state)
{
    (void)state;
    static double values[COUNT];
    lk_generator generator;
    lk_generator_seed(&generator, 7);
    for (int range = 1; range <= 900; range += 299) {
        for (int i = 0; i < COUNT; i++) values[i] = draw(&generator, range);
        lk_exact_sum whole = sum_of(values, COUNT);
        for (int ranks = 2; ranks <= 8; ranks++) {
            lk_exact_sum joined = {0};
            shuffle(values, COUNT, &generator);
            for (int r = 0; r < ranks; r++) {
                int begin = r * COUNT / ranks, end = (r + 1) * COUNT / ranks;
                lk_exact_sum part = sum_of(values + begin, end - begin);
                lk_exact_sum_merge(&joined, &part);
            }
            assert_same(joined, whole);
            double a = lk_exact_sum_value(&joined), b = lk_exact_sum_value(&whole);
            assert_memory_equal(&a, &b, sizeof a);
        }
        for (int i = 0; i < COUNT; i++) lk_exact_sum_add(&whole, -values[i]);
        assert_true(lk_exact_sum_value(&whole) == 0);
    }
}

/* 128-bit integers are exact, and the compiler rounds them to the nearest, ties to even. */
static void values_are_correctly_rounded(void **state)
{
    (void)state;
    lk_generator generator;
    lk_generator_seed(&generator, 11);
    for (int trial = 0; trial < 20000; trial++) {
        lk_exact_sum sum = {0};
        __int128 exact = 0;
        int count = 1 + (int)lk_randint(6, &generator), scale = (int)lk_randint(1900, &generator) - 1000;
        for (int i = 0; i < count; i++) {
            int64_t number = (int64_t)(lk_generator_u64(&generator) >> 11) - ((int64_t)1 << 52);
            int up = (int)lk_randint(60, &generator);
            if (trial % 3 == 0) number &= ~(((int64_t)1 << 30) - 1); /* ties */
            exact += (__int128)number * ((__int128)1 << up);
            lk_exact_sum_add(&sum, ldexp((double)number, up + scale));
        }
        assert_true(lk_exact_sum_value(&sum) == ldexp((double)exact, scale));
    }
}

static void ties_go_to_even_and_the_rest_decides(void **state)
{
    (void)state;
    lk_exact_sum sum = {0};
    lk_exact_sum_add(&sum, 1);
    lk_exact_sum_add(&sum, DBL_EPSILON / 2);
    assert_true(lk_exact_sum_value(&sum) == 1);
    lk_exact_sum_add(&sum, 4.9e-324);
    assert_true(lk_exact_sum_value(&sum) == 1 + DBL_EPSILON);
    lk_exact_sum_add(&sum, -9.9e-324);
    assert_true(lk_exact_sum_value(&sum) == 1);
}

static void ends_of_the_range(void **state)
{
    (void)state;
    lk_exact_sum sum = {0};
    assert_true(lk_exact_sum_value(&sum) == 0);
    for (int i = 0; i < 1000; i++) lk_exact_sum_add(&sum, 4.9406564584124654e-324);
    assert_true(lk_exact_sum_value(&sum) == 1000 * 4.9406564584124654e-324);
    lk_exact_sum_add(&sum, DBL_MAX);
    lk_exact_sum_add(&sum, DBL_MAX);
    assert_true(isinf(lk_exact_sum_value(&sum)));
    lk_exact_sum_add(&sum, -DBL_MAX); /* what was too large for a double was not for the sum */
    assert_true(lk_exact_sum_value(&sum) == DBL_MAX);
    lk_exact_sum_add(&sum, -DBL_MAX);
    lk_exact_sum_add(&sum, -DBL_MIN);
    assert_true(lk_exact_sum_value(&sum) == 1000 * 4.9406564584124654e-324 - DBL_MIN);
}

static void infinities_and_nan(void **state)
{
    (void)state;
    lk_exact_sum sum = {0}, other = {0};
    lk_exact_sum_add(&sum, 3);
    lk_exact_sum_add(&sum, INFINITY);
    assert_true(lk_exact_sum_value(&sum) == INFINITY);
    lk_exact_sum_add(&other, -INFINITY);
    assert_true(lk_exact_sum_value(&other) == -INFINITY);
    lk_exact_sum_merge(&other, &sum);
    assert_true(isnan(lk_exact_sum_value(&other)));
    lk_exact_sum_add(&sum, NAN);
    assert_true(isnan(lk_exact_sum_value(&sum)));
}

static void products_and_deviations(void **state)
{
    (void)state;
    lk_exact_sum values = {0}, squares = {0}, product = {0};
    lk_exact_sum_add_product(&product, 1 + DBL_EPSILON, 1 + DBL_EPSILON);
    lk_exact_sum_add(&product, -1 - 2 * DBL_EPSILON);
    assert_true(lk_exact_sum_value(&product) == DBL_EPSILON * DBL_EPSILON);
    /* 1e8 + k 2^-16: sums of squares in doubles would have no digit left. The spread of 0, …, 9 is 82.5. */
    for (int i = 0; i < 10; i++) {
        double value = 1e8 + i * 0x1p-16;
        lk_exact_sum_add(&values, value);
        lk_exact_sum_add_product(&squares, value, value);
    }
    lkt_close(lki_exact_square_deviations(&values, &squares, 10) * 0x1p32, 82.5, 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_and_partitions_do_not_show),
        cmocka_unit_test(values_are_correctly_rounded),
        cmocka_unit_test(ties_go_to_even_and_the_rest_decides),
        cmocka_unit_test(ends_of_the_range),
        cmocka_unit_test(infinities_and_nan),
        cmocka_unit_test(products_and_deviations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
