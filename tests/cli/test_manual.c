/* lockstep manual: all pages of docs/, one topic, the pager, and the man pages of the commands against the
 * list of options. */
#include "command.h"

#include <glob.h>

static char *whole(void)
{
    static char text[1 << 20];
    char path[1100], command[2400];
    snprintf(path, sizeof path, "%s/manual.txt", lkt_scratch_folder("manual"));
    snprintf(command, sizeof command, "'%s/lockstep' manual > '%s'", LK_BUILD_DIR, path);
    assert_int_equal(system(command), 0);
    read_whole(path, text, sizeof text);
    return text;
}

static void test_all_pages_are_in_it(void **state)
{
    (void)state;
    static char page[1 << 18];
    const char *text = whole();
    glob_t found;
    assert_int_equal(glob(LK_SOURCE_DIR "/docs/*/*.md", 0, NULL, &found), 0);
    assert_int_equal(glob(LK_SOURCE_DIR "/docs/*.md", GLOB_APPEND, NULL, &found), 0);
    assert_true(found.gl_pathc > 25);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        char name[200], line[300];
        read_whole(found.gl_pathv[i], page, sizeof page);
        page[strcspn(page, "\n")] = '\0';
        snprintf(line, sizeof line, "\n%.200s\n=", page + 2);
        if (!strstr(text, line))
            fail_msg("%s: the manual has no heading \"%s\"", found.gl_pathv[i], page + 2);
        snprintf(name, sizeof name, "%s", found.gl_pathv[i] + strlen(LK_SOURCE_DIR "/docs/"));
        name[strlen(name) - 3] = '\0';
        lkt_contains(lockstep("manual --list")->out, name);
    }
    globfree(&found);
    lkt_contains(text, "\nCommands\n\nlockstep run ");
}

static void test_a_topic(void **state)
{
    (void)state;
    const said *r = lockstep("manual csv");
    assert_int_equal(r->exit_code, 0);
    assert_true(strncmp(r->out, "Your own CSV file\n=", 19) == 0);
    lkt_contains(r->out, "\nbirds.yml:\n\n    runner:\n");
    assert_null(strstr(r->out, "```"));
    assert_null(strstr(r->out, "<!--"));
    assert_null(strstr(r->out, "](")); /* a link is its text */
    lkt_contains(lockstep("manual guides/NAN")->out, "Debugging a NaN\n");
    lkt_contains(lockstep("manual tutorial")->out, "\nA program in C\n");
    lkt_contains(lockstep("manual lockstep-hash")->out, "lockstep hash ");
    lkt_contains(lockstep("manual Linear")->out, "in_features");
    r = lockstep("manual board"); /* a page and a command */
    lkt_contains(r->out, "The live page\n");
    lkt_contains(r->out, "lockstep board ");
}

static void test_prose_is_folded(void **state)
{
    (void)state;
    const said *r = lockstep("manual deterministic");
    for (const char *line = r->out; *line; line += strcspn(line, "\n") + 1)
        if (*line != ' ' && strcspn(line, "\n") > 80) fail_msg("too long: %.120s", line);
}

static void test_what_is_no_topic(void **state)
{
    (void)state;
    check_refused(NULL, "manual gann", 2, "manual: no page is called \"gann\"; did you mean \"gan\"?");
    check_refused(NULL, "manual xyzzy", 2, "no page is called \"xyzzy\"; see lockstep manual --list");
    check_refused(NULL, "manual csv torchrun", 2, "no page is called \"torchrun\"; it stands in ");
    check_refused(NULL, "manual --man-pages /nowhere", 1, "/nowhere/lockstep-run.1");
}

static void test_the_pager(void **state)
{
    (void)state;
    char command[2400], path[1100];
    static char text[1 << 16];
    if (system("script --version > /dev/null 2>&1")) skip();
    snprintf(path, sizeof path, "%s/paged.txt", lkt_scratch_folder("manual_pager"));
    snprintf(command, sizeof command,
             "PAGER='sed s/^/paged:/' TERM=xterm script -qec \"'%s/lockstep' manual gan\" /dev/null > '%s' < "
             "/dev/null",
             LK_BUILD_DIR, path);
    assert_int_equal(system(command), 0);
    read_whole(path, text, sizeof text);
    lkt_contains(text, "paged:\x1b[1mA GAN: two models, two optimizers\x1b[0m");
    snprintf(command, sizeof command, /* one that is left at once */
             "PAGER='head -n 1' TERM=xterm script -qec \"'%s/lockstep' manual\" /dev/null > '%s' < /dev/null",
             LK_BUILD_DIR, path);
    assert_int_equal(system(command), 0);
}

static void test_every_command_has_a_man_page(void **state)
{
    (void)state;
    static said list;
    static char page[1 << 16];
    char words[1200], folder[1000], path[1100], command[2400], wanted[160];
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("man_pages"));
    snprintf(words, sizeof words, "manual --man-pages '%s'", folder);
    assert_int_equal(lockstep(words)->exit_code, 0);
    list = *lockstep("completion --list");
    char *rest = NULL;
    for (char *line = strtok_r(list.out, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *word = NULL;
        const char *name = strtok_r(line, " ", &word), *option = strtok_r(NULL, " ", &word);
        snprintf(path, sizeof path, "%s/lockstep-%s.1", folder, name);
        read_whole(path, page, sizeof page);
        if (!option) continue;
        size_t at = (size_t)snprintf(wanted, sizeof wanted, "\\fB");
        for (const char *c = option; *c; c++)
            at += (size_t)snprintf(wanted + at, sizeof wanted - at, *c == '-' ? "\\-" : "%c", *c);
        snprintf(wanted + at, sizeof wanted - at, "\\fR");
        lkt_contains(page, wanted);
    }
    if (system("groff --version > /dev/null 2>&1")) return;
    snprintf(command, sizeof command,
             "cd '%s' && for page in *.1; do groff -man -Tutf8 -ww $page 2>&1 >/dev/null; done > said; "
             "test ! -s said",
             folder);
    if (system(command)) fail_msg("groff has complaints: see %s/said", folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_pages_are_in_it), cmocka_unit_test(test_a_topic),
        cmocka_unit_test(test_prose_is_folded),     cmocka_unit_test(test_what_is_no_topic),
        cmocka_unit_test(test_the_pager),           cmocka_unit_test(test_every_command_has_a_man_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
