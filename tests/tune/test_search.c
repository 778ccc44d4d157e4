/* Grids are whole, the same seed tries the same values, and TPE finds a minimum sooner than random search. */
#include "memory_study.h"

#include "tune/search.h"

enum { SEEDS = 20, TRIALS = 50 };

static const lki_parameter_space space[] = {{"x", {LKI_RANGE_FLOAT, -5, 5, false, 0, 0}},
                                            {"y", {LKI_RANGE_FLOAT, 1e-4, 1, true, 0, 0}},
                                            {"n", {LKI_RANGE_INT, 1, 16, false, 1, 0}},
                                            {"kind", {LKI_RANGE_CHOICE, 0, 2, false, 1, 0}}};

/* A quadratic with its minimum of 0 at x 2, y 0.01, n 11, kind 1. */
static double quadratic(const double *v)
{
    double x = v[0] - 2, y = log10(v[1]) + 2, n = (v[2] - 11) / 4;
    return x * x + y * y + n * n + (v[3] != 1);
}

/* The best value after TRIALS trials. */
static double search_for(lki_search_kind kind, uint64_t seed)
{
    const lki_search search = {kind, 10, 24};
    lki_study study = {.parameters = space, .parameter_count = 4, .minimize = true, .seed = seed};
    lkt_ok(lki_study_open(&study, NULL, NULL));
    for (int i = 0; i < TRIALS; i++) {
        double values[4];
        lkt_ok(lki_search_next(&search, &study, values));
        double value = quadratic(values);
        add_trial(&study, values, &value, 1, LKI_TRIAL_COMPLETE);
    }
    double best = lki_trial_value(lki_study_best(&study));
    lki_study_close(&study);
    return best;
}

static int compare(const void *a, const void *b)
{
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

static void test_tpe_beats_random(void **state)
{
    (void)state;
    double tpe[SEEDS], random[SEEDS];
    int wins = 0;
    for (int i = 0; i < SEEDS; i++) {
        tpe[i] = search_for(LKI_SEARCH_TPE, (uint64_t)i);
        random[i] = search_for(LKI_SEARCH_RANDOM, (uint64_t)i);
        wins += tpe[i] < random[i];
    }
    qsort(tpe, SEEDS, sizeof *tpe, compare);
    qsort(random, SEEDS, sizeof *random, compare);
    print_message("TPE is better for %d of %d seeds; medians %g and %g\n", wins, SEEDS, tpe[SEEDS / 2],
                  random[SEEDS / 2]);
    assert_true(wins >= 15);
    assert_true(tpe[SEEDS / 2] < random[SEEDS / 2] / 2);
}

static void test_same_seed(void **state)
{
    (void)state;
    assert_true(search_for(LKI_SEARCH_TPE, 3) == search_for(LKI_SEARCH_TPE, 3));
    assert_true(search_for(LKI_SEARCH_RANDOM, 3) != search_for(LKI_SEARCH_RANDOM, 4));
}

static void test_grid(void **state)
{
    (void)state;
    const lki_search search = {.kind = LKI_SEARCH_GRID};
    const lki_parameter_space grid[] = {{"a", {LKI_RANGE_CHOICE, 0, 1, false, 1, 0}},
                                        {"b", {LKI_RANGE_FLOAT, 0.01, 1, true, 0, 3}}};
    static const double expected[6][2] = {{0, 0.01}, {0, 0.1}, {0, 1}, {1, 0.01}, {1, 0.1}, {1, 1}};
    lki_study study = {.parameters = grid, .parameter_count = 2};
    lkt_ok(lki_study_open(&study, NULL, NULL));
    assert_int_equal(lki_search_grid_count(&study), 6);
    for (int i = 0; i < 6; i++) {
        double values[2];
        lki_trial *trial;
        lkt_ok(lki_search_next(&search, &study, values));
        assert_true(values[0] == expected[i][0] && values[1] == expected[i][1]);
        lkt_ok(lki_study_begin(&study, values, &trial));
    }
    lki_study_close(&study);
    lki_study endless = {.parameters = space, .parameter_count = 4};
    assert_int_equal(lki_search_grid_count(&endless), 0);
}

/* Failed trials and numbers that are none say nothing of the space; infinities are the worst. */
static void test_odd_values(void **state)
{
    (void)state;
    const lki_search search = {LKI_SEARCH_TPE, 2, 24};
    const double odd[] = {NAN, INFINITY, -INFINITY, 1, 1};
    lki_study study = {.parameters = space, .parameter_count = 4, .minimize = true};
    lkt_ok(lki_study_open(&study, NULL, NULL));
    for (int i = 0; i < 40; i++) {
        double values[4];
        lkt_ok(lki_search_next(&search, &study, values));
        for (int k = 0; k < 4; k++)
            assert_true(values[k] >= space[k].range.low && values[k] <= space[k].range.high);
        add_trial(&study, values, &odd[i % 5], i % 7 ? 1 : 0, (lki_trial_state)(i % 4));
    }
    lki_study_close(&study);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tpe_beats_random),
        cmocka_unit_test(test_same_seed),
        cmocka_unit_test(test_grid),
        cmocka_unit_test(test_odd_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
