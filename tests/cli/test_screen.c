/* What people see of `lockstep run` and `lockstep watch`: on a terminal, in a pipe, and after Ctrl-C. */
#include "run_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define DIGITS "run -C " LK_SOURCE_DIR "/examples/mnist.yml "

static int count_of(const char *text, const char *fragment)
{
    int count = 0;
    for (; (text = strstr(text, fragment)); text += strlen(fragment)) count++;
    return count;
}

/* What a line for the shell writes to a terminal of 100 columns; static text. $L is the command. */
static const char *on_terminal(const char *line)
{
    static char text[1 << 18];
    if (system("command -v script > /dev/null")) {
        print_message("skipped: script is not installed\n");
        skip();
    }
    setenv("L", LK_BUILD_DIR "/lockstep", 1);
    lkt_shell_in(folder, "script -qec 'stty cols 100 rows 30; %s' typescript > /dev/null < /dev/null", line);
    read_whole(path_of("typescript"), text, sizeof text);
    return text;
}

static void test_in_a_pipe(void **state)
{
    (void)state;
    enter("cli_screen_pipe");
    const said *r = lockstep_in(folder, DIGITS "-e 2");
    assert_int_equal(r->exit_code, 0);
    lkt_contains(r->out, ": Sequential with 7,850 parameters; device ");
    lkt_contains(r->out, "  epoch 2/2  train loss ");
    assert_int_equal(count_of(r->out, "  epoch "), 2);
    lkt_contains(r->out, "\nbest: epoch ");
    lkt_contains(r->out, "\ntrain loss: ");
    lkt_contains(r->out, "\nbest checkpoint: logs/checkpoints/model.best.safetensors\n");
    assert_null(strchr(r->out, '\x1b'));
    assert_null(strchr(r->out, '\r'));
}

/* The line that evaluates the best checkpoint does so. */
static void test_the_command_that_evaluates(void **state)
{
    (void)state;
    char command[4096], result[8192];
    enter("cli_screen_evaluate");
    const said *r = lockstep_in(folder, DIGITS "-e 1 --logdir \"it's here\"");
    assert_int_equal(r->exit_code, 0);
    const char *line = strstr(r->out, "evaluate it: ");
    lkt_not_null(line);
    line += strlen("evaluate it: ");
    snprintf(command, sizeof command, "%.*s", (int)strcspn(line, "\n"), line);
    lkt_contains(command, " -C 'it'\\''s here/config.yml' ");
    lkt_shell_in(folder, "%s > result.txt 2> err.txt", command);
    read_whole(path_of("result.txt"), result, sizeof result);
    lkt_contains(result, "accuracy01: ");
}

static void test_quiet(void **state)
{
    (void)state;
    enter("cli_screen_quiet");
    const said *r = lockstep_in(folder, DIGITS "-q -e 1");
    assert_int_equal(r->exit_code, 0);
    assert_string_equal(r->out, "");
    assert_string_equal(r->err, "");
    r = lockstep_in(folder, DIGITS "-e 1 --run/0/verbose=n --overwrite");
    assert_int_equal(r->exit_code, 0);
    assert_string_equal(r->out, "");
    check_refused(folder, DIGITS "-q --run/0/valid_loader=other", 2, "other");
}

static void test_on_a_terminal(void **state)
{
    (void)state;
    enter("cli_screen_terminal");
    const char *text = on_terminal("TERM=xterm $L " DIGITS "-e 2");
    lkt_contains(text, "1/2 * Epoch (train):");
    lkt_contains(text, "it/s, loss=");
    lkt_contains(text, "\x1b[1mepoch 1/2\x1b[0m  \x1b[2mtrain loss\x1b[0m 0.");
    lkt_contains(text, " \x1b[1;32m*\x1b[0m");
    lkt_contains(text, "best checkpoint: ");
    /* The header breaks between words. */
    const char *header = strstr(text, "lockstep 0");
    lkt_not_null(header);
    assert_true(strcspn(header, "\r\n") <= 100);
    assert_true(strncmp(header + strcspn(header, "\r\n"), "\r\n", 2) == 0);
}

static void test_colours_that_nobody_wants(void **state)
{
    (void)state;
    enter("cli_screen_plain");
    const char *text = on_terminal("TERM=xterm NO_COLOR=1 $L " DIGITS "-e 1");
    lkt_contains(text, "1/1 * Epoch (train):"); /* the bar stays */
    lkt_contains(text, "epoch 1/1  train loss 0.");
    assert_null(strstr(text, "\x1b[1m"));
    text = on_terminal("TERM=dumb $L " DIGITS "-e 1 --overwrite");
    assert_null(strchr(text, '\x1b'));
    assert_null(strstr(text, "Epoch (train)"));
    lkt_contains(text, "epoch 1/1  train loss 0.");
}

