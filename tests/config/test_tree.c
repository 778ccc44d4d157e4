/* Reading, merging and writing configs as trees. */
#include "lktest.h"

#include "base/memory.h"
#include "config/tree/tree.h"

static lk_status parse(lki_tree *tree, const char *name, const char *text)
{
    return lki_tree_read_text(tree, name, text, strlen(text));
}

/* The node at "a/b/0"; fails the test where there is none. */
static lki_node *at(const lki_tree *tree, const char *path)
{
    char copy[256], *rest = NULL;
    lki_node *node = tree->root;
    snprintf(copy, sizeof copy, "%s", path);
    for (char *part = strtok_r(copy, "/", &rest); part; part = strtok_r(NULL, "/", &rest)) {
        if (node->kind == LKI_NODE_LIST)
            node = atoi(part) < node->count ? node->entries[atoi(part)].value : NULL;
        else
            node = lki_node_get(node, part);
        if (!node) fail_msg("nothing at %s", path);
    }
    return node;
}

static const char *text_at(const lki_tree *tree, const char *path)
{
    const char *text = NULL;
    lkt_ok(lki_node_string(at(tree, path), path, &text));
    return text;
}

static void test_scalars_lists_and_maps(void **state)
{
    (void)state;
    lki_tree tree = {0};
    lkt_ok(parse(&tree, "a.yml", "a: 1\nb: [x, 'y', {c: d}]\ne:\n  f: |\n    two\n    lines\n  g:\n"));
    assert_string_equal(text_at(&tree, "a"), "1");
    assert_string_equal(text_at(&tree, "b/2/c"), "d");
    assert_string_equal(text_at(&tree, "e/f"), "two\nlines\n");
    assert_true(lki_node_is_null(at(&tree, "e/g")));
    assert_int_equal(at(&tree, "b/2/c")->place.line, 2);
    assert_int_equal(at(&tree, "b/2/c")->place.column, 17);
    assert_string_equal(at(&tree, "e/f")->place.file, "a.yml");
    assert_true(at(&tree, "b/1")->quoted);
    assert_null(lki_node_get(tree.root, "none"));
    assert_null(lki_node_get(at(&tree, "a"), "none"));
    lki_tree_fini(&tree);
}

static void test_json_is_yaml(void **state)
{
    (void)state;
    lki_tree tree = {0};
    const char *json =
        "{\n\t\"runner\": {\"lr\": 1e-3, \"path\": \"a\\/b \\u00e9\"},\n\t\"run\": [true, null]\n}\n";
    double lr;
    lkt_ok(parse(&tree, "a.json", json));
    lkt_ok(lki_node_float(at(&tree, "runner/lr"), "lr", &lr));
    lkt_close(lr, 1e-3, 1e-15);
    assert_string_equal(text_at(&tree, "runner/path"), "a/b \xc3\xa9");
    assert_true(lki_node_is_null(at(&tree, "run/1")));
    lki_tree_fini(&tree);
}

static void test_anchors_aliases_and_merge_keys(void **state)
{
    (void)state;
    lki_tree tree = {0};
    lkt_ok(parse(&tree, "a.yml",
                 "n: &n 10\n"
                 "base: &base {lr: 1, momentum: 2}\n"
                 "more: &more {lr: 7, eps: 3}\n"
                 "one: {<<: *base, lr: *n}\n"
                 "two:\n  own: 5\n  <<: [*base, *more]\n"
                 "three: {'<<': plain}\n"));
    assert_string_equal(text_at(&tree, "one/lr"), "10");
    assert_string_equal(text_at(&tree, "one/momentum"), "2");
    assert_string_equal(text_at(&tree, "two/lr"), "1");
    assert_string_equal(text_at(&tree, "two/eps"), "3");
    assert_string_equal(at(&tree, "two")->entries[0].key, "lr");
    assert_string_equal(at(&tree, "two")->entries[3].key, "own");
    assert_string_equal(text_at(&tree, "three/<<"), "plain");
    /* An alias is a copy that keeps the place of what it repeats. */
    assert_int_equal(at(&tree, "one/lr")->place.line, 1);
    assert_ptr_not_equal(at(&tree, "one/lr"), at(&tree, "n"));
    lki_tree_fini(&tree);
}

