/* A progress bar on a terminal:
 *
 *     1/8 * Epoch (train):  43%|████▎     | 812/1875 [00:01<00:02, 650.3it/s, loss=0.512]
 *
 * It is drawn at most twenty times a second, and a call that draws nothing costs a few nanoseconds: the clock
 * itself is read only every so many calls. Where the output is no terminal nothing is drawn. One thread. */
#ifndef LKI_LOGGER_PROGRESS_H
#define LKI_LOGGER_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lki_progress {
    int fd; /* where it is drawn; -1 for nowhere */
    bool unicode;
    char label[128];
    int64_t total;
    int64_t start_ns, drawn_ns, now_ns;
    int64_t first_done;         /* what an earlier run had done: it does not count for the rate */
    int64_t calls_left, stride; /* calls until the clock is read again, and how many that was */
    int64_t last_done;
    const char *value_name;
    double value;
} lki_progress;

/* Starts a bar on `fd`. `value_name` is shown with the latest value ("loss"); NULL shows none. It must
 * outlive the bar. */
void lki_progress_begin(lki_progress *progress, int fd, const char *label, int64_t total,
                        const char *value_name);

/* Reads the clock into now_ns. Returns whether the bar is to be drawn again; always, if there is none. */
bool lki_progress_look(lki_progress *progress);
void lki_progress_draw(lki_progress *progress, double value);

/* Counts one call, of which `done` is the latest number. Returns whether it is time for lki_progress_look. */
static inline bool lki_progress_count(lki_progress *progress, int64_t done)
{
    progress->last_done = done;
    return --progress->calls_left <= 0;
}

/* Says that `done` of the total are done. Call it as often as you like. */
static inline void lki_progress_update(lki_progress *progress, int64_t done, double value)
{
    if (progress->fd < 0) return;
    progress->value = value;
    if (lki_progress_count(progress, done) && lki_progress_look(progress)) lki_progress_draw(progress, value);
}

/* Draws the bar a last time and goes to the next line. */
void lki_progress_end(lki_progress *progress);

/* Takes the bar away, so that a line of text can be printed in its place; the next update draws it again. */
void lki_progress_clear(lki_progress *progress);

/* "01:05", "1:06:40", or "?"; "650.3it/s", "2.1s/it", or "?it/s". Both return text. */
const char *lki_format_duration(char text[32], double seconds);
const char *lki_format_rate(char text[48], double rate);

/* The line for a moment, as it would be drawn on so many columns; for tests and for the drawing itself.
 * Returns text. */
const char *lki_progress_format(char *text, size_t capacity, const lki_progress *progress, double elapsed_s,
                                int columns);

#endif