/* Lines that do not fit are shorter, rather than broken. */
static void test_a_narrow_terminal(void **state)
{
    (void)state;
    enter("cli_screen_narrow");
    const char *text = on_terminal("stty cols 80; TERM=xterm NO_COLOR=1 $L " DIGITS "-e 1");
    const char *line = strstr(text, "1/1 train loss ");
    lkt_not_null(line);
    assert_true(strcspn(line, "\r\n") <= 80);
}

/* ---- Ctrl-C ---- */

/* A loop of the shell that trains three times, in a process group as a terminal makes one. */
static pid_t start_loop(const char *options)
{
    char line[2048];
    pid_t pid = fork();
    if (pid != 0) return pid;
    snprintf(line, sizeof line,
             "for i in 1 2 3; do '" LK_BUILD_DIR "/lockstep' " DIGITS
             "%s; echo next; done > out.txt 2> err.txt",
             options);
    if (chdir(folder) != 0 || setpgid(0, 0) != 0) _exit(3);
    signal(SIGINT, SIG_DFL);
    execlp("bash", "bash", "-c", line, (char *)NULL);
    _exit(4);
}

static void check_ctrl_c(const char *name, const char *options)
{
    static char text[65536];
    char command[4096];
    int status = 0;
    enter(name);
    pid_t shell = start_loop(options);
    while (!exists("logs/checkpoints/runner.last.safetensors"))
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    kill(-shell, SIGINT);
    assert_int_equal(waitpid(shell, &status, 0), shell);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    read_whole(path_of("out.txt"), text, sizeof text);
    assert_null(strstr(text, "next"));
    read_whole(path_of("err.txt"), text, sizeof text);
    lkt_contains(text, "lockstep: stopped by a signal in epoch ");
    assert_null(strstr(text, "mnist.yml:")); /* it is no mistake of the config */
    const char *line = strstr(text, "saved logs/checkpoints/runner.last.safetensors; go on with:\n  ");
    lkt_not_null(line);
    line = strchr(line, '\n') + 3;
    snprintf(command, sizeof command, "%.*s", (int)strcspn(line, "\n"), line);
    assert_null(strstr(command, "--overwrite"));
    /* The line that was printed goes on from there. */
    lkt_shell_in(folder, "%s > out.txt 2> err.txt", command);
    read_whole(path_of("out.txt"), text, sizeof text);
    lkt_contains(text, "\nresumed ");
    lkt_contains(text, "epoch 12/12  ");
}

static void test_ctrl_c(void **state)
{
    (void)state;
    check_ctrl_c("cli_screen_stop1", "-e 12 -b 1 --overwrite");
}

static void test_ctrl_c_on_two_ranks(void **state)
{
    (void)state;
    check_ctrl_c("cli_screen_stop2", "-e 12 -b 4 --nproc 2 --overwrite");
}

static void test_ctrl_c_under_restarts(void **state)
{
    (void)state;
    check_ctrl_c("cli_screen_stop3", "-e 12 -b 4 --nproc 2 --max-restarts 2");
}

/* Without a logdir there is nothing to go on from, and it says so. */
static void test_nothing_saved(void **state)
{
    (void)state;
    static char text[65536];
    int status = 0;
    enter("cli_screen_unsaved");
    pid_t shell = start_loop("-e 100000 --run/0/logdir=null --log-every 100");
    do {
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
        if (exists("out.txt")) read_whole(path_of("out.txt"), text, sizeof text);
    } while (!strstr(text, "step "));
    kill(-shell, SIGINT);
    assert_int_equal(waitpid(shell, &status, 0), shell);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    read_whole(path_of("err.txt"), text, sizeof text);
    lkt_contains(text, "no checkpoint of this run was found: it has no logdir");
}

/* ---- watch ---- */

static void test_watch(void **state)
{
    (void)state;
    enter("cli_watch");
    check_done(DIGITS "-q -e 3");
    const said *r = lockstep_in(folder, "watch logs");
    assert_int_equal(r->exit_code, 0);
    lkt_contains(r->out, "logs: epoch 3 of 3, ended\n");
    lkt_contains(r->out, "\nloss   * train 0.");
    lkt_contains(r->out, "\naccuracy01   * train 0.");
    assert_null(strchr(r->out, '\x1b'));
    r = lockstep_in(folder, "watch logs/ -m f1/_macro");
    lkt_contains(r->out, "\nf1/_macro   * train 0.");
    assert_null(strstr(r->out, "\nloss"));
    const char *text = on_terminal("TERM=xterm LC_ALL=C.UTF-8 $L watch logs");
    lkt_contains(text, "\x1b[36mtrain 0.");
    assert_null(strstr(text, "\x1b[?1049h")); /* the run has ended: one picture */
}

