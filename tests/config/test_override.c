/* --a/b/0=VALUE[:type] over a tree. */
#include "lktest.h"

#include "base/memory.h"
#include "config/tree/tree.h"

static const char config[] = "runner: {model: {lr: 1}, engine: ~}\nrun:\n- _call_: train\n  num_epochs: 1\n";

static lk_status override(lki_tree *tree, const char *assignment)
{
    char name[256];
    snprintf(name, sizeof name, "--%s", assignment);
    return lki_tree_override(tree, name, assignment);
}

static void check(const char *assignment, const char *expected)
{
    lki_tree tree = {0};
    char *text = NULL;
    lkt_ok(lki_tree_read_text(&tree, "a.yml", config, strlen(config)));
    lkt_ok(override(&tree, assignment));
    lkt_ok(lki_tree_to_yaml(&tree, &text));
    if (!strstr(text, expected)) fail_msg("after --%s: no \"%s\" in\n%s", assignment, expected, text);
    lki_free(text);
    lki_tree_fini(&tree);
}

static void test_values(void **state)
{
    (void)state;
    check("runner/model/lr=0.5", "lr: 0.5");
    check("run/0/num_epochs=8", "num_epochs: 8");
    check("run/0/num_epochs=8:int", "num_epochs: 8\n");
    check("runner/model/lr=1e-3:float", "lr: 1e-3");
    check("runner/model/on=y:bool", "on: y");
    check("runner/model/name=5:str", "name: \"5\"");
    check("runner/model/name=:str", "name: \"\"");
    check("runner/model/topk=[1,3]", "topk: [1, 3]");
    check("runner/model/topk=[1, 3]:list", "topk: [1, 3]");
    check("runner/model/d={a: 1}:dict", "d: {a: 1}");
    check("run/0/url=http://host:80", "url: http://host:80");
    check("runner/model/equation=a=b", "equation: a=b");
    check("runner/model/lr=", "lr: null");
    check("runner/model=~", "model: ~");
}

static void test_missing_maps_are_made(void **state)
{
    (void)state;
    check("runner/engine/_target_=CPUEngine", "_target_: CPUEngine");
    check("runner/deep/er/key=1", "er:");
    check("run/0/optimizer/lr=1", "lr: 1");
    check("/runner/model//lr=3", "lr: 3");
}

static void test_short_paths(void **state)
{
    (void)state;
    lki_tree tree = {0};
    check("model/lr=7", "model: {lr: 7}");
    check("num_epochs=9", "  num_epochs: 9");
    check("scheduler/gamma=0.5", "  scheduler:\n    gamma: 0.5");
    check("hparams={}", "  hparams: {}");
    static const char two[] = "run: [{_call_: train, lr: 1}, {_call_: train, lr: 2}]";
    lkt_ok(lki_tree_read_text(&tree, "a.yml", two, strlen(two)));
    lkt_fails(override(&tree, "lr=3"), LK_ERR_CONFIG, "--lr=3: several calls have \"lr\": write run/0/lr");
    lkt_fails(override(&tree, "scheduler/gamma=3"), LK_ERR_CONFIG,
              "several calls take \"scheduler\": write run/0/scheduler");
    lki_tree_fini(&tree);
}

/* Keys at the top hold anchors and named objects; those that are there can be changed. */
static void test_keys_at_the_top(void **state)
{
    (void)state;
    lki_tree tree = {0};
    static const char shared[] = "shared: {width: 5}\nrunner: {_target_: SupervisedRunner}\nrun: []";
    lkt_ok(lki_tree_read_text(&tree, "a.yml", shared, strlen(shared)));
    lkt_ok(override(&tree, "shared/width=7"));
    lkt_ok(override(&tree, "shared/depth=7"));
    lkt_ok(override(&tree, "engine/_target_=CPUEngine"));
    assert_non_null(lki_node_get(lki_node_get(tree.root, "runner"), "engine"));
    lkt_fails(override(&tree, "sharde/width=7"), LK_ERR_CONFIG, "did you mean \"shared\"?");
    lki_tree_fini(&tree);
}

