/* The three formats of a run's logs. Each reader takes whole entries from bytes that may end within one, adds
 * their values to the series, and returns how many bytes it took. An entry that makes no sense is left out
 * and remembered as the file's problem. Not thread-safe. */
#ifndef LKI_BOARD_READ_LOG_H
#define LKI_BOARD_READ_LOG_H

#include "board/histograms.h"
#include "board/series.h"
#include "board/tail.h"

typedef struct lki_board_file {
    lki_tail tail;
    lki_board_kind kind;
    char *loader;        /* from its name; of a JSONL file NULL, as its lines say it */
    char *header;        /* of a CSV file: its first line */
    const char *problem; /* what was wrong with it; NULL: nothing */
    int64_t bad_entries;
} lki_board_file;

typedef struct lki_board_reading {
    lki_board_file *file;
    lki_board_series_list *series;
    lk_status status;
    lki_board_histogram_list *histograms;
} lki_board_reading;

/* As lki_tail_read; the context is an lki_board_reading. */
size_t lki_board_read_csv(void *context, const char *bytes, size_t nbytes);
size_t lki_board_read_jsonl(void *context, const char *bytes, size_t nbytes);
size_t lki_board_read_events(void *context, const char *bytes, size_t nbytes);

/* Counts an entry that was left out. */
void lki_board_note_bad(lki_board_file *file, const char *problem);

#endif
