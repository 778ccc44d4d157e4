/* What a run asks of the CSV logger's files before it goes on with them. */
#ifndef LKI_LOGGER_CSV_LOGGER_H
#define LKI_LOGGER_CSV_LOGGER_H

#include <lockstep/status.h>

/* Fails where the file of that loader is there and cannot be continued; leaves it as it is. */
lk_status lki_csv_logger_check(const char *logdir, const char *loader_key);

#endif
