/* A GPU that there are no kernels for is named with what it lacks, and nobody picks it by himself. Runs on
 * the emulated GPU, which can be of any compute capability. */
#include "lktest.h"

#include <lockstep/sys/engine.h>

static void skip_without_an_old_gpu(void)
{
    const char *capability = getenv("LOCKSTEP_EMULATED_CAPABILITY");
    if (capability && atoi(capability) < 80) return;
    print_message("no emulated GPU of a compute capability below 8.0\n");
    skip();
}

static void is_refused_by_name(void **state)
{
    (void)state;
    skip_without_an_old_gpu();
    assert_null(lk_engine_open("cuda", NULL));
    assert_non_null(strstr(lk_error(), "has compute capability 7.5"));
    assert_non_null(strstr(lk_error(), "needs 8.0"));
    assert_null(strchr(lk_error(), '\n'));
}

static void is_not_picked(void **state)
{
    (void)state;
    skip_without_an_old_gpu();
    unsetenv("LOCKSTEP_ENGINE");
    lk_engine *engine = lk_engine_open("auto", NULL);
    lkt_not_null(engine);
    assert_string_equal(lk_engine_name(engine), "cpu");
    lk_engine_close(engine);
    for (const char *const *name = lk_engine_names(); *name; name++) assert_string_not_equal(*name, "cuda");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_refused_by_name),
        cmocka_unit_test(is_not_picked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
