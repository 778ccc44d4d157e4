/* The run's table: for each epoch the valid metric and the accuracy of each loader, printed when a run
 * ends. It is part of a checkpoint: the best epoch of a resumed run may lie before it was resumed. */
#ifndef LKI_RUN_EPOCH_TABLE_H
#define LKI_RUN_EPOCH_TABLE_H

#include <lockstep/checkpoint.h>
#include <lockstep/runner.h>

#include <stdio.h>

enum { LKI_EPOCH_TABLE_COLUMNS = 8 };

typedef struct lki_epoch_table_row {
    int64_t epoch;
    double value[LKI_EPOCH_TABLE_COLUMNS]; /* NaN where the loader rested, or did not report this yet */
} lki_epoch_table_row;

/* Zero is empty. */
typedef struct lki_epoch_table {
    char title[LKI_EPOCH_TABLE_COLUMNS][64]; /* "valid loss" */
    int column_count;
    lki_epoch_table_row *rows;
    int row_count, capacity;
} lki_epoch_table;

/* Adds the epoch that has just ended, in place of its row where it has one. */
lk_status lki_epoch_table_add(lki_epoch_table *table, const lk_runner *runner);
/* "table.epoch" and "table.<title>", each (rows). Loading replaces what is there; a state without a table is
 * an empty one. */
lk_status lki_epoch_table_save(const lki_epoch_table *table, lk_state_dict *state);
lk_status lki_epoch_table_restore(lki_epoch_table *table, const lk_state_dict *state);
/* Writes the table and a line about the best epoch. Of more than `limit` rows, some in the middle are left
 * out; 0 for no limit. */
void lki_epoch_table_print(FILE *stream, const lki_epoch_table *table, const lk_runner *runner, int limit);
/* Whether no epoch was better than the one that was added last. */
bool lki_epoch_table_last_is_best(const lki_epoch_table *table, const lk_runner *runner);
/* The number of rows, and the values of the column with that title, which the caller frees. 0 and NULL if
 * there is no such column. */
int lki_epoch_table_column(const lki_epoch_table *table, const char *title, double **values);
void lki_epoch_table_fini(lki_epoch_table *table);

#endif
