#include "run/objective.h"

#include "base/status.h"
#include "graph/graph.h"
#include "graph/record_util.h"
#include "run/run.h"
#include "tensor/element.h"

#include <stdio.h>
#include <string.h>

/* ---- What the callbacks say ---- */

static int find_term(const lki_objective *o, const char *name)
{
    for (int i = 0; i < o->term_count; i++)
        if (strcmp(o->terms[i].metric_key, name) == 0) return i;
    return -1;
}

/* Among the first `count`. */
static int find_sum(const lki_objective *o, const char *name, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(o->sums[i].metric_key, name) == 0) return i;
    return -1;
}

lk_status lki_objective_add_term(lk_runner *runner, lki_criterion_term term)
{
    lki_objective *o = &runner->run->objective;
    if (find_term(o, term.metric_key) >= 0)
        return lki_fail(LK_ERR_INVALID,
                        "CriterionCallback: two of them report \"%s\": give each a metric_key of its own",
                        term.metric_key);
    if (o->term_count == LKI_MAX_CRITERIA)
        return lki_fail(LK_ERR_INVALID, "a run has at most %d CriterionCallbacks", LKI_MAX_CRITERIA);
    o->terms[o->term_count++] = term;
    return LK_OK;
}

lk_status lki_objective_add_sum(lk_runner *runner, lki_sum sum)
{
    lki_objective *o = &runner->run->objective;
    if (o->sum_count == LKI_MAX_CRITERIA)
        return lki_fail(LK_ERR_INVALID, "a run has at most %d MetricAggregationCallbacks", LKI_MAX_CRITERIA);
    o->sums[o->sum_count++] = sum;
    return LK_OK;
}

lk_status lki_objective_minimize(lk_runner *runner, const char *who, const char *metric_key)
{
    lki_objective *o = &runner->run->objective;
    if (!metric_key) return LK_OK;
    bool own_batches = runner->ops && runner->ops->handle_batch;
    if (o->minimized && strcmp(o->minimized, metric_key) != 0 && own_batches) {
        o->has_several = true; /* handle_batch makes the updates of several optimizers itself */
        return LK_OK;
    }
    if (o->minimized && strcmp(o->minimized, metric_key) != 0)
        return lki_fail(LK_ERR_INVALID,
                        "%s: metric_key \"%s\": %s minimises \"%s\": a run minimises one loss", who,
                        metric_key, o->said_by, o->minimized);
    o->minimized = metric_key;
    o->said_by = who;
    return LK_OK;
}

/* ---- What comes of it ---- */

static lk_status find_criteria(lki_objective *o, const lk_runner *runner)
{
    for (int i = 0; i < o->term_count; i++) {
        lki_criterion_term *term = &o->terms[i];
        term->criterion =
            term->criterion_key ? lk_runner_criterion(runner, term->criterion_key) : runner->criterion;
        if (term->criterion) continue;
        if (term->criterion_key)
            return lki_fail(LK_ERR_NOT_FOUND, "CriterionCallback \"%s\": there is no criterion \"%s\"",
                            term->metric_key, term->criterion_key);
        return lki_fail(LK_ERR_INVALID,
                        "CriterionCallback \"%s\": the run has no criterion of its own: name one of several "
                        "with criterion_key",
                        term->metric_key);
    }
    return LK_OK;
}

static bool is_plain(const lki_objective *o, const lk_runner *runner)
{
    const lki_criterion_term *term = &o->terms[0];
    if (runner->ops && runner->ops->forward) return false;
    if (strcmp(lki_objective_key(o, runner), runner->loss_key) != 0) return false;
    if (o->term_count == 0) return true;
    return o->term_count == 1 && term->criterion == runner->criterion &&
           strcmp(term->input_key, runner->output_key) == 0 &&
           strcmp(term->target_key, runner->target_key) == 0 &&
           strcmp(term->metric_key, runner->loss_key) == 0;
}

