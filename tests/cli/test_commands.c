/* The command line itself: help, unknown words, the completion and the man page against the option tables. */
#include "command.h"

#include <lockstep/checkpoint.h>
#include <lockstep/version.h>

static void test_overview(void **state)
{
    (void)state;
    const said *r = lockstep("");
    assert_int_equal(r->exit_code, 2);
    lkt_contains(r->err, "usage: lockstep COMMAND");
    r = lockstep("--help");
    assert_int_equal(r->exit_code, 0);
    lkt_contains(r->out, "usage: lockstep COMMAND");
    r = lockstep("help");
    assert_int_equal(r->exit_code, 0);
    lkt_contains(r->out, "components");
}

static void test_version(void **state)
{
    (void)state;
    char expected[64];
    snprintf(expected, sizeof expected, "lockstep %s\n", lk_version());
    static const char *const ways[] = {"version", "--version", "-V"};
    for (int i = 0; i < 3; i++) {
        const said *r = lockstep(ways[i]);
        assert_int_equal(r->exit_code, 0);
        assert_true(strncmp(r->out, expected, strlen(expected)) == 0);
        lkt_contains(r->out, "\nbuilt with:  ");
        lkt_contains(r->out, "\nleft out:    ");
        lkt_contains(r->out, "\ncompiler:    ");
    }
}

static void test_wrong_words(void **state)
{
    (void)state;
    check_refused(NULL, "compnents", 2, "unknown command \"compnents\"; did you mean \"components\"?");
    check_refused(NULL, "xyzzy", 2, "unknown command \"xyzzy\"; see lockstep help");
    check_refused(NULL, "components --kinds=x", 2,
                  "components: unknown option --kinds; did you mean --kind?");
    check_refused(NULL, "components -x", 2, "components: unknown option -x");
    check_refused(NULL, "components --kind", 2, "components: --kind needs a value");
    check_refused(NULL, "components -k", 2, "components: --kind needs a value");
    check_refused(NULL, "components --names=y", 2, "components: --names takes no value");
    check_refused(NULL, "components more", 2, "components: \"more\" is not an option");
    check_refused(NULL, "components --kind nonsense", 2, "there is no kind \"nonsense\"");
    check_refused(NULL, "components --a/b=1", 2, "unknown option --a/b");
    check_refused(NULL, "help NoSuchThingAtAll", 2, "unknown component \"NoSuchThingAtAll\"");
}

static void test_doctor(void **state)
{
    (void)state;
    const said *r = lockstep("doctor");
    assert_int_equal(r->exit_code, 0);
    lkt_contains(r->out, "machine");
    lkt_contains(r->out, "slurm");
    lkt_contains(r->out, "ref: ready");
    lkt_contains(r->out, "shm: ");
    lkt_contains(r->out, "bf16: ");
    lkt_contains(r->out, "gpu");
    assert_int_equal(setenv("RANK", "1", 1), 0);
    assert_int_equal(setenv("WORLD_SIZE", "4", 1), 0);
    assert_int_equal(setenv("MASTER_ADDR", "localhost", 1), 0);
    lkt_contains(lockstep("doctor")->out, "rank 1 of 4, from environment");
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    unsetenv("MASTER_ADDR");
}

static void test_hash(void **state)
{
    (void)state;
    char paths[2][1200], words[4096], first[65];
    const char *folder = lkt_scratch_folder("cli_hash");
    for (int i = 0; i < 2; i++) {
        lk_state_dict *dict = lk_state_dict_create();
        snprintf(paths[i], sizeof paths[i], "%s/%d.safetensors", folder, i);
        /* The same weights in another order. */
        for (int k = 0; k < 2; k++)
            lkt_ok(lk_state_dict_put(dict, k == i ? "a" : "b",
                                     lk_tensor_full(LK_F32, LK_SHAPE(3), k == i ? 1 : 2)));
        lkt_ok(lk_save_safetensors(paths[i], dict));
        lk_state_dict_free(dict);
    }
    snprintf(words, sizeof words, "hash %s %s", paths[0], paths[1]);
    const said *r = lockstep(words);
    assert_int_equal(r->exit_code, 0);
    snprintf(first, sizeof first, "%.64s", r->out);
    assert_int_equal(strspn(first, "0123456789abcdef"), 64);
    assert_non_null(strstr(strchr(r->out, '\n'), first));
    check_refused(NULL, "hash", 2, "hash: needs a file of weights");
    check_refused(NULL, "hash no.safetensors", 1, "no.safetensors");
    snprintf(words, sizeof words, "hash %s/src/cli/hash.c", LK_SOURCE_DIR);
    check_refused(NULL, words, 1, "hash.c");
}

static void test_a_full_disk_is_noticed(void **state)
{
    (void)state;
    char command[1200];
    snprintf(command, sizeof command, "'%s/lockstep' completion >/dev/full 2>/dev/null", LK_BUILD_DIR);
    int status = system(command);
    assert_int_equal(WEXITSTATUS(status), 1);
}