static void test_an_anchor_can_be_set_again(void **state)
{
    (void)state;
    lki_tree tree = {0};
    lkt_ok(parse(&tree, "a.yml", "a: &x 1\nb: *x\nc: &x 2\nd: *x\n"));
    assert_string_equal(text_at(&tree, "b"), "1");
    assert_string_equal(text_at(&tree, "d"), "2");
    lki_tree_fini(&tree);
}

static void test_tags(void **state)
{
    (void)state;
    lki_tree tree = {0};
    int64_t value;
    lkt_ok(parse(&tree, "a.yml", "a: !!str 5\nb: !!int '5'\nc: !!python/tuple [1, 2]\n"));
    lkt_fails(lki_node_int(at(&tree, "a"), "a", &value), LK_ERR_CONFIG,
              "a.yml:1: a: expected an integer, found the string \"5\"");
    lkt_ok(lki_node_int(at(&tree, "b"), "b", &value));
    assert_int_equal(at(&tree, "c")->count, 2);
    lki_tree_fini(&tree);
    lkt_fails(parse(&tree, "a.yml", "x: 1\na: !!python/object:os.system [ls]\n"), LK_ERR_CONFIG,
              "a.yml:2: unknown tag");
    lki_tree_fini(&tree);
}

static void test_merging_files(void **state)
{
    (void)state;
    lki_tree tree = {0};
    lkt_ok(parse(&tree, "a.yml", "runner: {model: {lr: 1, size: 2}, list: [1, 2, 3]}\nrun: [a]\n"));
    lkt_ok(parse(&tree, "b.yml", "runner:\n  engine: cpu\n  model: {lr: 9}\n  list: [4]\nextra: y\n"));
    assert_string_equal(text_at(&tree, "runner/model/lr"), "9");
    assert_string_equal(text_at(&tree, "runner/model/size"), "2");
    assert_int_equal(at(&tree, "runner/list")->count, 1);
    assert_string_equal(text_at(&tree, "extra"), "y");
    assert_string_equal(at(&tree, "runner/model/lr")->place.file, "b.yml");
    assert_int_equal(at(&tree, "runner/model/lr")->place.line, 3);
    /* The order is that of the first file; what is new comes last. */
    assert_string_equal(tree.root->entries[0].key, "runner");
    assert_string_equal(tree.root->entries[2].key, "extra");
    lki_tree_fini(&tree);
}

static void test_a_failed_file_leaves_the_tree(void **state)
{
    (void)state;
    lki_tree tree = {0};
    lkt_ok(parse(&tree, "a.yml", "a: 1\n"));
    lkt_fails(parse(&tree, "b.yml", "a: 2\nb: [\n"), LK_ERR_CONFIG, "b.yml:");
    assert_string_equal(text_at(&tree, "a"), "1");
    lki_tree_fini(&tree);
}

/* What is wrong shows only when the file lies over the other one. */
static void test_a_file_that_cannot_be_merged_leaves_the_tree(void **state)
{
    (void)state;
    lki_tree tree = {0};
    lkt_ok(parse(&tree, "a.yml", "n: 1\nshared: &s {k: 1}\nuse: {<<: *s}\nuse2: *s\n"));
    lkt_fails(parse(&tree, "b.yml", "n: 2\nuse2: {k: 7}\nshared: 5\n"), LK_ERR_CONFIG,
              "b.yml:3: expected a map: the one that `<<` in a.yml:3 takes keys from");
    assert_string_equal(text_at(&tree, "n"), "1");
    lkt_ok(parse(&tree, "c.yml", "n: 3\nshared: {k: 4}\n"));
    assert_string_equal(text_at(&tree, "n"), "3");
    assert_string_equal(text_at(&tree, "use/k"), "4");
    assert_string_equal(text_at(&tree, "use2/k"), "4");
    lki_tree_fini(&tree);
}

