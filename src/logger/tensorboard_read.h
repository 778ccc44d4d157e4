/* Reading TensorBoard's event files back: for tests, for the live page, and to continue a run's logs. */
#ifndef LKI_LOGGER_TENSORBOARD_READ_H
#define LKI_LOGGER_TENSORBOARD_READ_H

#include <lockstep/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct lki_tensorboard_scalar {
    char *tag;
    int64_t step;
    double wall_time;
    float value;
} lki_tensorboard_scalar;

/* Zero is empty. */
typedef struct lki_tensorboard_scalars {
    lki_tensorboard_scalar *items;
    int64_t count, capacity;
    int64_t record_count;
} lki_tensorboard_scalars;

/* Checks every record's checksums and gives the file's scalars in order. A file that ends within a record is
 * malformed, unless `growing`: then it is read up to there, as a page must that reads while the run still
 * writes. */
lk_status lki_tensorboard_check(lki_tensorboard_scalars *out, const char *path, bool growing);
void lki_tensorboard_scalars_fini(lki_tensorboard_scalars *scalars);

/* Writes the file anew without what was logged later than these steps: "…/batch" after `sample_step`, all
 * else after `epoch_step`. Also drops a record that a crash cut off, and, with a warning, records that are
 * damaged; all that follows where a record's length is. */
lk_status lki_tensorboard_truncate(const char *path, int64_t epoch_step, int64_t sample_step);

#endif
