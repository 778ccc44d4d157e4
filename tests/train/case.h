/* What the tests of training share: small data, a model, and looking at what a run left behind. */
#ifndef LKT_TRAIN_CASE_H
#define LKT_TRAIN_CASE_H

#include "lktest.h"

#include <lockstep/lockstep.h>

enum { LKT_FEATURES = 6, LKT_CLASSES = 3 };

/* `count` points of three classes that a linear model can mostly tell apart; the same for the same seed, and
 * drawn from no generator that a run uses. */
lk_dataset *lkt_points(int64_t count, uint64_t seed);
/* Points with a number to predict: targets (count, 1). */
lk_dataset *lkt_curve(int64_t count, uint64_t seed);
/* Linear, after lk_manual_seed(7). */
lk_module *lkt_linear_model(void);
/* Linear, BatchNorm, ReLU, Dropout, Linear, after lk_manual_seed(7). */
lk_module *lkt_deep_model(void);

/* The content hash of a model's weights and buffers; static text, four calls deep. */
const char *lkt_hash(const lk_module *model);
/* A copy of a parameter's first `count` numbers. */
void lkt_weights(const lk_module *model, const char *path, double *out, int count);

/* Static text of path/name, eight calls deep. */
const char *lkt_path(const char *folder, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool lkt_exists(const char *path);
/* The whole file, to be freed; fails the test where there is none. */
char *lkt_read(const char *path);
/* The value of a metric in a row (from 1) of a CSV log. */
double lkt_csv(const char *logdir, const char *loader, int row, const char *metric);
int lkt_csv_rows(const char *logdir, const char *loader);

/* The shared data's folder, NULL where there is none. */
const char *lkt_shared(void);

#endif
