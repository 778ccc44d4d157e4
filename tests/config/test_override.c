/* --a/b/0=VALUE[:type] over a tree. */
#include "lktest.h"

#include "base/memory.h"
#include "config/tree.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),          cmocka_unit_test(test_missing_maps_are_made),
        cmocka_unit_test(test_short_paths),     cmocka_unit_test(test_overriding_an_empty_tree),
        cmocka_unit_test(test_wrong_overrides), cmocka_unit_test(test_keys_at_the_top),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
