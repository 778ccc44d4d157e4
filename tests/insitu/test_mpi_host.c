/* Comms of programs that have MPI themselves, under real mpiruns of both MPI libraries: see host_mpi.c. */
#include "hosts.h"

static void a_host_with_open_mpi(void **state)
{
    (void)state;
    assert_int_equal(run_host("openmpi", 4, "host_mpi", "funneled"), 0);
}

static void a_host_with_mpich(void **state)
{
    (void)state;
    assert_int_equal(run_host("mpich", 4, "host_mpi", "funneled"), 0);
}

static void threads_that_take_turns(void **state)
{
    (void)state;
    assert_int_equal(run_host("mpich", 4, "host_mpi", "serialized"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_with_open_mpi),
        cmocka_unit_test(a_host_with_mpich),
        cmocka_unit_test(threads_that_take_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
