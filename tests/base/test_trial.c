/* A trial in a child process says whether code works, and this process goes on whatever happens there. */
#include "lktest.h"

#include "base/trial.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static bool answer(void *context)
{
    return *(bool *)context;
}

/* As a processor does with an instruction that it does not have. */
static bool fault(void *context)
{
    (void)context;
#if defined(__x86_64__)
    __asm__ volatile("ud2");
#else
    raise(SIGILL);
#endif
    return true;
}

static bool crash(void *context)
{
    raise(*(int *)context);
    return true;
}

static void what_a_trial_says_is_heard(void **state)
{
    (void)state;
    bool yes = true, no = false;
    assert_true(lki_trial_passes(answer, &yes));
    assert_false(lki_trial_passes(answer, &no));
}

static void a_trial_that_dies_takes_nobody_along(void **state)
{
    (void)state;
    int deadly[] = {SIGILL, SIGSEGV, SIGBUS, SIGABRT, SIGKILL};
    assert_false(lki_trial_passes(fault, NULL));
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
        assert_false(lki_trial_passes(crash, &deadly[i]));
    errno = 0;
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
    assert_int_equal(errno, ECHILD);
}

static void ignore(int signal)
{
    (void)signal;
}

/* The program's own handlers and masks do not keep a faulty trial alive. */
static void a_program_that_handles_faults_itself(void **state)
{
    (void)state;
    struct sigaction own = {.sa_handler = ignore}, before;
    sigset_t mask, old;
    sigemptyset(&mask);
    sigaddset(&mask, SIGILL);
    sigaction(SIGILL, &own, &before);
    sigprocmask(SIG_BLOCK, &mask, &old);
    assert_false(lki_trial_passes(fault, NULL));
    sigprocmask(SIG_SETMASK, &old, NULL);
    sigaction(SIGILL, &before, NULL);
}

static void *allocate_for_ever(void *context)
{
    atomic_bool *stop = context;
    while (!atomic_load(stop)) free(malloc(100));
    return NULL;
}

/* Other threads hold locks of the C library at any moment; a trial takes none. */
static void a_program_with_threads(void **state)
{
    (void)state;
    static atomic_bool stop;
    bool yes = true;
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, allocate_for_ever, &stop), 0);
    for (int i = 0; i < 20; i++) assert_true(lki_trial_passes(answer, &yes));
    atomic_store(&stop, true);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_trial_says_is_heard),
        cmocka_unit_test(a_trial_that_dies_takes_nobody_along),
        cmocka_unit_test(a_program_that_handles_faults_itself),
        cmocka_unit_test(a_program_with_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
