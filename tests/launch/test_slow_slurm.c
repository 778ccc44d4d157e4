/* The launcher under a real Slurm: two slurmd daemons of this machine, started and stopped by
 * slurm_cluster.sh. */
#include "lktest.h"

#include <sys/wait.h>

enum { CANNOT_RUN = 77 };

static void under_slurm(void **state)
{
    (void)state;
    int status = system("bash '" LK_SOURCE_DIR "/tests/launch/slurm_cluster.sh' '" LK_BUILD_DIR
                        "/tests/launch_test_connect' 1>&2");
    if (WIFEXITED(status) && WEXITSTATUS(status) == CANNOT_RUN) skip();
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(under_slurm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
