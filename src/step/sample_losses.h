/* The loss of a batch, sample by sample.
 *
 * A batch's loss is one f32, rounded once, so a mean of such losses shows how the samples were cut into
 * batches and dealt to ranks. A sample's own loss does not: its bits depend on its outputs and its target
 * alone. So a plan whose loss is the mean of a library loss (cross entropy, NLL, a pointwise one) also has an
 * output from which the host takes each sample's sum and weight:
 *
 *     loss = sum_i sums[i] / sum_i weights[i]
 *
 * A weight is how much the mean divides by: the number of the sample's places, or the class weights of its
 * targets, without those that are ignore_index. A loss of another kind, such as a sum or a function of your
 * own, has none of this. */
#ifndef LKI_STEP_SAMPLE_LOSSES_H
#define LKI_STEP_SAMPLE_LOSSES_H

#include <lockstep/data.h>
#include <lockstep/step.h>

#include <stdbool.h>
#include <stdint.h>

/* How much a plan does for them. */
typedef enum lki_samples_wanted {
    LKI_SAMPLES_NONE,
    LKI_SAMPLES_FREE, /* only where the training step computes them anyway */
    LKI_SAMPLES_ALL
} lki_samples_wanted;

/* What that output holds. */
typedef enum lki_sample_source {
    LKI_SAMPLES_LOSSES,            /* (n, places) */
    LKI_SAMPLES_LOG_PROBABILITIES, /* (n, classes, places), which a cross entropy computes anyhow */
    LKI_SAMPLES_LOGITS             /* (n, classes, places): few, and an output already */
} lki_sample_source;

/* How the host reads them from a plan's output. */
typedef struct lki_sample_rule {
    const char *output; /* NULL: there are none */
    const char *target; /* the field that holds the targets; NULL: they do not matter */
    lki_sample_source source;
    bool is_weighted; /* by the targets' classes: class_weights, and ignored ones do not count */
    const lk_tensor *class_weights; /* (classes), the graph's; NULL: all are 1 */
    int64_t ignored, classes, places;
    double weight; /* of a sample where it does not depend on the targets */
} lki_sample_rule;

typedef struct lki_sample_losses {
    double *sums, *weights; /* of capacity */
    int64_t count, capacity;
} lki_sample_losses;

/* Adds the output to the graph, whose loss has just been recorded for `sample_count` samples. A rule without
 * an output says that there is none. A device's log-probabilities are not used: how they are rounded depends
 * on the number of samples there. */
lk_status lki_record_sample_losses(lk_graph *graph, lk_value *loss, int64_t sample_count,
                                   lki_samples_wanted wanted, bool on_device, lki_sample_rule *rule);

/* Reads the first `count` samples. `values` is the rule's output, `targets` the batch's. */
lk_status lki_read_sample_losses(const lki_sample_rule *rule, const lk_tensor *values,
                                 const lk_tensor *targets, int64_t count, lki_sample_losses *out);
void lki_sample_losses_fini(lki_sample_losses *losses);

/* Those of the step's last batch, which is this one; out->count is 0 where it has none. They belong to the
 * step. */
lk_status lki_step_sample_losses(lk_step *step, const lk_batch *batch, int64_t count,
                                 const lki_sample_losses **out);

/* The loss of each sample's places, (samples, places...), in place of their mean; *sums says that a sample's
 * own loss is their sum, not their mean. Fails for a loss that has none, or with class weights. */
lk_value *lki_record_each_loss(lk_graph *graph, lk_value *loss, int64_t sample_count, bool *sums);

#endif
