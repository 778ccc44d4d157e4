/* Attempts that are killed: before their work is done they are made again, afterwards they are not. */
#include "lktest.h"

#include "launch/restart.h"

#include <signal.h>

static int tries(const char *path)
{
    int count = 0;
    FILE *file = fopen(path, "r");
    for (int c; file && (c = fgetc(file)) != EOF;) count++;
    if (file) fclose(file);
    return count;
}

static void note_try(const char *path)
{
    FILE *file = fopen(path, "a");
    fputc('.', file);
    fclose(file);
}

typedef struct plan {
    char path[1100];
    int killed_tries;
    int expected, trained; /* runs */
    bool is_done;
} plan;

static int attempt(void *context, const lki_attempt_place *place)
{
    const plan *p = context;
    (void)place;
    note_try(p->path);
    lki_attempt_expect(p->expected);
    for (int i = 0; i < p->trained; i++) lki_attempt_has_trained();
    if (p->is_done) lki_attempt_is_done();
    if (tries(p->path) <= p->killed_tries) raise(SIGKILL);
    return 0;
}

static void expect_tries(plan p, const char *name, lk_status status, int exit_code, int count)
{
    int code = -1;
    snprintf(p.path, sizeof p.path, "%s/tries", lkt_scratch_folder(name));
    remove(p.path);
    assert_int_equal(lki_run_with_restarts(&code, attempt, &p, 3, 1), status);
    assert_int_equal(tries(p.path), count);
    if (!status) assert_int_equal(code, exit_code);
    if (status) lkt_contains(lk_error(), "rank 1 (process ");
}

static void a_killed_attempt_is_made_again(void **state)
{
    (void)state;
    expect_tries((plan){.killed_tries = 2}, "restart_again", LK_OK, 0, 3);
    expect_tries((plan){.killed_tries = 9}, "restart_gives_up", LK_ERR_PEER, 0, 4);
}

static void one_whose_work_is_done_is_not(void **state)
{
    (void)state;
    expect_tries((plan){.killed_tries = 9, .is_done = true}, "restart_done", LK_OK, 0, 1);
    expect_tries((plan){.killed_tries = 9, .expected = 2, .trained = 2}, "restart_trained", LK_OK, 0, 1);
    expect_tries((plan){.killed_tries = 2, .expected = 2, .trained = 1}, "restart_half", LK_OK, 0, 3);
    /* What follows the trainings would be lost. */
    expect_tries((plan){.killed_tries = 1, .expected = 0, .trained = 2}, "restart_more", LK_OK, 0, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_attempt_is_made_again),
        cmocka_unit_test(one_whose_work_is_done_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
