/* What every test includes: cmocka with the headers it needs, and a few checks of our own. */
#ifndef LKTEST_H
#define LKTEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <lockstep/status.h>

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The call must succeed; the library's sentence is shown where it does not. */
#define lkt_ok(call)                                                                                         \
    do {                                                                                                     \
        lk_status lkt_status_ = (call);                                                                      \
        if (lkt_status_ != LK_OK) fail_msg("%s: %s (%s)", #call, lk_error(), lk_status_name(lkt_status_));   \
    } while (0)

/* The call must fail with this status, and the sentence must contain `fragment`. */
#define lkt_fails(call, expected, fragment)                                                                  \
    do {                                                                                                     \
        lk_status lkt_status_ = (call);                                                                      \
        if (lkt_status_ != (expected)) fail_msg("%s: status %d (%s)", #call, lkt_status_, lk_error());       \
        lkt_contains(lk_error(), fragment);                                                                  \
    } while (0)

#define lkt_not_null(pointer)                                                                                \
    do {                                                                                                     \
        if (!(pointer)) fail_msg("%s is NULL: %s", #pointer, lk_error());                                    \
    } while (0)

#define lkt_contains(text, fragment)                                                                         \
    do {                                                                                                     \
        if (!strstr((text), (fragment))) fail_msg("\"%s\" does not contain \"%s\"", (text), (fragment));     \
    } while (0)

/* |a - b| <= tolerance * max(1, |b|) */
#define lkt_close(actual, expected, tolerance)                                                               \
    do {                                                                                                     \
        double lkt_a_ = (double)(actual), lkt_e_ = (double)(expected);                                       \
        double lkt_scale_ = fabs(lkt_e_) > 1 ? fabs(lkt_e_) : 1;                                             \
        if (!(fabs(lkt_a_ - lkt_e_) <= (tolerance)*lkt_scale_))                                              \
            fail_msg("%s = %.9g, expected %.9g", #actual, lkt_a_, lkt_e_);                                   \
    } while (0)

/* A folder for this test's files, empty at the start, under the build folder. The text is static. */
const char *lkt_scratch_folder(const char *name);
/* A line for the shell, run in `folder`; it must succeed. */
void lkt_shell_in(const char *folder, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Waits until a process is stopped (SIGSTOP), or is not any more. */
void lkt_until_stopped(pid_t pid, bool stopped);

#endif
