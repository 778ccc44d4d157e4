/* Where the library's warnings and notes go. Without a sink, nowhere: the library never prints by itself. */
#ifndef LOCKSTEP_LOG_H
#define LOCKSTEP_LOG_H

#ifdef __cplusplus
extern "C" {
#endif

/* `level` is "debug", "info" or "warning"; `line` has no newline. May be called from any thread, one call at
 * a time. */
typedef void (*lk_log_sink)(const char *level, const char *line, void *context);
void lk_set_log_sink(lk_log_sink sink, void *context);

/* A ready-made sink that writes warnings and notes to stderr. */
void lk_log_to_stderr(const char *level, const char *line, void *context);

#ifdef __cplusplus
}
#endif
#endif
