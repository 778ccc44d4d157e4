/* Environment variables: every one that the sources read is in the one table, the documents are made from it,
 * a bad value is refused and a slip of the hand is told. */
#include "command.h"

#include "base/settings.h"

#include <ctype.h>

static void read_document(const char *path, char *text, size_t capacity)
{
    char whole[1200];
    snprintf(whole, sizeof whole, "%s/%s", LK_SOURCE_DIR, path);
    read_whole(whole, text, capacity);
}

/* The documents say what the table says, word for word: `make docs` writes them. */
static void test_the_documents_are_made_from_it(void **state)
{
    static char config[65536], man[65536], row[600];
    (void)state;
    read_document("docs/config.md", config, sizeof config);
    read_document("docs/man/lockstep.1", man, sizeof man);
    const char *help = lockstep("help environment")->out;
    for (int i = 0; i < LKI_SETTING_COUNT; i++) {
        const lki_setting_entry *entry = &lki_settings[i];
        char meaning[400];
        snprintf(meaning, sizeof meaning, *entry->otherwise ? "%s (%s)" : "%s", entry->meaning,
                 entry->otherwise);
        snprintf(row, sizeof row, "  %-26s %s\n", entry->name, meaning);
        lkt_contains(help, row);
        snprintf(row, sizeof row, "| `%s` | %s |\n", entry->name, meaning);
        lkt_contains(config, row);
        snprintf(row, sizeof row, ".It Ev %s\n%c%s.\n", entry->name, toupper((unsigned char)*meaning),
                 meaning + 1);
        lkt_contains(man, row);
    }
    int rows = 0;
    for (const char *at = config; (at = strstr(at, "| `LOCKSTEP_")); at++) rows++;
    assert_int_equal(rows, LKI_SETTING_COUNT);
    rows = 0;
    for (const char *at = man; (at = strstr(at, ".It Ev LOCKSTEP_")); at++) rows++;
    assert_int_equal(rows, LKI_SETTING_COUNT);
}

/* Whoever names a variable in the sources, other than in a message, goes past the table. */
static void test_nothing_else_reads_them(void **state)
{
    char line[400];
    (void)state;
    FILE *found =
        popen("cd '" LK_SOURCE_DIR "' && grep -rnE '\"LOCKSTEP_[A-Z_]+\"|getenv\\(\"LOCKSTEP_' src", "r");
    assert_non_null(found);
    if (fgets(line, sizeof line, found)) fail_msg("not through src/base/settings.h: %s", line);
    pclose(found);
}

/* Each of them is read somewhere: by the library, or by the Python package. */
static void test_all_are_read(void **state)
{
    (void)state;
#define X(symbol, kind, otherwise, meaning)                                                                  \
    if (system("cd '" LK_SOURCE_DIR "' && grep -rqE 'LKI_SETTING_" #symbol                                   \
               "\\b|environ.get\\(\"LOCKSTEP_" #symbol "\"' src python") != 0)                               \
        fail_msg("nothing reads LOCKSTEP_" #symbol);
    LKI_SETTING_LIST(X)
#undef X
}

static void test_bad_values_are_refused(void **state)
{
    lki_switch on;
    int seconds;
    (void)state;
    setenv("LOCKSTEP_CHANNELS_LAST", "yes", 1);
    lkt_fails(lki_setting_switch(LKI_SETTING_CHANNELS_LAST, &on), LK_ERR_CONFIG,
              "LOCKSTEP_CHANNELS_LAST: expected 0 or 1, found \"yes\"");
    lkt_contains(lockstep("doctor")->out,
                 "setting      LOCKSTEP_CHANNELS_LAST: expected 0 or 1, found \"yes\"\n");
    const said *r = lockstep("test"); /* which trains */
    assert_int_not_equal(r->exit_code, 0);
    lkt_contains(r->out, ": LOCKSTEP_CHANNELS_LAST: expected 0 or 1, found \"yes\"\n");
    setenv("LOCKSTEP_CHANNELS_LAST", "", 1);
    lkt_ok(lki_setting_switch(LKI_SETTING_CHANNELS_LAST, &on));
    assert_int_equal(on, LKI_SWITCH_UNSET);
    setenv("LOCKSTEP_CHANNELS_LAST", "0", 1);
    lkt_ok(lki_setting_switch(LKI_SETTING_CHANNELS_LAST, &on));
    assert_int_equal(on, LKI_SWITCH_OFF);
    unsetenv("LOCKSTEP_CHANNELS_LAST");
    static const char *const wrong[] = {"soon", "0", "-3", "12 s", "1000001", "99999999999999999999"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("LOCKSTEP_LINK_TIMEOUT", wrong[i], 1);
        lkt_fails(lki_setting_seconds(LKI_SETTING_LINK_TIMEOUT, &seconds), LK_ERR_CONFIG,
                  "LOCKSTEP_LINK_TIMEOUT: expected a number from 1 to 1000000, found ");
        lkt_contains(lk_error(), wrong[i]);
    }
    setenv("LOCKSTEP_LINK_TIMEOUT", "7", 1);
    lkt_ok(lki_setting_seconds(LKI_SETTING_LINK_TIMEOUT, &seconds));
    assert_int_equal(seconds, 7);
    unsetenv("LOCKSTEP_LINK_TIMEOUT");
}

/* The doctor tells what is set, but for secrets. */
static void test_the_doctor_tells_what_is_set(void **state)
{
    (void)state;
    const char *engine = getenv("LOCKSTEP_ENGINE") ? getenv("LOCKSTEP_ENGINE") : "";
    char before[64];
    snprintf(before, sizeof before, "%s", engine);
    setenv("LOCKSTEP_ENGINE", "ref", 1);
    setenv("LOCKSTEP_TOKEN", "open sesame", 1);
    const said *r = lockstep("doctor");
    lkt_contains(r->out, "setting      LOCKSTEP_ENGINE=ref\n");
    lkt_contains(r->out, "setting      LOCKSTEP_TOKEN=(a secret)\n");
    assert_null(strstr(r->out, "open sesame"));
    assert_null(strstr(r->out, "LOCKSTEP_SHM"));
    setenv("LOCKSTEP_ENGINE", before, 1);
    unsetenv("LOCKSTEP_TOKEN");
}

static void test_slips_are_told(void **state)
{
    (void)state;
    setenv("LOCKSTEP_ENGIEN", "cpu", 1);
    const said *r = lockstep("version");
    assert_int_equal(r->exit_code, 0);
    lkt_contains(r->err, "unknown environment variable LOCKSTEP_ENGIEN; did you mean \"LOCKSTEP_ENGINE\"?");
    unsetenv("LOCKSTEP_ENGIEN");
    assert_string_equal(lockstep("version")->err, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_documents_are_made_from_it),
        cmocka_unit_test(test_nothing_else_reads_them),
        cmocka_unit_test(test_all_are_read),
        cmocka_unit_test(test_bad_values_are_refused),
        cmocka_unit_test(test_the_doctor_tells_what_is_set),
        cmocka_unit_test(test_slips_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
