/* The values that a study draws have SciPy's distributions. */
#include "ranges.h"

enum { DRAWS = 20000 };

/* The share of draws of at most x. */
static double share(const double *draws, double x)
{
    int count = 0;
    for (int i = 0; i < DRAWS; i++) count += draws[i] <= x * (1 + 1e-6) + 1e-12;
    return (double)count / DRAWS;
}

static void draw(double *draws, const lki_range *range)
{
    lk_generator generator;
    lk_generator_seed(&generator, 5);
    for (int i = 0; i < DRAWS; i++) {
        draws[i] = lki_range_draw(range, &generator);
        assert_true(draws[i] >= range->low && draws[i] <= range->high);
        if (range->kind != LKI_RANGE_FLOAT) assert_true(draws[i] == floor(draws[i]));
    }
}

static void test_distributions(void **state)
{
    (void)state;
    static double draws[DRAWS];
    char name[32], last[32] = "";
    double x, expected;
    int lines = 0;
    FILE *file = fopen(GOLDEN("ranges.txt"), "r");
    assert_non_null(file);
    while (fscanf(file, "%31s %lf %lf", name, &x, &expected) == 3) {
        if (strcmp(name, last) != 0) draw(draws, range_named(name));
        strcpy(last, name);
        double actual = share(draws, x), spread = sqrt(expected * (1 - expected) / DRAWS);
        if (fabs(actual - expected) > 4 * spread + 1e-9)
            fail_msg("%s: P(X <= %g) is %g, expected %g", name, x, actual, expected);
        lines++;
    }
    fclose(file);
    assert_true(lines > 100);
}

static void test_counts(void **state)
{
    (void)state;
    static const int64_t counts[RANGE_COUNT] = {0, 0, 7, 5, 64, 11, 5, 3};
    for (int i = 0; i < RANGE_COUNT; i++) assert_int_equal(lki_range_count(&ranges[i].range), counts[i]);
    const lki_range *points = range_named("points"), *step = range_named("step");
    static const double powers[] = {1e-4, 1e-3, 1e-2, 1e-1, 1};
    for (int i = 0; i < 5; i++) assert_true(lki_range_value(points, i) == powers[i]);
    assert_true(lki_range_value(step, 3) == 0.3);
    assert_true(lki_range_value(range_named("int_step"), 4) == 40);
}

/* As Optuna, which says so in a warning: [1, 10] in steps of 4 ends at 9. */
static void test_settle(void **state)
{
    (void)state;
    lki_range range = {LKI_RANGE_INT, 1, 10, false, 4, 0}, exact = {LKI_RANGE_FLOAT, 0, 0.3, false, 0.1, 0};
    lki_range_settle(&range);
    assert_true(range.high == 9);
    lki_range_settle(&exact);
    assert_true(exact.high == 0.3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distributions),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_settle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
