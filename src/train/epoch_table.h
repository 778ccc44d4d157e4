/* The run's table: for each epoch the valid metric and the accuracy of each loader, printed when a verbose
 * run ends. */
#ifndef LKI_TRAIN_EPOCH_TABLE_H
#define LKI_TRAIN_EPOCH_TABLE_H

#include <lockstep/runner.h>

#include <stdio.h>

enum { LKI_EPOCH_TABLE_COLUMNS = 8 };

typedef struct lki_epoch_table_row {
    int64_t epoch;
    double value[LKI_EPOCH_TABLE_COLUMNS]; /* NaN where the loader rested */
} lki_epoch_table_row;

/* Zero is empty. */
typedef struct lki_epoch_table {
    char title[LKI_EPOCH_TABLE_COLUMNS][64]; /* "valid loss" */
    int column_count, decisive;              /* which column the best epoch is chosen by; -1 for none */
    lki_epoch_table_row *rows;
    int row_count, capacity;
} lki_epoch_table;

/* Adds the epoch that has just ended. */
lk_status lki_epoch_table_add(lki_epoch_table *table, const lk_runner *runner);
/* Writes the table and a line about the best epoch. */
void lki_epoch_table_print(FILE *stream, const lki_epoch_table *table, const lk_runner *runner);
void lki_epoch_table_fini(lki_epoch_table *table);

#endif
