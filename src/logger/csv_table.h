/* One CSV file of a run: a column a name, a row a step.
 *
 * Rows are appended as they come. A name that was not there before makes a new column: the file is then
 * written anew, with the column empty in the older rows. The rows are kept in memory for that; there is one
 * an epoch. */
#ifndef LKI_LOGGER_CSV_TABLE_H
#define LKI_LOGGER_CSV_TABLE_H

#include <lockstep/metric.h>

typedef struct lki_csv_table lki_csv_table;

/* Whether there is no such file, or one that can be continued; leaves it as it is. */
lk_status lki_csv_table_check(const char *path);
/* Where keep_up_to is positive, an existing file is continued: its rows of later steps are dropped, and, with
 * a warning, what is damaged. Otherwise the file starts afresh with its first row. */
lk_status lki_csv_table_open(lki_csv_table **out, const char *path, int64_t keep_up_to);
/* Values are sorted by name. The column "time" has `time_s`, unless there is a value of that name. */
lk_status lki_csv_table_add(lki_csv_table *table, int64_t step, double time_s, lk_metric_values values);
lk_status lki_csv_table_flush(lki_csv_table *table);
/* Flushes and frees, also where the flush fails; NULL is fine. */
lk_status lki_csv_table_close(lki_csv_table *table);

#endif
