#define _GNU_SOURCE
/* The progress bar: its text, and what reaches a real (pseudo) terminal. */
#include "lktest.h"

#include "logger/progress.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

static lki_progress at(int64_t done, int64_t total, bool unicode)
{
    lki_progress progress = {.fd = -1,
                             .unicode = unicode,
                             .total = total,
                             .last_done = done,
                             .value_name = "loss",
                             .value = 0.5123};
    strcpy(progress.label, "1/8 * Epoch (train)");
    return progress;
}

static int cells(const char *text) /* characters, not bytes */
{
    int count = 0;
    for (; *text; text++) count += (*text & 0xc0) != 0x80;
    return count;
}

static void text(void **state)
{
    (void)state;
    char line[1024];
    lki_progress progress = at(812, 1875, true);
    lki_progress_format(line, sizeof line, &progress, 1.2487, 84);
    assert_string_equal(
        line, "1/8 * Epoch (train):  43%|████▎     | 812/1875 [00:01<00:01, 650.3it/s, loss=0.512]");
    progress = at(1875, 1875, false);
    lki_progress_format(line, sizeof line, &progress, 4000, 90);
    assert_string_equal(
        line, "1/8 * Epoch (train): 100%|###############| 1875/1875 [1:06:40<00:00, 2.1s/it, loss=0.512]");
    progress = at(0, 10, true);
    progress.value = NAN;
    lki_progress_format(line, sizeof line, &progress, 0, 60);
    assert_string_equal(line, "1/8 * Epoch (train):   0%|          | 0/10 [00:00<?, ?it/s]");
}

static void never_wider_than_the_terminal(void **state)
{
    (void)state;
    char line[1024];
    for (int columns = 2; columns < 400; columns += 3)
        for (int64_t done = 0; done <= 100; done += 9) {
            lki_progress progress = at(done, 100, true);
            lki_progress_format(line, sizeof line, &progress, 3, columns);
            assert_true(cells(line) < columns);
        }
}

static size_t read_all(int fd, char *into, size_t capacity)
{
    size_t used = 0;
    struct pollfd ready = {fd, POLLIN, 0};
    while (used + 1 < capacity && poll(&ready, 1, 200) > 0 && (ready.revents & POLLIN)) {
        ssize_t got = read(fd, into + used, capacity - used - 1);
        if (got <= 0) break;
        used += (size_t)got;
    }
    into[used] = '\0';
    return used;
}

static void on_a_terminal(void **state)
{
    (void)state;
    static char seen[65536];
    int host = posix_openpt(O_RDWR | O_NOCTTY);
    if (host < 0 || grantpt(host) != 0 || unlockpt(host) != 0) {
        print_message("skipped: no pseudo terminals here\n");
        skip();
    }
    int terminal = open(ptsname(host), O_RDWR | O_NOCTTY);
    struct winsize size = {.ws_row = 24, .ws_col = 100};
    assert_int_equal(ioctl(terminal, TIOCSWINSZ, &size), 0);
    setenv("LC_ALL", "C.UTF-8", 1);
    setenv("TERM", "xterm", 1);
    lki_progress progress;
    lki_progress_begin(&progress, terminal, "1/2 * Epoch (valid)", 1000000, "loss");
    for (int64_t i = 1; i <= 1000000; i++) lki_progress_update(&progress, i, 0.25);
    lki_progress_end(&progress);
    size_t length = read_all(host, seen, sizeof seen);
    assert_true(length > 0);
    /* A million updates in a blink are a handful of drawings; the last is complete and ends its line. */
    assert_true(length < 20000);
    lkt_contains(seen, "\r1/2 * Epoch (valid):   0%|");
    lkt_contains(seen, "| 1000000/1000000 [00:0");
    lkt_contains(seen, "loss=0.25]\x1b[K\r\n");
    close(terminal);
    close(host);
}

static void elsewhere_nothing_is_drawn(void **state)
{
    (void)state;
    int ends[2];
    char byte;
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    lki_progress progress;
    lki_progress_begin(&progress, ends[1], "x", 10, NULL);
    for (int64_t i = 1; i <= 10; i++) lki_progress_update(&progress, i, 0);
    lki_progress_clear(&progress);
    lki_progress_end(&progress);
    assert_int_equal(read(ends[0], &byte, 1), -1);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text),
        cmocka_unit_test(never_wider_than_the_terminal),
        cmocka_unit_test(on_a_terminal),
        cmocka_unit_test(elsewhere_nothing_is_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
