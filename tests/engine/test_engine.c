/* The registry: engines by name. */
#include "lktest.h"

#include <lockstep/sys/engine.h>

static void every_listed_name_opens(void **state)
{
    (void)state;
    bool has_ref = false;
    for (const char *const *name = lk_engine_names(); *name; name++) {
        lk_engine *engine = lk_engine_open(*name, LK_OPTIONS(lk_engine_options, .thread_count = 1));
        lkt_not_null(engine);
        assert_string_equal(lk_engine_name(engine), *name);
        has_ref = has_ref || !strcmp(*name, "ref");
        lk_engine_close(engine);
    }
    assert_true(has_ref);
    lk_engine_close(NULL);
}

static void auto_is_the_first_name(void **state)
{
    (void)state;
    unsetenv("LOCKSTEP_ENGINE");
    static const char *const spellings[] = {"auto", "", NULL};
    for (int i = 0; i < 3; i++) {
        lk_engine *engine = lk_engine_open(spellings[i], NULL);
        lkt_not_null(engine);
        assert_string_equal(lk_engine_name(engine), lk_engine_names()[0]);
        lk_engine_close(engine);
    }
}

static void the_environment_decides_what_auto_is(void **state)
{
    (void)state;
    setenv("LOCKSTEP_ENGINE", "ref", 1);
    lk_engine *engine = lk_engine_open("auto", NULL);
    lkt_not_null(engine);
    assert_string_equal(lk_engine_name(engine), "ref");
    lk_engine_close(engine);
    setenv("LOCKSTEP_ENGINE", "abacus", 1);
    assert_null(lk_engine_open("auto", NULL));
    lkt_contains(lk_error(), "LOCKSTEP_ENGINE: no engine is named \"abacus\"");
    engine = lk_engine_open("ref", NULL); /* a name is not overridden */
    lkt_not_null(engine);
    lk_engine_close(engine);
    unsetenv("LOCKSTEP_ENGINE");
}

static void an_unknown_name_is_an_error_with_the_known_ones(void **state)
{
    (void)state;
    assert_null(lk_engine_open("gpu", NULL));
    lkt_contains(lk_error(), "no engine is named \"gpu\"");
    for (const char *const *name = lk_engine_names(); *name; name++) lkt_contains(lk_error(), *name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_listed_name_opens),
        cmocka_unit_test(auto_is_the_first_name),
        cmocka_unit_test(the_environment_decides_what_auto_is),
        cmocka_unit_test(an_unknown_name_is_an_error_with_the_known_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
