/* The nearest known name. */
#include "lktest.h"

#include "base/suggest.h"

static const char *suggest(const char *wanted)
{
    static const char *const names[] = {"lr",     "momentum", "weight_decay", "in_features", "out_features",
                                        "Linear", NULL};
    static char text[128];
    lki_suggestion near = {.wanted = wanted};
    for (int i = 0; names[i]; i++) lki_suggest_offer(&near, names[i]);
    return lki_suggest_text(&near, text, sizeof text);
}

static void test_distance(void **state)
{
    (void)state;
    assert_int_equal(lki_edit_distance("same", "same"), 0);
    assert_int_equal(lki_edit_distance("same", "Same"), 1);
    assert_int_equal(lki_edit_distance("lr", "rl"), 2);
    assert_int_equal(lki_edit_distance("abc", ""), 6);
    assert_int_equal(lki_edit_distance("kitten", "sitting"), 6);
}

static void test_near_names(void **state)
{
    (void)state;
    assert_string_equal(suggest("in_featurs"), "; did you mean \"in_features\"?");
    assert_string_equal(suggest("Wieght_decay"), "; did you mean \"weight_decay\"?");
    assert_string_equal(suggest("linear"), "; did you mean \"Linear\"?");
    assert_string_equal(suggest("ln"), "; did you mean \"lr\"?");
}

static void test_far_names(void **state)
{
    (void)state;
    char long_name[400];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = 0;
    assert_string_equal(suggest("banana"), "");
    assert_string_equal(suggest(long_name), "");
    assert_string_equal(suggest(""), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distance),
        cmocka_unit_test(test_near_names),
        cmocka_unit_test(test_far_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