static void test_integers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"0", 0},
                {"42", 42},
                {"-7", -7},
                {"+3", 3},
                {"1_000", 1000},
                {"0x1F", 31},
                {"0b101", 5},
                {"017", 15},
                {"0o17", 15},
                {"1e3", 1000},
                {"2.0", 2},
                {"-1.5e1", -15},
                {"9223372036854775807", INT64_MAX},
                {"-9223372036854775808", INT64_MIN}};
    static const char *const bad[] = {"",    "-",   "abc", "1.5", "08",  "1e400", "9223372036854775808",
                                      "0x",  "1__", "_1",  "1 2", "inf", "nan",   "true",
                                      "12a", "0xg"};
    int64_t value;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (!lki_parse_int(good[i].text, &value)) fail_msg("%s is an integer", good[i].text);
        assert_int_equal(value, good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (lki_parse_int(bad[i], &value) && strcmp(bad[i], "1__")) fail_msg("%s is no integer", bad[i]);
}

static void test_floats(void **state)
{
    (void)state;
    static const char *const bad[] = {"",     ".",   "e5",  "1e",   "0x1p3", "1.2.3",
                                      "fast", "--1", "1,5", "inf2", "-"};
    double value;
    assert_true(lki_parse_float("1e-3", &value) && value == 1e-3);
    assert_true(lki_parse_float("1e3", &value) && value == 1e3);
    assert_true(lki_parse_float(".5", &value) && value == .5);
    assert_true(lki_parse_float("-5.", &value) && value == -5);
    assert_true(lki_parse_float("1_0.5", &value) && value == 10.5);
    assert_true(lki_parse_float(".inf", &value) && isinf(value) && value > 0);
    assert_true(lki_parse_float("-inf", &value) && isinf(value) && value < 0);
    assert_true(lki_parse_float(".NaN", &value) && isnan(value));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (lki_parse_float(bad[i], &value)) fail_msg("%s is no number", bad[i]);
}

static void test_booleans_only_where_asked_for(void **state)
{
    (void)state;
    static const char *const yes[] = {"y", "Y", "yes", "Yes", "true", "TRUE", "on", "1"};
    static const char *const no[] = {"n", "N", "no", "False", "off", "OFF", "0"};
    bool value;
    lki_tree tree = {0};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++)
        assert_true(lki_parse_bool(yes[i], &value) && value);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) assert_true(lki_parse_bool(no[i], &value) && !value);
    assert_false(lki_parse_bool("maybe", &value));
    lkt_ok(parse(&tree, "a.yml", "y: n\non: off\n"));
    assert_string_equal(text_at(&tree, "y"), "n");
    lkt_ok(lki_node_bool(at(&tree, "on"), "on", &value));
    assert_false(value);
    lki_tree_fini(&tree);
}

static void test_type_errors_name_file_line_and_key(void **state)
{
    (void)state;
    lki_tree tree = {0};
    double number;
    int64_t whole;
    bool flag;
    const char *text;
    lkt_ok(parse(&tree, "mnist.yml", "a: 1\nlr: fast\nlist: [1]\nmap: {a: b}\nnone: ~\nquoted: '0.1'\n"));
    lkt_fails(lki_node_float(at(&tree, "lr"), "lr", &number), LK_ERR_CONFIG,
              "mnist.yml:2: lr: expected a number, found \"fast\"");
    lkt_fails(lki_node_int(at(&tree, "list"), "list", &whole), LK_ERR_CONFIG,
              "mnist.yml:3: list: expected an integer, found a list");
    lkt_fails(lki_node_bool(at(&tree, "lr"), "lr", &flag), LK_ERR_CONFIG, "expected a boolean");
    lkt_fails(lki_node_string(at(&tree, "map"), "map", &text), LK_ERR_CONFIG,
              "mnist.yml:4: map: expected a string, found a map");
    lkt_fails(lki_node_string(at(&tree, "none"), "none", &text), LK_ERR_CONFIG, "found nothing");
    lkt_fails(lki_node_float(at(&tree, "quoted"), "quoted", &number), LK_ERR_CONFIG,
              "found the string \"0.1\"");
    lki_tree_fini(&tree);
}