/* Calls `visit` for each line of the list of commands and options: "run --config -C". */
static void each_listed(void (*visit)(const char *command, const char *option, const char *letter))
{
    static said list;
    list = *lockstep("completion --list");
    assert_int_equal(list.exit_code, 0);
    char *rest = NULL;
    for (char *line = strtok_r(list.out, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *word = NULL;
        const char *command = strtok_r(line, " ", &word), *option = strtok_r(NULL, " ", &word);
        visit(command, option, strtok_r(NULL, " ", &word));
    }
}

static void check_help_of(const char *command, const char *option, const char *letter)
{
    char words[128];
    snprintf(words, sizeof words, "%s --help", command);
    const said *r = lockstep(words);
    assert_int_equal(r->exit_code, 0);
    if (option) lkt_contains(r->out, option);
    if (letter) lkt_contains(r->out, letter);
    snprintf(words, sizeof words, "help %s", command);
    assert_int_equal(lockstep(words)->exit_code, 0);
}

static void test_every_command_has_help(void **state)
{
    (void)state;
    each_listed(check_help_of);
}

static char page[65536];

/* The part of the man page that is about one command: from its .Ss to the next. */
static void find_section(const char *command, char *section, size_t capacity)
{
    char heading[64];
    snprintf(heading, sizeof heading, "\n.Ss %s", command);
    const char *begin = strstr(page, heading);
    if (!begin) {
        fail_msg("docs/man/lockstep.1 has no section on %s", command);
        return;
    }
    const char *end = strstr(begin + 4, "\n.S");
    size_t length = end ? (size_t)(end - begin) : strlen(begin);
    assert_true(length < capacity);
    memcpy(section, begin, length);
    section[length] = 0;
}

static void check_page_names(const char *command, const char *option, const char *letter)
{
    char section[16384], line[160];
    find_section(command, section, sizeof section);
    if (!option) return;
    if (letter)
        snprintf(line, sizeof line, "\n.It Fl %s , Fl %s", letter + 1, option + 1);
    else
        snprintf(line, sizeof line, "\n.It Fl %s", option + 1);
    if (!strstr(section, line)) fail_msg("docs/man/lockstep.1, %s: no line \"%s\"", command, line + 1);
}

static void test_the_man_page_names_every_option(void **state)
{
    (void)state;
    read_whole(LK_SOURCE_DIR "/docs/man/lockstep.1", page, sizeof page);
    each_listed(check_page_names);
}

static int listed_options;

static void count_options(const char *command, const char *option, const char *letter)
{
    (void)command;
    (void)letter;
    listed_options += option != NULL;
}

static void test_the_man_page_names_no_other_option(void **state)
{
    (void)state;
    int on_page = 0;
    listed_options = 0;
    each_listed(count_options);
    read_whole(LK_SOURCE_DIR "/docs/man/lockstep.1", page, sizeof page);
    for (const char *at = page; (at = strstr(at, "\n.It Fl ")); at++) on_page++;
    assert_int_equal(on_page, listed_options);
}

static void test_the_completion_is_the_printed_one(void **state)
{
    (void)state;
    static const char *const files[][2] = {
        {"lockstep.bash", "bash"}, {"lockstep.fish", "fish"}, {"_lockstep", "zsh"}};
    char *script = calloc(1, 262144), path[1200], words[64];
    for (int i = 0; i < 3; i++) {
        memset(script, 0, 262144);
        snprintf(path, sizeof path, LK_SOURCE_DIR "/scripts/completion/%s", files[i][0]);
        snprintf(words, sizeof words, "completion --shell %s", files[i][1]);
        read_whole(path, script, 262144);
        const said *r = lockstep(words);
        if (strcmp(r->out, script))
            fail_msg("scripts/completion/%s is old: write it with `lockstep %s`", files[i][0], words);
    }
    free(script);
}

static void test_the_completion_completes(void **state)
{
    (void)state;
    char command[2048];
    snprintf(
        command, sizeof command,
        "bash -c 'source <(\"%s/lockstep\" completion); COMP_WORDS=(lockstep comp); COMP_CWORD=1; _lockstep; "
        "[[ \" ${COMPREPLY[*]} \" == *\" components \"* ]] && "
        "COMP_WORDS=(lockstep components --k); COMP_CWORD=2; _lockstep; [[ ${COMPREPLY[*]} == --kind ]]'",
        LK_BUILD_DIR);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overview),
        cmocka_unit_test(test_version),
        cmocka_unit_test(test_wrong_words),
        cmocka_unit_test(test_doctor),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_a_full_disk_is_noticed),
        cmocka_unit_test(test_every_command_has_help),
        cmocka_unit_test(test_the_man_page_names_every_option),
        cmocka_unit_test(test_the_man_page_names_no_other_option),
        cmocka_unit_test(test_the_completion_is_the_printed_one),
        cmocka_unit_test(test_the_completion_completes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
