/* Environment variables: every one that the sources read is in the one table and in the documents, and a slip
 * of the hand is told. */
#include "command.h"

static void check_listed(const char *text, const char *where, const char *name)
{
    const char *at = strstr(text, name);
    size_t length = strlen(name);
    while (at && strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", at[length]) && at[length]) at = strstr(at + 1, name);
    if (!at) fail_msg("%s is not in %s", name, where);
}

static void read_document(const char *path, char *text, size_t capacity)
{
    char whole[1200];
    snprintf(whole, sizeof whole, "%s/%s", LK_SOURCE_DIR, path);
    read_whole(whole, text, capacity);
}

/* The names in quotes in src, but for those in the table itself. */
static void test_the_table_is_what_is_read(void **state)
{
    static char table[16384], config[65536], man[65536], line[200];
    int count = 0, listed = 0;
    (void)state;
    snprintf(table, sizeof table, "%.16000s", lockstep("help environment")->out);
    read_document("docs/config.md", config, sizeof config);
    read_document("docs/man/lockstep.1", man, sizeof man);
    FILE *names = popen("grep -rhoE '\"LOCKSTEP_[A-Z_]+\"' '" LK_SOURCE_DIR "/src' --exclude=environment.c | "
                        "tr -d '\"' | sort -u",
                        "r");
    assert_non_null(names);
    for (; fgets(line, sizeof line, names); count++) {
        line[strcspn(line, "\n")] = 0;
        check_listed(table, "`lockstep help environment`: add it to src/cli/environment.c", line);
        check_listed(config, "docs/config.md", line);
        check_listed(man, "docs/man/lockstep.1", line);
    }
    assert_int_equal(pclose(names), 0);
    for (const char *at = table; (at = strstr(at, "  LOCKSTEP_")); at++) listed++;
    if (listed != count) fail_msg("%d variables are read, %d are listed", count, listed);
}

static void test_slips_are_told(void **state)
{
    (void)state;
    setenv("LOCKSTEP_ENGIEN", "cpu", 1);
    const said *r = lockstep("version");
    assert_int_equal(r->exit_code, 0);
    lkt_contains(r->err, "LOCKSTEP_ENGIEN is read by nothing; did you mean \"LOCKSTEP_ENGINE\"?");
    unsetenv("LOCKSTEP_ENGIEN");
    assert_string_equal(lockstep("version")->err, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_table_is_what_is_read),
        cmocka_unit_test(test_slips_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
