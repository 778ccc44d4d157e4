/* A CSV file that a run has written, in memory: a header, and rows of text. */
#ifndef LKI_CLI_PLOT_TABLE_H
#define LKI_CLI_PLOT_TABLE_H

#include <lockstep/status.h>

#include <stdint.h>

typedef struct lki_plot_table {
    char *text;   /* of the file, cut into cells */
    char **cells; /* (rows + 1, columns), the header first; missing cells are "" */
    int64_t rows;
    int columns;
} lki_plot_table;

/* LK_ERR_NOT_FOUND if there is no such file, LK_ERR_FORMAT for one with zeros or without a header. A last
 * line that is not whole yet is left out: the run may be writing it. */
lk_status lki_plot_table_read(lki_plot_table *out, const char *path);
void lki_plot_table_fini(lki_plot_table *table);

/* Of row 0 and up; the name of a column is that of row -1. */
const char *lki_plot_cell(const lki_plot_table *table, int64_t row, int column);
int lki_plot_column(const lki_plot_table *table, const char *name); /* -1: there is none */
/* (rows), NaN where a cell is no number; freed with lki_free. */
double *lki_plot_numbers(const lki_plot_table *table, int column);

#endif
