/* A guest's manners: host_guest.c trains and infers on one thread. It compares itself before and after, and a
 * tracer sees no process or thread that is started, no signal handler, nothing written but the files that
 * were asked for, and no socket. */
#include "hosts.h"

/* Calls that a guest does not make, as strace writes them. */
static const char *const forbidden[] = {
    "clone(",  "clone3(",   "fork(",   "vfork(", "execve(", "rt_sigaction(", "sigaltstack(",
    "socket(", "kill(",     "tgkill(", "chdir(", "umask(",  "setrlimit(",    "sched_setaffinity(",
    "prctl(",  "setitimer("};

static void check_line(const char *line)
{
    const char *call = line + strspn(line, "0123456789 "); /* the process stands in front */
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++)
        if (!strncmp(call, forbidden[i], strlen(forbidden[i]))) fail_msg("the library called %s", call);
    if (!strncmp(call, "write(1,", 8) || !strncmp(call, "write(2,", 8) || !strncmp(call, "writev(1,", 9) ||
        !strncmp(call, "writev(2,", 9))
        fail_msg("the library printed: %s", call);
}

static void need_host(void)
{
    if (access(LK_BUILD_DIR "/tests/host_guest", X_OK) == 0) return;
    print_message("the host is not built with a sanitizer, which has threads and handlers of its own\n");
    skip();
}

/* Checks what was called between the two marks of the host, and returns how many calls that were. */
static int check_trace(const char *path)
{
    char line[4096];
    int count = 0;
    bool inside = false, ended = false;
    FILE *trace = fopen(path, "r");
    assert_non_null(trace);
    while (fgets(line, sizeof line, trace)) {
        if (strstr(line, "\"/guest ends\"")) inside = false, ended = true;
        if (inside) check_line(line), count++;
        if (strstr(line, "\"/guest begins\"")) inside = true;
    }
    fclose(trace);
    assert_true(ended);
    return count;
}

static void a_host_stays_as_it_was(void **state)
{
    (void)state;
    char command[2000];
    need_host();
    snprintf(command, sizeof command, "%s/tests/host_guest %s", LK_BUILD_DIR, lkt_scratch_folder("guest"));
    assert_int_equal(system(command), 0);
}

static void a_tracer_sees_nothing(void **state)
{
    (void)state;
    char command[3000], path[1200];
    need_host();
    const char *folder = lkt_scratch_folder("guest_traced");
    snprintf(path, sizeof path, "%s/trace", folder);
    snprintf(command, sizeof command, "strace -f -o %s true 2> /dev/null", path);
    if (system(command) != 0) {
        print_message("strace is not there, or may not trace\n");
        skip();
    }
    snprintf(command, sizeof command, "strace -f -o %s %s/tests/host_guest %s", path, LK_BUILD_DIR, folder);
    assert_int_equal(system(command), 0);
    int count = check_trace(path);
    print_message("%d calls of the kernel\n", count);
    assert_true(count > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_host_stays_as_it_was),
        cmocka_unit_test(a_tracer_sees_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