static void test_bad_yaml(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "c.yml: the config is empty"},
        {"# nothing\n", "c.yml: the config is empty"},
        {"~\n", "c.yml: the config is empty"},
        {"- a\n- b\n", "c.yml:1: a config is a map"},
        {"just text\n", "c.yml:1: a config is a map"},
        {"a: 1\nb: [1, 2\nc: 3\n", "c.yml:3:"},
        {"a: 1\n\tb: 2\n", "c.yml:2:"},
        {"a: 1\na: 2\n", "c.yml:2: the key \"a\" is already given in line 1"},
        {"x:\n  b: 1\n  c: 2\n  b: 3\n", "c.yml:4: the key \"b\" is already given in line 2"},
        {"a: *nobody\n", "c.yml:1: alias *nobody: there is no anchor &nobody before it"},
        {"a: &a [*a]\n", "c.yml:1: alias *a"},
        {"a: {<<: 5}\n", "c.yml:1: <<: expected a map"},
        {"? [1, 2]\n: x\n", "c.yml:1: a key must be a word"},
        {"a: 1\n---\nb: 2\n", "c.yml:3: a second document"},
        {"a: \"x\\0y\"\n", "c.yml:1: a string contains a NUL"},
        {"a: 1\nb: \xff\xfe\n", "c.yml:2:"},
        {"a: !mine x\n", "c.yml:1: unknown tag"},
        {"a: 'unclosed\n", "c.yml:"},
        {"a: b: c\n", "c.yml:1:"},
        {"%YAML 9.9\n---\na: 1\n", "c.yml:1:"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lki_tree tree = {0};
        lkt_fails(parse(&tree, "c.yml", cases[i].text), LK_ERR_CONFIG, cases[i].message);
        assert_null(strchr(lk_error(), '\n'));
        lki_tree_fini(&tree);
    }
}

static void test_alias_bomb_is_an_error(void **state)
{
    (void)state;
    lki_tree tree = {0};
    char text[2048];
    int length = snprintf(text, sizeof text, "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for (int i = 1; i < 10; i++) {
        length += snprintf(text + length, sizeof text - (size_t)length, "a%d: &a%d [", i, i);
        for (int k = 0; k < 10; k++)
            length += snprintf(text + length, sizeof text - (size_t)length, "%s*a%d", k ? ", " : "", i - 1);
        length += snprintf(text + length, sizeof text - (size_t)length, "]\n");
    }
    lkt_fails(parse(&tree, "bomb.yml", text), LK_ERR_CONFIG, "more than 200000 values");
    lki_tree_fini(&tree);
}

static void test_deep_nesting_is_an_error(void **state)
{
    (void)state;
    lki_tree tree = {0};
    char text[1200] = "a: ";
    memset(text + 3, '[', 600);
    memset(text + 603, ']', 500);
    lkt_fails(parse(&tree, "deep.yml", text), LK_ERR_CONFIG, "deep.yml:1: nested more than 200 levels deep");
    lki_tree_fini(&tree);
}

static void test_missing_and_unreadable_files(void **state)
{
    (void)state;
    lki_tree tree = {0};
    const char *folder = lkt_scratch_folder("config_tree");
    lkt_fails(lki_tree_read_file(&tree, "no/such.yml"), LK_ERR_NOT_FOUND,
              "no/such.yml: the config could not be opened: No such file");
    lkt_fails(lki_tree_read_file(&tree, folder), LK_ERR_IO, "could not be read: Is a directory");
    lki_tree_fini(&tree);
}

static void check_round_trip(const char *text)
{
    lki_tree tree = {0}, again = {0};
    char *first = NULL, *second = NULL;
    lkt_ok(parse(&tree, "a.yml", text));
    lkt_ok(lki_tree_to_yaml(&tree, &first));
    lkt_ok(parse(&again, "b.yml", first));
    lkt_ok(lki_tree_to_yaml(&again, &second));
    assert_string_equal(first, second);
    lki_free(first);
    lki_free(second);
    lki_tree_fini(&tree);
    lki_tree_fini(&again);
}

