#include "base/log.h"

#include "base/number_text.h"

#include <lockstep/log.h>

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static lk_log_sink current_sink;
static void *current_context;

void lk_set_log_sink(lk_log_sink sink, void *context)
{
    pthread_mutex_lock(&sink_lock);
    current_sink = sink;
    current_context = context;
    pthread_mutex_unlock(&sink_lock);
}

void lk_log_to_stderr(const char *level, const char *line, void *context)
{
    (void)context;
    if (strcmp(level, "debug") != 0) fprintf(stderr, "lockstep: %s: %s\n", level, line);
}

void lki_log(lki_log_level level, const char *format, ...)
{
    static const char *const names[] = {"debug", "info", "warning"};
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    lki_vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&sink_lock);
    if (current_sink) current_sink(names[level], line, current_context);
    pthread_mutex_unlock(&sink_lock);
}
