/* How the library's own code reports a failure: set the sentence, return the status.
 *
 *     if (n < 0) return lki_fail(LK_ERR_INVALID, "batch_size: expected at least 1, found %d", n);
 *     LKI_TRY(lki_file_read(...));                 // passes a failure on, the sentence untouched
 *
 * The first sentence is the user's; a caller may put its own place in front of it with lki_fail_prefix. */
#ifndef LKI_BASE_STATUS_H
#define LKI_BASE_STATUS_H

#include <lockstep/status.h>

#define LKI_PRINTF(format_index, first) __attribute__((format(printf, format_index, first)))

/* Sets this thread's error sentence and returns status. Newlines become spaces: an error is one line. */
lk_status lki_fail(lk_status status, const char *format, ...) LKI_PRINTF(2, 3);

/* As lki_fail, for constructors: returns NULL of any pointer type. */
void *lki_fail_null(lk_status status, const char *format, ...) LKI_PRINTF(2, 3);

/* Puts "prefix: " in front of the current sentence and returns status: where a lower layer's error happened.
 */
lk_status lki_fail_prefix(lk_status status, const char *format, ...) LKI_PRINTF(2, 3);

/* The status that the last lki_fail on this thread carried: what a constructor that returned NULL failed
 * with. */
lk_status lki_last_status(void);

/* How many sentences this thread has set. A user's function may return a failure without one: then the last
 * sentence is another failure's, and this sets one with the status's name.
 *
 *     unsigned long said = lki_fail_count();
 *     return lki_fail_if_silent(slot(callback, runner), said, "callback", name); */
extern __thread unsigned long lki_error_count;
lk_status lki_fail_silent(lk_status status, const char *what, const char *name);
static inline unsigned long lki_fail_count(void)
{
    return lki_error_count;
}
static inline lk_status lki_fail_if_silent(lk_status status, unsigned long said_before, const char *what,
                                           const char *name)
{
    if (status == LK_OK || lki_error_count != said_before) return status;
    return lki_fail_silent(status, what, name);
}

/* A failure that is kept while other calls are made, which may fail, too. Zero is none.
 *
 *     lki_error first = {0};
 *     lki_error_keep(&first, save());      // the first failure of several is the one that is kept
 *     lki_error_keep(&first, close());
 *     return lki_error_restore(&first);    // lk_error() is its sentence again; LK_OK if nothing has failed
 */
enum { LKI_ERROR_NBYTES = 1024 };
typedef struct lki_error {
    lk_status status;
    char sentence[LKI_ERROR_NBYTES];
} lki_error;

/* Copies this thread's sentence, if status is a failure and nothing is kept yet. Returns status. */
lk_status lki_error_keep(lki_error *error, lk_status status);
/* Sets this thread's sentence and returns the status. */
lk_status lki_error_restore(const lki_error *error);

/* Propagates a failure to the caller. */
#define LKI_TRY(call)                                                                                        \
    do {                                                                                                     \
        lk_status lki_try_status_ = (call);                                                                  \
        if (lki_try_status_ != LK_OK) return lki_try_status_;                                                \
    } while (0)

/* The same where there is something to clean up: stores into `status` and jumps to `out`. */
#define LKI_TRY_OUT(call)                                                                                    \
    do {                                                                                                     \
        status = (call);                                                                                     \
        if (status != LK_OK) goto out;                                                                       \
    } while (0)

#endif
