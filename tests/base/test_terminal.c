/* What is told to people: folded at a terminal's width, and plain where nobody wants colours. */
#define _GNU_SOURCE
#include "lktest.h"

#include "base/terminal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

static char *folded(const char *text, int columns)
{
    char *out = NULL;
    size_t nbytes;
    FILE *stream = open_memstream(&out, &nbytes);
    lki_print_folded(stream, text, columns);
    fclose(stream);
    return out;
}

static void check_folded(const char *text, int columns, const char *expected)
{
    char *out = folded(text, columns);
    assert_string_equal(out, expected);
    free(out);
}

static void test_folding(void **state)
{
    (void)state;
    check_folded("  -e, --epochs N  the number of epochs of the run\n", 40,
                 "  -e, --epochs N  the number of epochs\n                  of the run\n");
    check_folded("one two three four five six\nshort\n\nlast", 20,
                 "one two three four\nfive six\nshort\n\nlast");
    /* A word that is longer than the line stays whole. */
    check_folded("see /a/path/that/is/much/longer/than/it end\n", 24,
                 "see\n/a/path/that/is/much/longer/than/it\nend\n");
    /* A letter of two bytes is one column. */
    check_folded("ääää ääää ääää ääää ääää\n", 24, "ääää ääää ääää ääää ääää\n");
    /* No width, or none to speak of: as it is. */
    check_folded("one two three four five six\n", 0, "one two three four five six\n");
    check_folded("one two three four five six\n", 10, "one two three four five six\n");
    check_folded("", 40, "");
}

/* Every line fits, and no word is lost. */
static void test_folding_at_every_width(void **state)
{
    (void)state;
    static const char text[] =
        "  name  a help text of many words, each of which is short enough for a line\n";
    for (int columns = 20; columns < 100; columns++) {
        char *out = folded(text, columns), *rest = NULL;
        int words = 0;
        for (char *at = out; *at; at++)
            words += *at != ' ' && *at != '\n' && (at == out || at[-1] == ' ' || at[-1] == '\n');
        assert_int_equal(words, 16);
        for (char *line = strtok_r(out, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
            assert_true((int)strlen(line) <= columns);
        free(out);
    }
}

static void test_what_a_terminal_can_do(void **state)
{
    (void)state;
    int ends[2], host = posix_openpt(O_RDWR | O_NOCTTY);
    assert_int_equal(pipe(ends), 0);
    if (host < 0 || grantpt(host) != 0 || unlockpt(host) != 0) {
        print_message("skipped: no pseudo terminals here\n");
        skip();
    }
    int terminal = open(ptsname(host), O_RDWR | O_NOCTTY);
    struct winsize size = {.ws_row = 33, .ws_col = 123};
    assert_int_equal(ioctl(terminal, TIOCSWINSZ, &size), 0);
    setenv("TERM", "xterm", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    unsetenv("NO_COLOR");
    lki_terminal is = lki_terminal_of(terminal);
    assert_true(is.is_terminal && is.has_colour && is.has_unicode);
    assert_int_equal(is.columns, 123);
    assert_int_equal(is.rows, 33);
    setenv("NO_COLOR", "1", 1);
    is = lki_terminal_of(terminal);
    assert_true(is.is_terminal && !is.has_colour);
    setenv("NO_COLOR", "", 1); /* empty is not set: no-color.org */
    assert_true(lki_terminal_of(terminal).has_colour);
    setenv("TERM", "dumb", 1);
    is = lki_terminal_of(terminal);
    assert_false(is.is_terminal || is.has_colour);
    setenv("TERM", "xterm", 1);
    setenv("LC_ALL", "C", 1);
    assert_false(lki_terminal_of(terminal).has_unicode);
    is = lki_terminal_of(ends[1]);
    assert_false(is.is_terminal || is.has_colour);
    assert_int_equal(is.columns, 80);
    close(terminal);
    close(host);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folding),
        cmocka_unit_test(test_folding_at_every_width),
        cmocka_unit_test(test_what_a_terminal_can_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
