#include "step/sample_losses.h"

#include "base/memory.h"
#include "base/status.h"
#include "data/batch_fields.h"
#include "graph/graph.h"
#include "graph/record_util.h"
#include "step/step.h"
#include "tensor/element.h"
#include "tensor/layout.h"

#include <math.h>

static const char output_name[] = "_sample_losses";

/* With more classes times places than this, a copy of the log-probabilities costs more than a second loss;
 * and the host's exponentials cost more than the device's. */
enum { MAX_LOG_CELLS = 1024, MAX_LOGITS_CELLS = 32 };

static int64_t product(lk_shape shape, int begin)
{
    int64_t count = 1;
    for (int i = begin; i < shape.rank; i++) count *= shape.dim[i];
    return count;
}

static bool is_class_loss(const lki_node *node)
{
    return node->op == LK_OP_CROSS_ENTROPY || node->op == LK_OP_NLL;
}

/* The mean of a library loss over these samples, whose classes are a field that the host sees too. */
static bool is_known(const lki_node *node, int64_t sample_count)
{
    if (!is_class_loss(node) && node->op != LK_OP_POINTWISE_LOSS) return false;
    lk_reduction reduction = lki_loss_reduction(node);
    if (reduction != LK_REDUCTION_MEAN && reduction != LK_REDUCTION_BATCH_MEAN) return false;
    const lk_value *x = node->in[0];
    if (x->shape.rank < 1 || x->shape.dim[0] != sample_count || sample_count < 1) return false;
    if (!is_class_loss(node)) /* a broadcast one mixes samples */
        return x->node->op != LK_OP_EXPAND && node->in[1]->node->op != LK_OP_EXPAND;
    bool has_weight = lki_has_input(node, 2);
    return node->in[1]->storage == LKI_STORAGE_INPUT && (!has_weight || node->in[2]->constant);
}

static lki_sample_rule rule_of(const lki_node *node)
{
    lk_shape shape = node->in[0]->shape;
    lki_sample_rule rule = {.output = output_name, .classes = 1, .places = product(shape, 1)};
    if (is_class_loss(node)) {
        rule.classes = shape.dim[1];
        rule.places = product(shape, 2);
        rule.is_weighted = node->in[1]->dtype == LK_I64;
        rule.target = node->in[1]->name;
        rule.class_weights = lki_has_input(node, 2) ? node->in[2]->constant : NULL;
        rule.ignored = node->attr.class_loss.ignore_index;
    }
    rule.weight = lki_loss_reduction(node) == LK_REDUCTION_BATCH_MEAN ? 1 : (double)rule.places;
    return rule;
}

static lki_sample_source source_of(const lki_node *node, const lki_sample_rule *rule, bool on_device)
{
    int64_t cells = rule->classes * rule->places;
    bool plain =
        node->op == LK_OP_CROSS_ENTROPY && rule->is_weighted && node->attr.class_loss.label_smoothing == 0;
    if (plain && !on_device && cells <= MAX_LOG_CELLS) return LKI_SAMPLES_LOG_PROBABILITIES;
    if (plain && on_device && cells <= MAX_LOGITS_CELLS && node->in[0]->is_output) return LKI_SAMPLES_LOGITS;
    return LKI_SAMPLES_LOSSES;
}

static lk_value *record_losses(const lki_node *node)
{
    lk_attr attr = node->attr;
    *(is_class_loss(node) ? &attr.class_loss.reduction : &attr.pointwise_loss.reduction) = LK_REDUCTION_NONE;
    return lki_emit(node->op, &attr, node->input_count, node->in);
}

lk_status lki_record_sample_losses(lk_graph *graph, lk_value *loss, int64_t sample_count,
                                   lki_samples_wanted wanted, bool on_device, lki_sample_rule *rule)
{
    lki_node *node = loss->node;
    *rule = (lki_sample_rule){0};
    if (wanted == LKI_SAMPLES_NONE || !is_known(node, sample_count)) return LK_OK;
    lki_sample_rule made = rule_of(node);
    made.source = source_of(node, &made, on_device);
    bool is_free = made.source == LKI_SAMPLES_LOG_PROBABILITIES;
    if (!is_free && wanted != LKI_SAMPLES_ALL) return LK_OK;
    if (made.source == LKI_SAMPLES_LOGITS) {
        made.output = node->in[0]->name;
    } else {
        lk_value *values = is_free ? node->out[1] : record_losses(node);
        if (!values) return graph->status;
        LKI_TRY(lk_graph_output(graph, made.output, values));
    }
    *rule = made;
    return LK_OK;
}

