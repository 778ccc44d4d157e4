#include "train/sample_losses.h"

#include "base/memory.h"
#include "base/status.h"
#include "graph/graph.h"
#include "graph/record_util.h"
#include "tensor/element.h"
#include "train/step.h"

static const char output_name[] = "_sample_losses";

/* With more classes times places than this, a copy of the log-probabilities costs more than a second loss. */
enum { MAX_LOG_CELLS = 1024 };

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

/* The mean of a library loss of these samples and of these targets, as the host sees them. */
static bool is_known(const lki_node *node, const lk_value *target, int64_t sample_count)
{
    bool batch_mean = node->attr.reduction == LK_REDUCTION_BATCH_MEAN;
    if (!is_class_loss(node) && node->op != LK_OP_POINTWISE_LOSS) return false;
    if (node->attr.reduction != LK_REDUCTION_MEAN && !batch_mean) return false;
    const lk_value *x = node->in[0];
    if (x->shape.rank < 1 || x->shape.dim[0] != sample_count || sample_count < 1) return false;
    if (!is_class_loss(node)) /* a broadcast one mixes samples */
        return x->node->op != LK_OP_EXPAND && node->in[1]->node->op != LK_OP_EXPAND;
    bool has_weight = lki_has_input(node, 2);
    return node->in[1] == target && (!has_weight || node->in[2]->constant);
}

static lki_sample_rule rule_of(const lki_node *node)
{
    lk_shape shape = node->in[0]->shape;
    lki_sample_rule rule = {.output = output_name, .classes = 1, .places = product(shape, 1)};
    if (is_class_loss(node)) {
        rule.classes = shape.dim[1];
        rule.places = product(shape, 2);
        rule.is_weighted = node->in[1]->dtype == LK_I64;
        rule.class_weights = lki_has_input(node, 2) ? node->in[2]->constant : NULL;
        rule.ignored = node->attr.index;
    }
    rule.weight = node->attr.reduction == LK_REDUCTION_BATCH_MEAN ? 1 : (double)rule.places;
    return rule;
}

/* A plain cross entropy computes the log-probabilities anyhow. */
static bool has_log(const lki_node *node, const lki_sample_rule *rule)
{
    return node->op == LK_OP_CROSS_ENTROPY && rule->is_weighted && node->attr.alpha == 0 &&
           rule->classes * rule->places <= MAX_LOG_CELLS;
}

lk_status lki_record_sample_losses(lk_graph *graph, lk_value *loss, const lk_value *target,
                                   int64_t sample_count, lki_samples_wanted wanted, lki_sample_rule *rule)
{
    lki_node *node = loss->node;
    *rule = (lki_sample_rule){0};
    if (wanted == LKI_SAMPLES_NONE || !is_known(node, target, sample_count)) return LK_OK;
    lki_sample_rule made = rule_of(node);
    made.is_log = has_log(node, &made);
    if (!made.is_log && wanted != LKI_SAMPLES_ALL) return LK_OK;
    lk_value *values = made.is_log ? node->out[1] : NULL;
    if (!made.is_log) {
        lk_attr attr = node->attr;
        attr.reduction = LK_REDUCTION_NONE;
        values = lki_emit(node->op, &attr, node->input_count, node->in);
    }
    if (!values) return graph->status;
    LKI_TRY(lk_graph_output(graph, made.output, values));
    *rule = made;
    return LK_OK;
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

/* Weighted by the targets. Where the output holds log-probabilities it is not weighted yet. */
static void read_class_sample(const lki_sample_rule *rule, const lk_tensor *values, const int64_t *targets,
                              int64_t sample, double *sum, double *weight)
{
    for (int64_t s = 0; s < rule->places; s++) {
        int64_t at = sample * rule->places + s, target = targets[at];
        double own = class_weight(rule, target);
        *weight += own;
        if (!rule->is_log)
            *sum += value_at(values, at);
        else if (own != 0)
            *sum -= own * value_at(values, (sample * rule->classes + target) * rule->places + s);
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

lk_status lki_step_sample_losses(lk_step *step, const lk_tensor *targets, int64_t count,
                                 const lki_sample_losses **out)
{
    lki_sample_losses *losses = &step->sample_losses;
    *out = losses;
    losses->count = 0;
    if (!step->current || !step->has_loss || !step->current->sample_rule.output || !targets) return LK_OK;
    const lki_sample_rule *rule = &step->current->sample_rule;
    const lk_tensor *values = lk_step_output(step, rule->output);
    if (!values) return lki_last_status();
    if (values->shape.dim[0] < count ||
        (rule->is_weighted && lk_tensor_count(targets) < count * rule->places))
        return LK_OK;
    return lki_read_sample_losses(rule, values, targets, count, losses);
}
