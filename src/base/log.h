/* Messages for the person at the terminal that are not errors: warnings and notes.
 *
 * The library never prints by itself: it hands messages to one sink, which the command (or the user's
 * program) sets. Without one they go nowhere. Thread-safe. */
#ifndef LKI_BASE_LOG_H
#define LKI_BASE_LOG_H

typedef enum lki_log_level { LKI_LOG_DEBUG, LKI_LOG_INFO, LKI_LOG_WARNING } lki_log_level;

void lki_log(lki_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
