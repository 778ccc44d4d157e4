/* examples/insitu/closure.c and closure.f90 under real mpiruns of both MPI libraries, on 4 ranks of which 2
 * learn. Their loss curves are the same, bit for bit, in both languages, with both libraries and after a
 * restart, and those of PyTorch in one process (tests/oracle/insitu_closure.py). */
#include "hosts.h"

enum { STEPS = 60, STOP = 25 };

/* Runs the steps from `first` to `last` in the scratch folder and returns what was printed, in `out`. */
static void run_steps(const char *library, const char *program, int first, int last, const char *out)
{
    char arguments[900], name[80];
    snprintf(arguments, sizeof arguments, "%d %d > %s", first, last, out);
    snprintf(name, sizeof name, "closure_%s", program);
    assert_int_equal(run_host(library, 4, name, arguments), 0);
}

static void enter(const char *name)
{
    if (chdir(lkt_scratch_folder(name))) fail_msg("chdir");
}

static void same(const char *a, const char *b)
{
    char command[300];
    snprintf(command, sizeof command, "cmp %s %s", a, b);
    assert_int_equal(system(command), 0);
}

static void equals_pytorch(const char *out)
{
    FILE *golden = fopen(LK_SOURCE_DIR "/tests/golden/insitu/closure.txt", "r"), *found = fopen(out, "r");
    assert_true(golden && found);
    for (int i = 1; i <= STEPS; i++) {
        int number, other;
        double expected, loss;
        assert_int_equal(fscanf(golden, "%d %lf", &number, &expected), 2);
        assert_int_equal(fscanf(found, "%d %lf", &other, &loss), 2);
        assert_true(number == i && other == i);
        if (!(fabs(loss - expected) <= 1e-10 * fabs(expected)))
            fail_msg("step %d: the loss is %.17g, PyTorch's is %.17g", i, loss, expected);
    }
    fclose(golden);
    fclose(found);
}

/* The losses alone: the last line is about the whole run. */
static void keep_losses(const char *first, const char *second, const char *out)
{
    char command[300];
    snprintf(command, sizeof command, "cat %s %s | grep -v after > %s", first, second, out);
    assert_int_equal(system(command), 0);
}

static void stop_and_restart(const char *library, const char *program)
{
    run_steps(library, program, 0, STEPS, "whole.txt");
    equals_pytorch("whole.txt");
    if (rename("closure.safetensors", "whole.safetensors")) fail_msg("rename");
    run_steps(library, program, 0, STOP, "first.txt");
    run_steps(library, program, STOP, STEPS, "second.txt");
    keep_losses("whole.txt", "", "whole_losses.txt");
    keep_losses("first.txt", "second.txt", "losses.txt");
    same("losses.txt", "whole_losses.txt");
    same("closure.safetensors", "whole.safetensors");
}

static void in_c(void **state)
{
    (void)state;
    enter("closure_c");
    stop_and_restart("openmpi", "c");
}

static void in_fortran(void **state)
{
    (void)state;
    enter("closure_fortran");
    stop_and_restart("openmpi", "fortran");
    run_steps("openmpi", "c", 0, STEPS, "c.txt");
    same("whole.txt", "c.txt");
}

static void with_mpich(void **state)
{
    (void)state;
    enter("closure_mpich");
    run_steps("mpich", "c", 0, STEPS, "c.txt");
    equals_pytorch("c.txt");
    run_steps("mpich", "fortran", 0, STEPS, "fortran.txt");
    same("fortran.txt", "c.txt");
}

/* mpi_f08, and ranks with 1, 7, 30 and no rows. */
static void mpi_f08(void **state)
{
    (void)state;
    assert_int_equal(run_host("openmpi", 4, "host_f08", LK_SOURCE_DIR "/tests/golden/train/uneven.txt"), 0);
    assert_int_equal(run_host("mpich", 4, "host_f08", LK_SOURCE_DIR "/tests/golden/train/uneven.txt"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_c),
        cmocka_unit_test(in_fortran),
        cmocka_unit_test(with_mpich),
        cmocka_unit_test(mpi_f08),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