/* The configs that are merged, the overrides that come after them, and what the aliases say then. */
static void check_text(const char *first, const char *second, const char *const *overrides,
                       const char *expected)
{
    lki_tree tree = {0};
    char *text = NULL;
    lkt_ok(lki_tree_read_text(&tree, "a.yml", first, strlen(first)));
    if (second) lkt_ok(lki_tree_read_text(&tree, "b.yml", second, strlen(second)));
    for (; overrides && *overrides; overrides++) lkt_ok(override(&tree, *overrides));
    lkt_ok(lki_tree_to_yaml(&tree, &text));
    assert_string_equal(text, expected);
    lki_free(text);
    lki_tree_fini(&tree);
}

#define OVERRIDES(...)                                                                                       \
    (const char *const[])                                                                                    \
    {                                                                                                        \
        __VA_ARGS__, NULL                                                                                    \
    }

static void test_aliases_follow_their_anchor(void **state)
{
    (void)state;
    static const char values[] = "shared: {lr: &lr 1}\na: {lr: *lr}\nb: [*lr]\n";
    check_text(values, NULL, OVERRIDES("shared/lr=5"), "shared: {lr: 5}\na: {lr: 5}\nb: [5]\n");
    check_text(values, "shared: {lr: 5}\n", NULL, "shared: {lr: 5}\na: {lr: 5}\nb: [5]\n");
    check_text(values, "shared: {lr: &lr 5}\nc: *lr\n", OVERRIDES("shared/lr=6"),
               "shared: {lr: 6}\na: {lr: 6}\nb: [6]\nc: 6\n");
    check_text(values, NULL, OVERRIDES("shared/lr=[1, 2]"),
               "shared: {lr: [1, 2]}\na: {lr: [1, 2]}\nb: [[1, 2]]\n");
    /* One that was overridden itself is on its own, whichever came first. */
    check_text(values, NULL, OVERRIDES("a/lr=7"), "shared: {lr: 1}\na: {lr: 7}\nb: [1]\n");
    check_text(values, NULL, OVERRIDES("a/lr=7", "shared/lr=5"), "shared: {lr: 5}\na: {lr: 7}\nb: [5]\n");
    check_text(values, "b: [8]\n", OVERRIDES("shared/lr=5"), "shared: {lr: 5}\na: {lr: 5}\nb: [8]\n");
}

static void test_aliases_of_maps_and_lists(void **state)
{
    (void)state;
    static const char maps[] = "base: &base {lr: 1, m: 2}\na: *base\nb: {<<: *base, m: 9}\nc: [*base]\n";
    check_text(maps, NULL, OVERRIDES("base/lr=5"),
               "base: {lr: 5, m: 2}\na: {lr: 5, m: 2}\nb: {lr: 5, m: 9}\nc: [{lr: 5, m: 2}]\n");
    check_text(maps, NULL, OVERRIDES("base/eps=3", "a/lr=6", "base/m=4"),
               "base: {lr: 1, m: 4, eps: 3}\na: {lr: 6, m: 4, eps: 3}\nb: {lr: 1, m: 9, eps: 3}\n"
               "c: [{lr: 1, m: 4, eps: 3}]\n");
    check_text(maps, NULL, OVERRIDES("a/lr=6", "base={lr: 7, z: 8}", "b/lr=5", "c/0/z=1"),
               "base: {lr: 7, z: 8}\na: {lr: 6, z: 8}\nb: {lr: 5, z: 8, m: 9}\nc: [{lr: 7, z: 1}]\n");
    check_text(maps, "b: {lr: 3}\nbase: {m: 8}\na: {k: 1}\n", NULL,
               "base: {lr: 1, m: 8}\na: {lr: 1, m: 8, k: 1}\nb: {lr: 3, m: 9}\nc: [{lr: 1, m: 8}]\n");
    /* A file's merge keys and aliases over another's map. */
    check_text("a: {lr: 1, m: 2}\nb: {lr: 1}\n", "o: &o {lr: 5}\na: {<<: *o}\nb: *o\n", OVERRIDES("o/lr=6"),
               "a: {lr: 6, m: 2}\nb: {lr: 6}\no: {lr: 6}\n");
    static const char lists[] = "l: &l [1, 2]\na: *l\nb: {x: *l}\n";
    check_text(lists, NULL, OVERRIDES("a/0=7", "l/1=5"), "l: [1, 5]\na: [7, 5]\nb: {x: [1, 5]}\n");
    /* Aliases of what has aliases in it. */
    check_text("n: &n 1\nm: &m {k: *n}\na: {x: *m}\n", NULL, OVERRIDES("a/x/y=2", "n=5"),
               "n: 5\nm: {k: 5}\na: {x: {k: 5, y: 2}}\n");
}

