#include "logger/progress.h"

#include "base/clock.h"
#include "base/number_text.h"
#include "base/terminal.h"
#include "logger/format.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { DRAW_INTERVAL_NS = 50000000, CLOCK_INTERVAL_NS = 5000000, MAX_LINE = 1024, MIN_BAR = 4 };

void lki_progress_begin(lki_progress *progress, int fd, const char *label, int64_t total,
                        const char *value_name)
{
    lki_terminal terminal = lki_terminal_of(fd);
    *progress = (lki_progress){.fd = terminal.is_terminal ? fd : -1,
                               .unicode = terminal.has_unicode,
                               .total = total,
                               .stride = 1,
                               .value_name = value_name,
                               .value = NAN,
                               .start_ns = lki_now_ns()};
    snprintf(progress->label, sizeof progress->label, "%s", label);
}

const char *lki_format_duration(char text[32], double seconds)
{
    if (!(seconds >= 0) || seconds > 359999) return strcpy(text, "?");
    int64_t s = (int64_t)seconds;
    if (s >= 3600)
        snprintf(text, 32, "%" PRId64 ":%02d:%02d", s / 3600, (int)(s / 60 % 60), (int)(s % 60));
    else
        snprintf(text, 32, "%02d:%02d", (int)(s / 60), (int)(s % 60));
    return text;
}

const char *lki_format_rate(char text[48], double rate)
{
    strcpy(text, "?it/s");
    if (rate >= 1)
        lki_snprintf(text, 48, "%.1fit/s", rate);
    else if (rate > 0)
        lki_snprintf(text, 48, "%.1fs/it", 1 / rate);
    return text;
}

/* "[00:01<00:02, 650.3it/s, loss=0.512]" */
static void format_tail(char *text, size_t capacity, const lki_progress *progress, double elapsed_s)
{
    char elapsed[32], left[32], total[32], rate_text[48], value[LKI_NUMBER_LENGTH], shown[160] = "";
    double rate = elapsed_s > 0 ? (double)(progress->last_done - progress->first_done) / elapsed_s : 0;
    double left_s = rate > 0 ? (double)(progress->total - progress->last_done) / rate : NAN;
    if (progress->value_name && !isnan(progress->value)) {
        lki_snprintf(value, sizeof value, "%.3g", progress->value);
        snprintf(shown, sizeof shown, ", %.100s=%s", progress->value_name, value);
    }
    if (progress->total == INT64_MAX) left_s = NAN; /* a stream does not say how long it is */
    if (progress->total == INT64_MAX)
        snprintf(total, sizeof total, "?");
    else
        snprintf(total, sizeof total, "%" PRId64, progress->total);
    snprintf(text, capacity, "| %" PRId64 "/%s [%s<%s, %s%s]", progress->last_done, total,
             lki_format_duration(elapsed, elapsed_s), lki_format_duration(left, left_s),
             lki_format_rate(rate_text, rate), shown);
}

/* `width` cells, filled to `share`; on a UTF-8 terminal the last one in eighths. */
static char *put_bar(char *at, int width, double share, bool unicode)
{
    static const char *const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
    int filled = (int)(share * width * 8 + 1e-9);
    for (int i = 0; i < width; i++) {
        int here = filled - 8 * i;
        here = here < 0 ? 0 : here > 8 ? 8 : here;
        const char *cell = unicode ? eighths[here] : here >= 8 ? "#" : " ";
        size_t length = strlen(cell);
        memcpy(at, cell, length);
        at += length;
    }
    *at = '\0';
    return at;
}

const char *lki_progress_format(char *text, size_t capacity, const lki_progress *progress, double elapsed_s,
                                int columns)
{
    char tail[320];
    double share = progress->total > 0 ? (double)progress->last_done / (double)progress->total : 0;
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    format_tail(tail, sizeof tail, progress, elapsed_s);
    int used = snprintf(text, capacity, "%s: %3.0f%%|", progress->label, floor(100 * share));
    int bar = columns - 1 - used - (int)strlen(tail);
    /* Too narrow for a bar: label and percentage alone, cut to the terminal so that the line never wraps. */
    if (bar < MIN_BAR) {
        snprintf(text, capacity, "%s: %3.0f%% %s", progress->label, floor(100 * share), tail + 2);
        if (columns > 1 && (size_t)(columns - 1) < strlen(text)) text[columns - 1] = '\0';
        return text;
    }
    int room = ((int)capacity - used - (int)strlen(tail) - 1) / 3; /* a cell has up to three bytes */
    if (bar > room) bar = room;
    char *at = put_bar(text + used, bar, share, progress->unicode);
    strcpy(at, tail);
    return text;
}

static void write_line(const lki_progress *progress, const char *prefix, const char *line, const char *suffix)
{
    char text[MAX_LINE + 16];
    int length = snprintf(text, sizeof text, "%s%s%s", prefix, line, suffix);
    /* A terminal that is gone is no reason to stop a run. */
    if (write(progress->fd, text, (size_t)length) < 0) return;
}

static void draw(lki_progress *progress, int64_t now_ns, const char *suffix)
{
    char line[MAX_LINE];
    double elapsed_s = (double)(now_ns - progress->start_ns) * 1e-9;
    /* Two columns stay free: the terminal writes "^C" there, and the line stays one line. */
    lki_progress_format(line, sizeof line, progress, elapsed_s, lki_terminal_columns(progress->fd) - 2);
    /* Erasing to the end of the line takes away the rest of a longer one. */
    char ending[16];
    snprintf(ending, sizeof ending, "\x1b[K%s", suffix);
    write_line(progress, "\r", line, ending);
    progress->drawn_ns = now_ns;
}

bool lki_progress_look(lki_progress *progress)
{
    int64_t now_ns = lki_now_ns(), elapsed_ns = now_ns - progress->start_ns;
    /* The clock is read again after about five milliseconds' worth of calls, by the rate so far. */
    int64_t done = progress->last_done - progress->first_done;
    if (done > 0 && elapsed_ns > 0) {
        double per_call_ns = (double)elapsed_ns / (double)done;
        progress->stride =
            per_call_ns < CLOCK_INTERVAL_NS ? (int64_t)(CLOCK_INTERVAL_NS / (per_call_ns + 1)) : 1;
        if (progress->stride < 1) progress->stride = 1;
    }
    progress->calls_left = progress->stride;
    progress->now_ns = now_ns;
    return progress->fd < 0 || progress->drawn_ns == 0 || now_ns - progress->drawn_ns >= DRAW_INTERVAL_NS;
}

void lki_progress_draw(lki_progress *progress, double value)
{
    progress->value = value;
    if (progress->fd >= 0) draw(progress, progress->now_ns, "");
}

void lki_progress_end(lki_progress *progress)
{
    if (progress->fd < 0) return;
    draw(progress, lki_now_ns(), "\n");
    progress->fd = -1;
}

void lki_progress_clear(lki_progress *progress)
{
    if (progress->fd < 0) return;
    write_line(progress, "\r", "\x1b[K", "");
    progress->drawn_ns = 0;
    progress->calls_left = 0;
}
