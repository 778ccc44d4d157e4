/* Thousands of damaged configs: each gives a tree or one sentence, never a crash, a leak (run under the
 * sanitizers) or a text that does not read back. The damage is drawn from a fixed seed, so a failure can be
 * repeated. */
#include "lktest.h"

#include "base/memory.h"
#include "config/config.h"
#include "config/tree/tree.h"

#include <lockstep/config.h>

enum { ROUNDS = 4000, CAPACITY = 4096 };

static const char seed_text[] =
    "shared: {n: &n 10, base: &base {lr: 1e-3, betas: [0.9, 0.999]}}\n"
    "runner:\n  _target_: catalyst.runners.SupervisedRunner\n  model:\n    _var_: model\n"
    "    _target_: torch.nn.Sequential\n    args:\n    - _target_: torch.nn.Flatten\n"
    "    - {_target_: torch.nn.Linear, in_features: 784, out_features: *n}\n  input_key: \"features\"\n"
    "run:\n- _call_: train\n  optimizer: {<<: *base, _target_: torch.optim.Adam, params: {_var_: "
    "model.parameters}}\n"
    "  text: |\n    some\n    lines\n  more: >-\n    folded\n    text\n  quoted: 'it''s'\n  verbose: n\n";

static uint64_t random_state = 42;

static uint32_t draw(uint32_t limit)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % limit;
}

/* One change: a byte replaced, removed or added, a piece removed, repeated, or cut off. */
static size_t damage(char *text, size_t length)
{
    static const char alphabet[] = "{}[]:,-&*#?|>!%@'\"\\ \n\t\0\xc3\xff<_y0a~=/";
    if (length < 4) return length;
    size_t at = draw((uint32_t)length), piece = 1 + draw(20);
    if (at + piece > length) piece = length - at;
    switch (draw(6)) {
    case 0: text[at] = alphabet[draw(sizeof alphabet)]; return length;
    case 1: memmove(text + at, text + at + 1, length - at - 1); return length - 1;
    case 2:
        if (length + 1 >= CAPACITY) return length;
        memmove(text + at + 1, text + at, length - at);
        text[at] = alphabet[draw(sizeof alphabet)];
        return length + 1;
    case 3: memmove(text + at, text + at + piece, length - at - piece); return length - piece;
    case 4:
        if (length + piece >= CAPACITY) return length;
        memmove(text + at + piece, text + at, length - at);
        return length + piece;
    default: return draw(8) ? length : at;
    }
}

static bool same(const lki_node *a, const lki_node *b)
{
    if (a->kind != b->kind || a->count != b->count || lki_node_is_null(a) != lki_node_is_null(b))
        return false;
    if (a->kind == LKI_NODE_SCALAR) return lki_node_is_null(a) || !strcmp(a->text, b->text);
    for (int i = 0; i < a->count; i++) {
        if (a->kind == LKI_NODE_MAP && strcmp(a->entries[i].key, b->entries[i].key)) return false;
        if (!same(a->entries[i].value, b->entries[i].value)) return false;
    }
    return true;
}

static void check_reads_back(const lki_tree *tree)
{
    lki_tree again = {0};
    char *text = NULL;
    lkt_ok(lki_tree_to_yaml(tree, &text));
    if (lki_tree_read_text(&again, "again.yml", text, strlen(text)))
        fail_msg("%s\nfrom\n%s", lk_error(), text);
    if (!same(tree->root, again.root)) fail_msg("does not read back:\n%s", text);
    lki_free(text);
    lki_tree_fini(&again);
}

static void check_error_sentence(void)
{
    assert_true(strlen(lk_error()) > 0);
    assert_null(strchr(lk_error(), '\n'));
    lkt_contains(lk_error(), "fuzz.yml");
}

static void test_damaged_configs(void **state)
{
    (void)state;
    char text[CAPACITY];
    int read = 0;
    for (int round = 0; round < ROUNDS; round++) {
        size_t length = sizeof seed_text - 1;
        memcpy(text, seed_text, length);
        for (uint32_t i = 0, changes = 1 + draw(6); i < changes; i++) length = damage(text, length);
        lk_config *config = lk_config_create();
        if (lki_tree_read_text(&config->tree, "fuzz.yml", text, length))
            check_error_sentence();
        else {
            read++;
            check_reads_back(&config->tree);
            if (lk_config_check(config)) check_error_sentence();
        }
        lk_config_free(config);
    }
    /* The damage must leave enough intact for the rest of the test to mean something. */
    assert_true(read > ROUNDS / 10);
}

static void test_damaged_overrides(void **state)
{
    (void)state;
    static const char *const samples[] = {"run/0/optimizer/lr=1e-3:float",
                                          "runner/model/args/1/in_features=5", "a/b=[1, {c: d}]"};
    lk_config *config = lk_config_create();
    lkt_ok(lk_config_load_text(config, "fuzz.yml", seed_text));
    for (int round = 0; round < ROUNDS; round++) {
        char text[CAPACITY];
        size_t length = strlen(samples[round % 3]);
        memcpy(text, samples[round % 3], length);
        for (uint32_t i = 0, changes = 1 + draw(4); i < changes; i++) length = damage(text, length);
        text[length] = 0;
        if (lk_config_override(config, text)) assert_true(strlen(lk_error()) > 0);
    }
    lk_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_damaged_configs),
                                       cmocka_unit_test(test_damaged_overrides)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
