/* Results as files whose format is that of their ending. Predictions (samples, ...): .npy as one array, .csv
 * with a column per element, .json as nested lists, .jsonl with one list per line. Metrics: .csv with a row
 * per metric, .json as one object. JSON has no NaN and no infinity: they are null there. */
#ifndef LKI_CONFIG_WRITE_OUTPUTS_H
#define LKI_CONFIG_WRITE_OUTPUTS_H

#include <lockstep/runner.h>
#include <lockstep/tensor.h>

#include <stdio.h>

/* Fail for an ending that has no format. A pipe or a device takes predictions as .npy. */
lk_status lki_check_predictions_path(const char *path);
lk_status lki_check_metrics_path(const char *path);

/* `name` is that of the columns: "logits_0", or "logits" alone if a sample has one number. */
lk_status lki_write_predictions(const char *path, const lk_tensor *outputs, const char *name);
lk_status lki_write_metrics(const char *path, const lk_metrics *metrics);

/* One JSON value and a line feed. */
void lki_print_predictions_json(FILE *stream, const lk_tensor *outputs);
void lki_print_metrics_json(FILE *stream, const lk_metrics *metrics);
/* "loss: 0.25", a line each. Metrics that end in /class_NN follow as a table with a row per class. */
void lki_print_metrics(FILE *stream, const lk_metrics *metrics);

#endif
