/* What every call returns, and how to read what went wrong.
 *
 * A function that can fail returns lk_status; LK_OK is zero. lk_error() has the sentence for the
 * user: one line that says what was wrong and where. It is thread-local and stays until the next
 * failure on the same thread. The library never prints and never exits. */
#ifndef LOCKSTEP_STATUS_H
#define LOCKSTEP_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(symbol, name) */
#define LK_STATUS_LIST(X)                                                                                    \
    X(LK_OK, "ok")                                                                                           \
    X(LK_ERR_INVALID, "invalid argument")                                                                    \
    X(LK_ERR_SHAPE, "shapes do not fit")                                                                     \
    X(LK_ERR_DTYPE, "dtypes do not mix")                                                                     \
    X(LK_ERR_RANGE, "index out of range")                                                                    \
    X(LK_ERR_NOMEM, "out of memory")                                                                         \
    X(LK_ERR_IO, "input or output failed")                                                                   \
    X(LK_ERR_NOT_FOUND, "not found")                                                                         \
    X(LK_ERR_FORMAT, "malformed file")                                                                       \
    X(LK_ERR_CONFIG, "wrong configuration")                                                                  \
    X(LK_ERR_UNSUPPORTED, "not supported here")                                                              \
    X(LK_ERR_NAN, "not a number")                                                                            \
    X(LK_ERR_TIMEOUT, "timed out")                                                                           \
    X(LK_ERR_PEER, "a peer failed")                                                                          \
    X(LK_ERR_STOPPED, "stopped")                                                                             \
    X(LK_ERR_DEVICE, "the device failed")

typedef enum lk_status {
#define X(symbol, name) symbol,
    LK_STATUS_LIST(X)
#undef X
} lk_status;

/* Returns the last error of this thread, one line, or "" if nothing has failed. Never NULL. */
const char *lk_error(void);

/* Returns the status of the last error: why a constructor returned NULL. LK_OK if nothing has
 * failed. */
lk_status lk_error_status(void);

/* Sets the sentence of this thread and returns the status, for your own components and callbacks:
 *
 *     return lk_fail(LK_ERR_INVALID, "width: expected at least 1, found %d", width);
 *
 * Newlines become spaces, because an error is one line. */
#ifdef __GNUC__
__attribute__((format(printf, 2, 3)))
#endif
lk_status
lk_fail(lk_status status, const char *format, ...);

/* The same with a finished sentence, for bindings of languages without variable arguments. */
lk_status lk_fail_text(lk_status status, const char *sentence);

/* Returns the name of a status ("shapes do not fit"). */
const char *lk_status_name(lk_status status);

/* Frees text that a function of the library made for its caller. NULL is allowed. */
void lk_text_free(char *text);

#ifdef __cplusplus
}
#endif
#endif
