/* The densities of Parzen estimators are those of SciPy's truncated normal distributions, and draws have
 * them. */
#include "ranges.h"

#include "tune/parzen.h"

enum { MAX_VALUES = 64, DRAWS = 40000 };

static int read_values(char *text, double *values)
{
    int count = 0;
    char *rest = NULL;
    for (char *word = strtok_r(text, " \n", &rest); word; word = strtok_r(NULL, " \n", &rest))
        values[count++] = strtod(word, NULL);
    return count;
}

static void test_densities(void **state)
{
    (void)state;
    char line[4096], name[32];
    double x, expected, values[MAX_VALUES];
    int compared = 0;
    lki_parzen parzen = {0};
    FILE *file = fopen(GOLDEN("parzen.txt"), "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "= %lf %lf", &x, &expected) == 2) {
            lkt_close(lki_parzen_log(&parzen, x), expected, 1e-9);
            compared++;
            continue;
        }
        assert_int_equal(sscanf(line, "%31s", name), 1);
        lki_parzen_fini(&parzen);
        int count = read_values(line + strlen(name), values);
        lkt_ok(lki_parzen_init(&parzen, range_named(name), values, count));
    }
    lki_parzen_fini(&parzen);
    fclose(file);
    assert_true(compared > 80);
}

/* The share of draws of each value is its probability. */
static void test_draws(void **state)
{
    (void)state;
    static const char *const names[] = {"int", "int_step", "int_log", "step", "points", "choice"};
    for (int n = 0; n < 6; n++) {
        const lki_range *range = range_named(names[n]);
        double observed[] = {lki_range_value(range, 1), lki_range_value(range, 1), lki_range_value(range, 2)};
        double sum = 0;
        int64_t counts[64] = {0}, values = lki_range_count(range);
        lki_parzen parzen;
        lk_generator generator;
        lk_generator_seed(&generator, 3);
        lkt_ok(lki_parzen_init(&parzen, range, observed, 3));
        for (int i = 0; i < DRAWS; i++) {
            double drawn = lki_parzen_draw(&parzen, &generator);
            int64_t at = 0;
            while (at < values && lki_range_value(range, at) != drawn) at++;
            if (at == values) fail_msg("%s: %g is none of its values", names[n], drawn);
            counts[at]++;
        }
        for (int64_t at = 0; at < values; at++) {
            double expected = exp(lki_parzen_log(&parzen, lki_range_value(range, at)));
            double spread = sqrt(expected * (1 - expected) / DRAWS), actual = (double)counts[at] / DRAWS;
            sum += expected;
            if (fabs(actual - expected) > 4.5 * spread)
                fail_msg("%s: value %d: %g, expected %g", names[n], (int)at, actual, expected);
        }
        lkt_close(sum, 1, 1e-9);
        lki_parzen_fini(&parzen);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_densities),
        cmocka_unit_test(test_draws),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