static const char tricky[] =
    "z: 1\na: [1, 2.5, 'x']\ns: \"yes\"\nt: yes\nempty: ''\nnone:\nlist:\n- {a: 1, b: [c]}\n"
    "- - deep\n  - er\nmulti: \"a\\nb\\tc\"\n'key: with': \"#no comment\"\nunicode: \"\xc3\xa9\"\n"
    "base: &b {p: 1}\nuse: {<<: *b, q: 2}\nnumber: '1e3'\nspace: ' x '\nlong: \""
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
    " cccccccccccccccccccccccccccccccccccccccccccccccccc dddddddddddddddddddddddd\"\nnothing: []\nnomap: "
    "{}\n";

static void test_writing_keeps_order_and_values(void **state)
{
    (void)state;
    lki_tree tree = {0};
    char *text = NULL;
    check_round_trip(tricky);
    lkt_ok(parse(&tree, "a.yml", "z: 1\na: [1, 2]\ns: \"yes\"\nm: {k: v}\n"));
    lkt_ok(lki_tree_to_yaml(&tree, &text));
    assert_string_equal(text, "z: 1\na: [1, 2]\ns: \"yes\"\nm: {k: v}\n");
    lki_free(text);
    lki_tree_fini(&tree);
}

/* PyYAML must read from our text what it reads from the original. */
static void test_written_text_against_pyyaml(void **state)
{
    (void)state;
    lki_tree tree = {0};
    char *text = NULL, path[1200], command[4096];
    if (system("/usr/bin/python3 -c 'import yaml' 2>/dev/null")) {
        print_message("PyYAML is not installed\n");
        skip();
    }
    snprintf(path, sizeof path, "%s", lkt_scratch_folder("config_pyyaml"));
    lkt_ok(parse(&tree, "a.yml", tricky));
    lkt_ok(lki_tree_to_yaml(&tree, &text));
    for (int i = 0; i < 2; i++) {
        char name[1300];
        snprintf(name, sizeof name, "%s/%d.yml", path, i);
        FILE *file = fopen(name, "w");
        fputs(i ? text : tricky, file);
        fclose(file);
    }
    snprintf(command, sizeof command, "/usr/bin/python3 %s/tests/oracle/config_same.py %s/0.yml %s/1.yml",
             LK_SOURCE_DIR, path, path);
    assert_int_equal(system(command), 0);
    lki_free(text);
    lki_tree_fini(&tree);
}

static void test_running_out_of_memory(void **state)
{
    (void)state;
    lki_tree tree = {0};
    lki_set_allocation_limit(100);
    lkt_fails(parse(&tree, "a.yml", "a: 1\n"), LK_ERR_NOMEM, "out of memory");
    lki_set_allocation_limit(0);
    lki_tree_fini(&tree);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scalars_lists_and_maps),
        cmocka_unit_test(test_json_is_yaml),
        cmocka_unit_test(test_anchors_aliases_and_merge_keys),
        cmocka_unit_test(test_an_anchor_can_be_set_again),
        cmocka_unit_test(test_tags),
        cmocka_unit_test(test_merging_files),
        cmocka_unit_test(test_a_failed_file_leaves_the_tree),
        cmocka_unit_test(test_a_file_that_cannot_be_merged_leaves_the_tree),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_floats),
        cmocka_unit_test(test_booleans_only_where_asked_for),
        cmocka_unit_test(test_type_errors_name_file_line_and_key),
        cmocka_unit_test(test_bad_yaml),
        cmocka_unit_test(test_alias_bomb_is_an_error),
        cmocka_unit_test(test_deep_nesting_is_an_error),
        cmocka_unit_test(test_missing_and_unreadable_files),
        cmocka_unit_test(test_writing_keeps_order_and_values),
        cmocka_unit_test(test_written_text_against_pyyaml),
        cmocka_unit_test(test_running_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