/* Over another file's map, `<<` means what it means in a file alone: one value for a key, which is the map's
 * own or that of the first map which has it. */
static void test_merge_keys_over_another_file(void **state)
{
    (void)state;
    static const char base[] = "r: {m: {t: L, n: 4}, e: {t: C}}\n";
    check_text(base, "d: &d {e: {t: D, w: 2}}\nr: {<<: *d, e: {t: C}}\n", NULL,
               "r: {m: {t: L, n: 4}, e: {t: C}}\nd: {e: {t: D, w: 2}}\n");
    check_text(base, "a: &a {m: {t: L}}\nb: &b {m: {t: L, bias: n}, x: 1}\nr: {<<: [*a, *b]}\n", NULL,
               "r: {m: {t: L, n: 4}, e: {t: C}, x: 1}\na: {m: {t: L}}\nb: {m: {t: L, bias: n}, x: 1}\n");
    check_text(base, "a: &a {m: {k: 1}}\nb: &b {<<: *a, m: {j: 2}}\nr: {<<: *b}\n",
               OVERRIDES("b/m/j=3", "a/m/k=4"),
               "r: {m: {t: L, n: 4, j: 3}, e: {t: C}}\na: {m: {k: 4}}\nb: {m: {j: 3}}\n");
    /* New keys stand in the order of a file alone. */
    check_text("r: {}\n", "a: &a {x: 1, y: 2}\nr: {z: 3, y: 4, <<: *a}\n", NULL,
               "r: {x: 1, y: 4, z: 3}\na: {x: 1, y: 2}\n");
}

/* A map that was an alias keeps its own keys when what it stood for is a map no longer. */
static void test_an_alias_that_has_keys_of_its_own(void **state)
{
    (void)state;
    static const char aliases[] = "a: &a {e: {t: C, k: 1}}\nr: {<<: *a}\n";
    check_text(aliases, "r: {e: {t: D}}\n", OVERRIDES("a/e=5"), "a: {e: 5}\nr: {e: {t: D}}\n");
    check_text(aliases, "r: {e: {t: D}}\n", OVERRIDES("a/e=[{q: 1}]", "r/e/q=2"),
               "a: {e: [{q: 1}]}\nr: {e: {t: D, q: 2}}\n");
    check_text(aliases, "r: {e: {t: D}}\n", OVERRIDES("a/e=5", "a/e={z: 1}"),
               "a: {e: {z: 1}}\nr: {e: {z: 1, t: D}}\n");
}

static void test_what_an_anchor_cannot_become(void **state)
{
    (void)state;
    lki_tree tree = {0};
    static const char text[] = "base: &base {lr: 1}\na: {<<: *base}\n";
    lkt_ok(lki_tree_read_text(&tree, "a.yml", text, strlen(text)));
    lkt_fails(override(&tree, "base=[1]"), LK_ERR_CONFIG,
              "--base=[1]: expected a map: the one that `<<` in a.yml:2 takes keys from");
    lkt_ok(override(&tree, "base/lr=5"));
    assert_string_equal(lki_node_get(lki_node_get(tree.root, "a"), "lr")->text, "5");
    lki_tree_fini(&tree);
}

/* A name in place of an object's map; where it drops nothing, it will do. */
static void test_names_of_components(void **state)
{
    (void)state;
    lki_tree tree = {0};
    static const char text[] = "runner: {_target_: SupervisedRunner}\nrun:\n- _call_: train\n"
                               "  optimizer: &o {_target_: Adam, lr: 1}\n  criterion: {_target_: MSELoss}\n"
                               "  other: *o\n  more: *o\n";
    lkt_ok(lki_tree_read_text(&tree, "a.yml", text, strlen(text)));
    lkt_fails(override(&tree, "optimizer=SGD"), LK_ERR_CONFIG,
              "--optimizer=SGD: the config has a map there: --optimizer/_target_=SGD changes its component "
              "alone, --optimizer={_target_: SGD, ...} all of it");
    lkt_fails(override(&tree, "other=SGD"), LK_ERR_CONFIG, "the config has a map there");
    lkt_ok(override(&tree, "run/0/other=SGD"));
    lkt_ok(override(&tree, "criterion=L1Loss"));
    lkt_ok(override(&tree, "optimizer/_target_=SGD"));
    lkt_ok(override(&tree, "optimizer={_target_: SGD, lr: 2}"));
    lkt_ok(override(&tree, "run/0/more/lr=5"));
    lkt_ok(override(&tree, "optimizer=~"));
    lki_tree_fini(&tree);
}