/* Whether a metric is made of criteria, so that it has a gradient; of the first `count` sums. */
static bool has_gradient(const lki_objective *o, const char *name, int count)
{
    if (find_term(o, name) >= 0) return true;
    int sum = find_sum(o, name, count);
    if (sum < 0 || !o->sums[sum].names) return false;
    for (int i = 0; o->sums[sum].names[i]; i++)
        if (!has_gradient(o, o->sums[sum].names[i], sum)) return false;
    return true;
}

static lk_status check_minimized(const lki_objective *o, const lk_runner *runner)
{
    const char *key = lki_objective_key(o, runner);
    char known[256] = "";
    if (has_gradient(o, key, o->sum_count)) return LK_OK;
    for (int i = 0; i < o->term_count; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s\"%s\"", i ? ", " : "", o->terms[i].metric_key);
    }
    return lki_fail(LK_ERR_NOT_FOUND,
                    "there is no loss \"%s\" to minimise: give BackwardCallback the metric_key of a "
                    "CriterionCallback (%s), or of a MetricAggregationCallback that names only such",
                    key, *known ? known : "there is none");
}

static bool trains(const lk_runner *runner)
{
    const lki_run *run = runner->run;
    if (!runner->optimizer || run->evaluating) return false;
    for (int i = 0; i < run->loaders.count; i++)
        if (strncmp(run->loaders.items[i].key, "train", 5) == 0) return true;
    return false;
}

lk_status lki_objective_settle(lk_runner *runner)
{
    lki_objective *o = &runner->run->objective;
    bool own_batches = runner->ops && runner->ops->handle_batch;
    o->runner = runner;
    if (own_batches && o->term_count == 0) return LK_OK; /* its losses are its own */
    LKI_TRY(find_criteria(o, runner));
    if (o->term_count == 0 && trains(runner))
        return lki_fail(LK_ERR_INVALID, "there is no criterion to train with: add one");
    o->is_special = !is_plain(o, runner);
    return o->is_special && trains(runner) && !own_batches ? check_minimized(o, runner) : LK_OK;
}

lk_status lki_objective_check_step(const lk_runner *runner)
{
    const lki_objective *o = &runner->run->objective;
    bool own_batches = runner->ops && runner->ops->handle_batch;
    if (o->has_several)
        return lki_fail(LK_ERR_INVALID,
                        "the callbacks minimise \"%s\" and another loss: make a step for each of them in "
                        "handle_batch, with lk_runner_step",
                        o->minimized);
    return own_batches && o->is_special && trains(runner) ? check_minimized(o, runner) : LK_OK;
}

/* ---- Recording it ---- */

enum { MAX_CRITERION_VALUES = 8 };

typedef struct recording {
    const lki_objective *objective;
    lk_graph *graph;
    const char *const *names;
    lk_value *const *inputs;
    int count;
    lk_value *terms[LKI_MAX_CRITERIA], *sums[LKI_MAX_CRITERIA]; /* NULL: not of this batch */
} recording;

static lk_value *find_value(const recording *r, const char *key)
{
    for (int i = 0; i < r->graph->output_count; i++)
        if (strcmp(r->graph->outputs[i]->name, key) == 0) return r->graph->outputs[i];
    for (int i = 0; i < r->count; i++)
        if (strcmp(r->names[i], key) == 0) return r->inputs[i];
    return NULL;
}

static void *missing(const recording *r, const char *key)
{
    return lki_graph_fail(r->graph, LK_ERR_NOT_FOUND,
                          "the batch has neither a field nor an output named \"%s\"", key);
}

/* Adds the values of one key, or of several with commas between them. Returns false, with the key in
 * `unknown`, if the batch lacks one of them, and also if there are too many. */
static bool collect(const recording *r, const char *keys, lk_value **values, int *count, char unknown[128])
{
    for (const char *at = keys; *at;) {
        at += strspn(at, ", ");
        size_t length = strcspn(at, ",");
        if (length == 0) break;
        snprintf(unknown, 128, "%.*s", (int)length, at);
        lk_value *value = *count < MAX_CRITERION_VALUES ? find_value(r, unknown) : NULL;
        if (!value) return false;
        values[(*count)++] = value;
        at += length;
    }
    return true;
}

