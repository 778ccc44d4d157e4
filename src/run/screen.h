/* What a run shows while it goes on, on stdout of rank 0: a bar for each loader on a terminal, a line every
 * 30 seconds elsewhere, a line every log_every steps, a line per epoch, and what came of it at the end.
 * LOGDIR/ log.txt gets the lines of steps too. It is called by the run's callbacks and by loggers.c. */
#ifndef LKI_RUN_SCREEN_H
#define LKI_RUN_SCREEN_H

#include <lockstep/runner.h>

#include "base/terminal.h"
#include "logger/progress.h"

#include <stdio.h>

enum { LKI_SCREEN_LINE = 1024 };

typedef struct lki_screen {
    lk_show level;   /* never LK_SHOW_DEFAULT once the run is set up */
    bool is_idle;    /* nothing is to be shown of the batches of the loader that runs */
    int step_lines;  /* a line after so many batches of this loader; 0: none */
    bool has_bar;    /* a callback that was given draws another one */
    bool has_epochs; /* a logger that was given prints the epochs to stdout */
    bool is_compact; /* lines of epochs are too long for the terminal in their full form */
    lki_terminal terminal;
    lki_progress progress;
    int64_t line_interval_ns, line_ns; /* without a terminal: between two lines; when the last one came */
    int64_t epoch_ns;                  /* when the epoch began */
    struct {
        int64_t ns, batch_step, sample_step; /* at the last line, or at the start of the loader */
    } mark;
    bool noted_fallbacks[2]; /* of evaluation, of training */
    double rate;             /* of the step that a line is due for */
} lki_screen;

/* What the options ask for, which the callbacks are added by. Call it when the given callbacks are known. */
lk_status lki_screen_setup(lk_runner *runner);
/* The header. `text` is the whole of it. */
void lki_screen_header(const lk_runner *runner, const char *text);

/* "2026-11-18 19:49:12  " where stdout is no terminal: somebody reads it later. Else nothing. */
void lki_screen_print_time(const lki_screen *screen);

/* Counts a batch. Returns whether something may be due to be shown. Then call note_rate before the callbacks
 * of the batch's end, one of which may set the rate of the next step, and after_batch behind them. */
static inline bool lki_screen_count(lki_screen *screen, const lk_runner *runner)
{
    if (screen->is_idle) return false;
    bool looks = lki_progress_count(&screen->progress, runner->loader_batch_step);
    return looks || (screen->step_lines > 0 && runner->batch_step % screen->step_lines == 0);
}
/* After a loader's first batch: with LK_SHOW_ALL, a line for each call of its plan that a plain kernel
 * computes, once a run. */
lk_status lki_screen_note_fallbacks(lk_runner *runner);
void lki_screen_note_rate(lk_runner *runner);
lk_status lki_screen_after_batch(lk_runner *runner);

/* How many numbers a sample of the batch has if they are tokens: integers in a row. Else 0. */
int64_t lki_tokens_per_sample(const lk_runner *runner);

/* epoch_lines.c: the line of the epoch that has just ended, and with LK_SHOW_ALL its other metrics. The
 * epoch is in the table of epochs. */
void lki_screen_epoch(lk_runner *runner);
/* The table of epochs, the curves of the loss and the best epoch. */
void lki_screen_end(lk_runner *runner);

#endif