static void test_overriding_an_empty_tree(void **state)
{
    (void)state;
    lki_tree tree = {0};
    char *text = NULL;
    lkt_ok(override(&tree, "a/b=1"));
    lkt_ok(lki_tree_to_yaml(&tree, &text));
    assert_string_equal(text, "a:\n  b: 1\n");
    lki_free(text);
    lki_tree_fini(&tree);
}

static void test_wrong_overrides(void **state)
{
    (void)state;
    static const struct {
        const char *assignment, *message;
    } cases[] = {
        {"runner/lr", "--runner/lr: expected --path/to/key=value"},
        {"run/5/x=1", "--run/5/x=1: index 5 is beyond the list's 1 items"},
        {"run/first/x=1", "--run/first/x=1: \"first\" stands where the config has a list"},
        {"run/-1/x=1", "give an index"},
        {"runner/lr=abc:int", "--runner/lr=abc:int: lr: expected an integer, found \"abc\""},
        {"runner/lr=abc:float", "expected a number"},
        {"runner/lr=2:bool", "expected a boolean"},
        {"runner/lr=2:list", "lr: expected a list"},
        {"runner/lr=[1]:dict", "lr: expected a map"},
        {"runner/lr=[1, 2", "--runner/lr=[1, 2: "},
        {"runner/lr=*x", "alias *x"},
        {"optimzer/lr=0.5", "--optimzer/lr=0.5: \"optimzer\" is no key of the config, its runner or its "
                            "calls; did you mean \"optimizer\"?"},
        {"runer/model/lr=0.5", "did you mean \"runner\"?"},
        {"foo/bar=1", "--foo/bar=1: \"foo\" is no key of the config, its runner or its calls"},
        {"model=Linear", "--model=Linear: the config has a map there: set a key below it, or a whole map"},
        {"=5", "the path is empty"},
        {"///=5", "the path is empty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lki_tree tree = {0};
        lkt_ok(lki_tree_read_text(&tree, "a.yml", config, strlen(config)));
        lkt_fails(override(&tree, cases[i].assignment), LK_ERR_CONFIG, cases[i].message);
        lki_tree_fini(&tree);
    }
}

/* Nothing of a path that was opened stays when its end or its value is wrong. */
static void test_a_failed_override_leaves_the_tree(void **state)
{
    (void)state;
    static const char *const wrong[] = {"run/0/num_epochs/3/x=abc:int", "run/0/scheduler/gamma=x:int",
                                        "run/0/num_epochs/x/y=[1", "runner/engine/a=*none", "model=Linear"};
    lki_tree tree = {0}, empty = {0};
    char *text = NULL;
    lkt_ok(lki_tree_read_text(&tree, "a.yml", config, strlen(config)));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        lkt_fails(override(&tree, wrong[i]), LK_ERR_CONFIG, wrong[i]);
    lkt_ok(override(&tree, "num_epochs=2"));
    lkt_ok(lki_tree_to_yaml(&tree, &text));
    assert_string_equal(text,
                        "runner: {model: {lr: 1}, engine: ~}\nrun:\n- _call_: train\n  num_epochs: 2\n");
    lki_free(text);
    lki_tree_fini(&tree);
    lkt_fails(override(&empty, "a/b=x:int"), LK_ERR_CONFIG, "b: expected an integer");
    assert_null(empty.root);
    lkt_ok(override(&empty, "c=1"));
    assert_null(lki_node_get(empty.root, "a"));
    lki_tree_fini(&empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_missing_maps_are_made),
        cmocka_unit_test(test_short_paths),
        cmocka_unit_test(test_overriding_an_empty_tree),
        cmocka_unit_test(test_names_of_components),
        cmocka_unit_test(test_aliases_follow_their_anchor),
        cmocka_unit_test(test_aliases_of_maps_and_lists),
        cmocka_unit_test(test_merge_keys_over_another_file),
        cmocka_unit_test(test_an_alias_that_has_keys_of_its_own),
        cmocka_unit_test(test_what_an_anchor_cannot_become),
        cmocka_unit_test(test_wrong_overrides),
        cmocka_unit_test(test_a_failed_override_leaves_the_tree),
        cmocka_unit_test(test_keys_at_the_top),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
