/* A run as the board knows it: what its logs, settings and lock said at the last look. Made by
 * lki_board_run_open, brought up to date by lki_board_run_refresh, freed by lki_board_run_free. Not
 * thread-safe. */
#ifndef LKI_BOARD_RUN_H
#define LKI_BOARD_RUN_H

#include "board/read_log.h"
#include "board/run_state.h"
#include "board/series.h"

typedef struct lki_board_run {
    int id;
    char *name;      /* for people, and the same each time */
    char *folder;    /* its logdir */
    int64_t version; /* of the board, when the run last changed */
    bool is_there;   /* at the last look */

    lki_board_file *files;
    int file_count;
    lki_board_series_list series;
    lki_board_histogram_list histograms; /* of the event files */

    char *hparams; /* hparams.json as one line; NULL: none, or damaged */
    /* What the best epoch is chosen by: hparams.json and checkpoints/model.storage.json say it. */
    char *valid_loader, *valid_metric;
    int minimize; /* 1 or 0; -1: nothing says it */
    int64_t num_epochs, epochs;
    /* Seconds since the epoch; 0: not known. The last point may be older than what was written last. */
    int64_t started, last, updated;
    lki_run_state state;
} lki_board_run;

/* Whether a folder looks like the logdir of a run, of Lockstep or of a program that writes TensorBoard's
 * files. */
bool lki_board_is_run(const char *folder);

lki_board_run *lki_board_run_open(int id, const char *name, const char *folder);
/* *changed: there is something new. Files that are damaged or gone are no failure. */
lk_status lki_board_run_refresh(lki_board_run *run, bool *changed);
void lki_board_run_free(lki_board_run *run);

#endif
