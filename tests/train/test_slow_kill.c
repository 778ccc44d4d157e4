/* A run that is killed at any moment and started again ends with the bits of a run that was left alone. */
#include "case_resume.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void nap_us(long us)
{
    struct timespec span = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&span, NULL);
}

/* A process of its own, so that killing it leaves this one alone. Batches of a valid loader all stand at the
 * same sample: those that a run had logged before it was killed, but after the place that it goes on from,
 * cannot be told from the others and would be there twice. */
static pid_t start_child(const char *logdir)
{
    pid_t child = fork();
    if (child != 0) return child;
    lkt_run_options run = {
        .logdir = logdir, .autoresume = "last", .save_every_batches = 2, .epoch_logs = true};
    _exit(lkt_whole_run(&run) == LK_OK ? 0 : 1);
}

/* Lets the child work for a while, longer each time, then kills it; true when it had finished by itself. */
static bool run_and_kill(const char *logdir, long us)
{
    int status;
    pid_t child = start_child(logdir);
    assert_true(child > 0);
    nap_us(us);
    bool finished = waitpid(child, &status, WNOHANG) == child;
    if (!finished) {
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        finished = WIFEXITED(status);
    }
    if (finished && WEXITSTATUS(status) != 0) fail_msg("the child failed by itself");
    return finished;
}

static void killed_at_random(void **state)
{
    (void)state;
    static char whole_folder[1024], folder[1024];
    snprintf(whole_folder, sizeof whole_folder, "%s", lkt_scratch_folder("train_kill_whole"));
    lkt_run_options expected = {.logdir = whole_folder, .save_every_batches = 2, .epoch_logs = true};
    lkt_ok(lkt_whole_run(&expected));
    lk_generator generator;
    lk_generator_seed(&generator, (uint64_t)time(NULL));
    for (int round = 0; round < 3; round++) {
        int kills = 0;
        snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("train_kill"));
        while (!run_and_kill(folder, (long)(lk_generator_f64(&generator) * 20000 * (kills + 2)))) kills++;
        lkt_run_options again = {.logdir = folder, .autoresume = "last", .epoch_logs = true};
        lkt_ok(lkt_whole_run(&again)); /* nothing is left to do: it reads the end of the run */
        lkt_same_runs(&again, &expected);
        char command[1200];
        snprintf(command, sizeof command, "! ls -A '%s/checkpoints' | grep -q tmp", folder);
        assert_int_equal(system(command), 0); /* nothing half-written stays */
        print_message("killed %d times, with the seed %llu\n", kills, (unsigned long long)generator.seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
