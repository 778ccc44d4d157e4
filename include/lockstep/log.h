/* Where warnings and notes of the library go. Without a sink they are dropped: the library never
 * prints by itself. */
#ifndef LOCKSTEP_LOG_H
#define LOCKSTEP_LOG_H

#ifdef __cplusplus
extern "C" {
#endif

/* Receives one line. `level` is "debug", "info" or "warning", and `line` has no newline. It may
 * be called from any thread, but never from two at the same time. */
typedef void (*lk_log_sink)(const char *level, const char *line, void *context);
/* Sets the sink of the process. `context` is passed to it. NULL removes the sink. */
void lk_set_log_sink(lk_log_sink sink, void *context);

/* A sink that writes warnings and notes to stderr. */
void lk_log_to_stderr(const char *level, const char *line, void *context);

#ifdef __cplusplus
}
#endif
#endif
