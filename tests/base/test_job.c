/* Whether this process has others like it on its host, as launchers say it. */
#include "lktest.h"

#include "base/job.h"

static void clear(void)
{
    static const char *const names[] = {"WORLD_SIZE",
                                        "LOCAL_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "PMI_SIZE",
                                        "MPI_LOCALNRANKS",
                                        "SLURM_NTASKS",
                                        "SLURM_STEP_TASKS_PER_NODE",
                                        "SLURM_TASKS_PER_NODE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
}

static void launchers_say_it(void **state)
{
    (void)state;
    static const struct {
        const char *all, *count, *here, *count_here;
        bool others;
    } cases[] = {
        {"WORLD_SIZE", "1", NULL, NULL, false},
        {"WORLD_SIZE", "2", NULL, NULL, true}, /* by hand: perhaps */
        {"WORLD_SIZE", "8", "LOCAL_WORLD_SIZE", "4", true},
        {"WORLD_SIZE", "8", "LOCAL_WORLD_SIZE", "1", false},
        {"OMPI_COMM_WORLD_SIZE", "2", "OMPI_COMM_WORLD_LOCAL_SIZE", "2", true},
        {"OMPI_COMM_WORLD_SIZE", "2", "OMPI_COMM_WORLD_LOCAL_SIZE", "1", false},
        {"PMI_SIZE", "2", "MPI_LOCALNRANKS", "1", false},
        {"SLURM_NTASKS", "2", "SLURM_STEP_TASKS_PER_NODE", "1(x2)", false},
        {"SLURM_NTASKS", "5", "SLURM_TASKS_PER_NODE", "2(x2),1", true},
        {"SLURM_NTASKS", "2", NULL, NULL, true},
        {"SLURM_NTASKS", "many", NULL, NULL, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        clear();
        setenv(cases[i].all, cases[i].count, 1);
        if (cases[i].here) setenv(cases[i].here, cases[i].count_here, 1);
        assert_int_equal(lki_job_has_others(), cases[i].others);
    }
    clear();
    assert_false(lki_job_has_others());
    lki_job_expect_others();
    assert_true(lki_job_has_others());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(launchers_say_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