static void test_watch_refuses(void **state)
{
    (void)state;
    enter("cli_watch_bad");
    lkt_shell_in(folder,
                 "mkdir -p empty half/csv_logger new/csv_logger bad/csv_logger odd/csv_logger/train.csv");
    check_refused(folder, "watch nowhere", 1, "nowhere: could not open the logdir: ");
    check_refused(folder, "watch empty", 1, "empty: no run has logged an epoch there: there is no ");
    write_text("bad/csv_logger/train.csv", "epoch,loss\n1,2\n");
    check_refused(folder, "watch bad", 1, "bad/csv_logger/train.csv: the first column is not \"step\"");
    check_refused(folder, "watch odd", 1, "train.csv: could not read");
    check_refused(folder, "watch", 2, "watch: needs the logdir of a run");
    check_refused(folder, "watch empty half", 2, "watch: takes one logdir, found 2");
    /* A row that is being written is left for later; a damaged one is left out. */
    write_text("half/csv_logger/train.csv", "step,\"loss\"\n1,0.5\nx,,,\n2,nan\n3,0.25\n4,0.1");
    const said *r = lockstep_in(folder, "watch half");
    assert_int_equal(r->exit_code, 0);
    lkt_contains(r->out, "half: epoch 3, ended\nloss   * train 0.25\n");
    check_refused(folder, "watch half -m nothing", 1, "the run has logged no metric \"nothing\"");
    write_text("new/csv_logger/train.csv", "");
    r = lockstep_in(folder, "watch new");
    assert_int_equal(r->exit_code, 0);
    lkt_contains(r->out, "no value yet");
}

/* It follows a run to its end and leaves the last picture. */
static void test_watch_follows(void **state)
{
    (void)state;
    enter("cli_watch_live");
    const char *text = on_terminal(
        "TERM=xterm LC_ALL=C.UTF-8; export TERM LC_ALL; $L " DIGITS "-q -e 12 -b 1 & "
        "while ! test -e logs/checkpoints/runner.last.safetensors; do sleep 0.02; done; $L watch logs; wait");
    lkt_contains(text, "\x1b[?1049h");
    lkt_contains(text, " of 12, running");
    const char *last = strstr(text, "\x1b[?1049l");
    lkt_not_null(last);
    lkt_contains(last, "epoch 12 of 12, ");
    lkt_contains(last, "ended");
}

/* ---- Help ---- */

static void test_help_fits(void **state)
{
    (void)state;
    enter("cli_screen_help");
    static const char *const commands[] = {"run --help", "help", "help Adam", "help environment"};
    for (int i = 0; i < 4; i++) {
        char line[256];
        snprintf(line, sizeof line, "stty cols 60; $L %s", commands[i]);
        char *text = strdup(on_terminal(line)), *rest = NULL;
        strtok_r(text, "\n", &rest); /* script's own line */
        for (char *at = strtok_r(NULL, "\n", &rest); at; at = strtok_r(NULL, "\n", &rest)) {
            if (!strncmp(at, "Script done", 11)) break;
            size_t length = strcspn(at, "\r");
            if (length > 60 && strchr(at + strspn(at, " "), ' '))
                fail_msg("%s: too long: %s", commands[i], at);
        }
        free(text);
    }
    /* In a pipe an option and its text are one line. */
    lkt_contains(lockstep("run --help")->out,
                 "replace the files of an earlier run instead of moving them to LOGDIR.1\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_a_pipe),
        cmocka_unit_test(test_the_command_that_evaluates),
        cmocka_unit_test(test_quiet),
        cmocka_unit_test(test_on_a_terminal),
        cmocka_unit_test(test_colours_that_nobody_wants),
        cmocka_unit_test(test_a_narrow_terminal),
        cmocka_unit_test(test_ctrl_c),
        cmocka_unit_test(test_ctrl_c_on_two_ranks),
        cmocka_unit_test(test_ctrl_c_under_restarts),
        cmocka_unit_test(test_nothing_saved),
        cmocka_unit_test(test_watch),
        cmocka_unit_test(test_watch_refuses),
        cmocka_unit_test(test_watch_follows),
        cmocka_unit_test(test_help_fits),
    };
    setenv("LC_ALL", "C", 1); /* terminals have UTF-8 where a test says so */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
