/* Curves as text, compared with what a person draws by hand. */
#define _GNU_SOURCE
#include "lktest.h"

#include "logger/chart.h"

#include <stdlib.h>

static void test_sparkline(void **state)
{
    (void)state;
    char text[200];
    static const double down[] = {8, 7, 6, 5, 4, 3, 2, 1};
    assert_string_equal(lki_sparkline(text, down, 8, 40, true), "█▇▆▅▄▃▂▁");
    assert_string_equal(lki_sparkline(text, down, 8, 40, false), "##**--__");
    /* Four cells of two values each: 7.5, 5.5, 3.5, 1.5. */
    assert_string_equal(lki_sparkline(text, down, 8, 4, true), "█▆▃▁");
    static const double gaps[] = {NAN, 1, INFINITY, 2, NAN};
    assert_string_equal(lki_sparkline(text, gaps, 5, 40, true), " ▁ █ ");
    static const double flat[] = {3, 3, 3};
    assert_string_equal(lki_sparkline(text, flat, 3, 40, true), "▁▁▁");
    static const double none[] = {NAN, NAN};
    assert_string_equal(lki_sparkline(text, none, 2, 40, true), "");
    assert_string_equal(lki_sparkline(text, none, 0, 40, true), "");
}

static char *chart_text(const lki_chart *chart)
{
    char *text = NULL;
    size_t nbytes;
    FILE *stream = open_memstream(&text, &nbytes);
    lkt_ok(lki_chart_print(stream, chart));
    fclose(stream);
    return text;
}

static void check_chart(const lki_chart *chart, const char *expected)
{
    char *text = chart_text(chart);
    assert_string_equal(text, expected);
    free(text);
}

static const double x[] = {1, 2, 3, 4};

static void test_plain_chart(void **state)
{
    (void)state;
    static const double up[] = {0, 1, 2, 3}, down[] = {3, 2, 1, 0};
    check_chart(&(lki_chart){.title = "loss",
                             .series = {{"train", x, down, 4}, {"valid", x, up, 4}},
                             .series_count = 2,
                             .columns = 24,
                             .rows = 7},
                "loss   * train 0   o valid 3\n"
                "       3 +**         oo\n"
                "         |  **** oooo\n"
                "         |   oooo***\n"
                "       0 +ooo       ***\n"
                "         +-------------\n"
                "          1           4\n");
}

/* One curve is made of Braille dots, two by four in a cell. */
static void test_braille_chart(void **state)
{
    (void)state;
    static const double two[] = {0, 1};
    check_chart(&(lki_chart){.title = "f1",
                             .series = {{"valid", x, two, 2}},
                             .series_count = 1,
                             .columns = 24,
                             .rows = 5,
                             .unicode = true},
                "f1   valid 1\n"
                "       1 ┤      ⢀⣀⡠⠤⠒⠒⠉\n"
                "       0 ┤⣀⠤⠤⠒⠊⠉⠁\n"
                "         └─────────────\n"
                "          1           2\n");
}

static void test_odd_values(void **state)
{
    (void)state;
    static const double gaps[] = {NAN, 2, INFINITY, 2}, none[] = {NAN, NAN, NAN, NAN};
    lki_chart chart = {
        .title = "loss", .series = {{"train", x, gaps, 4}}, .series_count = 1, .columns = 0, .rows = 0};
    char *text = chart_text(&chart);
    lkt_contains(text, "\n       2 +*           *\n"); /* both values, no line between them */
    free(text);
    chart.series[0].y = none;
    text = chart_text(&chart);
    lkt_contains(text, "no value yet");
    free(text);
    chart.series[0].count = 0;
    text = chart_text(&chart);
    lkt_contains(text, "loss   * train nan\n");
    free(text);
    chart.series_count = 0;
    text = chart_text(&chart);
    lkt_contains(text, "no value yet");
    free(text);
}

/* Every size and every mode stays within its columns and rows. */
static void test_sizes(void **state)
{
    (void)state;
    static const double y[] = {1e-9, -2, 3e10, 4};
    for (int columns = 24; columns < 60; columns += 7)
        for (int rows = 5; rows < 20; rows += 3) {
            lki_chart chart = {.title = "t",
                               .series = {{"a", x, y, 4}},
                               .series_count = 1,
                               .columns = columns,
                               .rows = rows};
            char *text = chart_text(&chart), *rest = NULL;
            int lines = 0;
            for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest), lines++)
                assert_true((int)strlen(line) <= columns);
            assert_int_equal(lines, rows);
            free(text);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sparkline),     cmocka_unit_test(test_plain_chart),
        cmocka_unit_test(test_braille_chart), cmocka_unit_test(test_odd_values),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