/* A batch that is only evaluated may lack a target: that criterion is then left out. */
static lk_status record_term(recording *r, int index)
{
    const lki_criterion_term *term = &r->objective->terms[index];
    lk_value *values[MAX_CRITERION_VALUES];
    int count = 0;
    char input[128], target[128];
    bool has_input = collect(r, term->input_key, values, &count, input);
    bool has_target = collect(r, term->target_key, values, &count, target);
    if (!has_target && !r->graph->training) return LK_OK;
    if (!has_input || !has_target) {
        missing(r, has_input ? target : input);
        return LK_ERR_NOT_FOUND;
    }
    lk_value *loss = lk_criterion_call(term->criterion, values, count);
    if (!loss) return r->graph->status;
    r->terms[index] = loss;
    bool is_loss = strcmp(term->metric_key, lki_objective_key(r->objective, r->objective->runner)) == 0;
    return is_loss ? LK_OK : lk_graph_output(r->graph, term->metric_key, loss);
}

static lk_value *part_of_sum(const recording *r, const char *name, int sum)
{
    int term = find_term(r->objective, name), other = find_sum(r->objective, name, sum);
    return term >= 0 ? r->terms[term] : other >= 0 ? r->sums[other] : NULL;
}

static void record_sum(recording *r, int index)
{
    const lki_sum *sum = &r->objective->sums[index];
    lk_value *total = NULL;
    double divisor = 0;
    for (int i = 0; sum->names && sum->names[i]; i++) {
        double weight = sum->weights ? sum->weights[i] : 1;
        lk_value *part = part_of_sum(r, sum->names[i], index);
        if (!part) return;
        if (weight != 1) part = lk_op_mul_scalar(part, weight);
        total = total ? lk_op_add(total, part) : part;
        divisor += weight;
    }
    if (total && sum->divides && divisor != 1) total = lk_op_mul_scalar(total, 1 / divisor);
    r->sums[index] = total;
}

static lk_status record_forward(const recording *r)
{
    lk_runner *runner = (lk_runner *)r->objective->runner;
    unsigned long said = lki_fail_count();
    if (runner->ops && runner->ops->forward) {
        LKI_TRY(lki_fail_if_silent(runner->ops->forward(runner, r->graph, r->names, r->inputs, r->count),
                                   said, "the runner's", "forward"));
        return r->graph->status;
    }
    lk_value *features = find_value(r, runner->input_key);
    if (!features) {
        missing(r, runner->input_key);
        return LK_ERR_NOT_FOUND;
    }
    lk_value *output = lk_module_forward(runner->model, features);
    return output ? lk_graph_output(r->graph, runner->output_key, output) : r->graph->status;
}

static lk_value *record(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count,
                        void *context)
{
    const lki_objective *o = context;
    const lk_runner *runner = o->runner;
    recording r = {.objective = o, .graph = graph, .names = names, .inputs = inputs, .count = count};
    if (record_forward(&r)) return NULL;
    graph->section = LKI_SECTION_CRITERION;
    for (int i = 0; i < o->term_count; i++)
        if (record_term(&r, i)) return NULL;
    for (int i = 0; i < o->sum_count; i++) record_sum(&r, i);
    return part_of_sum(&r, lki_objective_key(o, runner), o->sum_count);
}

void lki_objective_apply(lk_runner *runner, lk_step_options *options)
{
    lki_objective *o = &runner->run->objective;
    if (!o->is_special) return;
    options->function = record;
    options->context = o;
    options->loss_key = lki_objective_key(o, runner);
    o->has_step = true;
}

lk_status lki_objective_report(lk_runner *runner)
{
    const lki_objective *o = &runner->run->objective;
    for (int i = 0; i < o->term_count; i++) {
        const char *key = o->terms[i].metric_key;
        const lk_tensor *value = lk_step_output(runner->step, key);
        if (!value || lk_metrics_has(runner->batch_metrics, key)) continue;
        if (lk_tensor_count(value) != 1)
            return lki_fail(LK_ERR_SHAPE, "CriterionCallback \"%s\": the criterion must reduce to one number",
                            key);
        LKI_TRY(lk_metrics_set(runner->batch_metrics, key, lki_load(value->dtype, value->data, 0)));
    }
    return LK_OK;
}