lk_value *lki_record_each_loss(lk_graph *graph, lk_value *loss, int64_t sample_count, bool *sums)
{
    lki_node *node = loss->node;
    bool has_class_weights = is_class_loss(node) && lki_has_input(node, 2);
    if (!is_known(node, sample_count) || has_class_weights)
        return lki_graph_fail(graph, LK_ERR_UNSUPPORTED,
                              "weights of rows need the mean of a loss of the library%s",
                              has_class_weights ? " without class weights" : "");
    *sums = lki_loss_reduction(node) == LK_REDUCTION_BATCH_MEAN;
    return record_losses(node);
}

/* ---- Reading ---- */

static lk_status make_room(lki_sample_losses *losses, int64_t count)
{
    if (count <= losses->capacity) return LK_OK;
    double *grown = lki_realloc(losses->sums, sizeof *grown * 2 * (size_t)count, "the losses of samples");
    if (!grown) return LK_ERR_NOMEM;
    losses->sums = grown;
    losses->weights = grown + count;
    losses->capacity = count;
    return LK_OK;
}

static double class_weight(const lki_sample_rule *rule, int64_t target)
{
    if (target == rule->ignored) return 0;
    if (target < 0 || target >= rule->classes) return 0; /* the step has failed with it already */
    return rule->class_weights ? lk_tensor_get(rule->class_weights, target) : 1;
}

static double value_at(const lk_tensor *values, int64_t i)
{
    return values->dtype == LK_F32 ? ((const float *)values->data)[i]
                                   : lki_load(values->dtype, values->data, i);
}

/* log p_t = (x_t - largest) - log sum exp(x - largest) of one place; class c lies at first + c * stride. */
static double log_probability(const lki_sample_rule *rule, const lk_tensor *logits, int64_t first,
                              int64_t target)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t c = 0; c < rule->classes; c++) {
        double value = value_at(logits, first + c * rule->places);
        if (!(value <= largest)) largest = value;
    }
    for (int64_t c = 0; c < rule->classes; c++)
        sum += exp(value_at(logits, first + c * rule->places) - largest);
    return (value_at(logits, first + target * rule->places) - largest) - log(sum);
}

/* Weighted by the targets: losses are already, log-probabilities are not. */
static void read_class_sample(const lki_sample_rule *rule, const lk_tensor *values, const int64_t *targets,
                              int64_t sample, double *sum, double *weight)
{
    for (int64_t s = 0; s < rule->places; s++) {
        int64_t at = sample * rule->places + s, target = targets[at];
        int64_t first = sample * rule->classes * rule->places + s;
        double own = class_weight(rule, target);
        *weight += own;
        if (rule->source == LKI_SAMPLES_LOSSES)
            *sum += value_at(values, at);
        else if (own != 0 && rule->source == LKI_SAMPLES_LOGITS)
            *sum -= own * log_probability(rule, values, first, target);
        else if (own != 0)
            *sum -= own * value_at(values, first + target * rule->places);
    }
}

lk_status lki_read_sample_losses(const lki_sample_rule *rule, const lk_tensor *values,
                                 const lk_tensor *targets, int64_t count, lki_sample_losses *out)
{
    LKI_TRY(make_room(out, count));
    for (int64_t i = 0; i < count; i++) {
        double sum = 0, weight = 0;
        if (rule->is_weighted) {
            read_class_sample(rule, values, targets->data, i, &sum, &weight);
        } else {
            for (int64_t s = 0; s < rule->places; s++) sum += value_at(values, i * rule->places + s);
            weight = rule->weight;
        }
        out->sums[i] = sum;
        out->weights[i] = weight;
    }
    out->count = count;
    return LK_OK;
}

void lki_sample_losses_fini(lki_sample_losses *losses)
{
    lki_free(losses->sums);
    *losses = (lki_sample_losses){0};
}

lk_status lki_step_sample_losses(lk_step *step, const lk_batch *batch, int64_t count,
                                 const lki_sample_losses **out)
{
    lki_sample_losses *losses = &step->sample_losses;
    *out = losses;
    losses->count = 0;
    if (!step->current || !step->has_loss || !step->current->sample_rule.output) return LK_OK;
    const lki_sample_rule *rule = &step->current->sample_rule;
    const lk_tensor *targets = rule->is_weighted ? lki_batch_get(batch, rule->target) : NULL;
    if (rule->is_weighted && (!targets || lki_shape_count(&targets->shape) < count * rule->places))
        return LK_OK;
    const lk_tensor *values = lk_step_output(step, rule->output);
    if (!values) return lki_last_status();
    if (values->shape.rank < 1 || values->shape.dim[0] < count) return LK_OK;
    return lki_read_sample_losses(rule, values, targets, count, losses);
}
