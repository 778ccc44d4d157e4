/* Losses. Each is a type name, a function over (prediction, target) and its options. */
#include <lockstep/nn.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "nn/module.h"

#include <math.h>
#include <string.h>

typedef struct builtin_context {
    lk_tensor *weight, *pos_weight;
    lk_reduction reduction;
    lk_pointwise_loss kind;
    double parameter; /* of the pointwise loss, or label smoothing */
    int64_t ignore_index;
} builtin_context;

struct lk_criterion {
    char *type;
    lk_criterion_function forward;
    lk_criterion_call_function call; /* instead of `forward` */
    int inputs;                      /* of `call`; 0: any number */
    void *context;
    void (*free_context)(void *context);
};

static lk_value *forward_or_call(const lk_criterion *criterion, lk_value *const *inputs, int count)
{
    int wanted = criterion->call ? criterion->inputs : 2;
    if (wanted && count != wanted)
        return lki_graph_fail(lk_value_graph(inputs[0]), LK_ERR_INVALID,
                              "it takes %d values, found %d: name them with the criterion's input_key and "
                              "target_key, or pass them to lk_criterion_call",
                              wanted, count);
    return criterion->call ? criterion->call(inputs, count, criterion->context)
                           : criterion->forward(inputs[0], inputs[1], criterion->context);
}

lk_value *lk_criterion_call(lk_criterion *criterion, lk_value *const *inputs, int count)
{
    if (count < 1) return lki_fail_null(LK_ERR_INVALID, "lk_criterion_call: expected at least 1 value");
    for (int i = 0; i < count; i++)
        if (!inputs[i]) return NULL;
    lk_graph *graph = lk_value_graph(inputs[0]);
    if (!criterion)
        return lki_graph_fail(graph, lki_last_status() ? lki_last_status() : LK_ERR_INVALID,
                              "the criterion is NULL: %s", lk_error());
    lk_graph_push_scope(graph, "criterion", criterion->type);
    lk_value *loss = forward_or_call(criterion, inputs, count);
    lk_graph_pop_scope(graph);
    return loss;
}

lk_value *lk_criterion_forward(lk_criterion *criterion, lk_value *prediction, lk_value *target)
{
    return lk_criterion_call(criterion, LK_VALUES(prediction, target));
}

void lk_criterion_free(lk_criterion *criterion)
{
    if (!criterion) return;
    if (criterion->free_context) criterion->free_context(criterion->context);
    lki_free(criterion->type);
    lki_free(criterion);
}

const char *lk_criterion_type(const lk_criterion *criterion)
{
    return criterion->type;
}

lk_criterion *lk_custom_criterion_with(const lk_custom_criterion_options *given)
{
    lk_custom_criterion_options options;
    lk_status status = lki_take(&options, sizeof options, given, "lk_custom_criterion_options");
    const char *type = options.type ? options.type : "Custom";
    lk_criterion *criterion = NULL;
    if (status == LK_OK && !options.forward != !options.call && options.inputs >= 0)
        criterion = LKI_NEW(lk_criterion);
    else if (status == LK_OK && options.inputs < 0)
        lki_fail(LK_ERR_INVALID, "%s: inputs: expected at least 0, found %d", type, options.inputs);
    else if (status == LK_OK)
        lki_fail(LK_ERR_INVALID, "%s: the criterion has %s", type,
                 options.forward ? "both forward and call" : "no function");
    if (criterion) criterion->type = lki_strdup(type);
    if (!criterion || !criterion->type) {
        lki_free(criterion);
        if (options.free_context) options.free_context(options.context);
        return NULL;
    }
    criterion->forward = options.forward;
    criterion->call = options.call;
    criterion->inputs = options.inputs;
    criterion->context = options.context;
    criterion->free_context = options.free_context;
    return criterion;
}

/* ---- what the ready-made ones share ---- */

static void free_builtin(void *context)
{
    builtin_context *own = context;
    lk_tensor_free(own->weight);
    lk_tensor_free(own->pos_weight);
    lki_free(own);
}

static lk_status check_weight(const char *type, const char *what, const lk_tensor *weight)
{
    for (int64_t i = 0; weight && i < lk_tensor_count(weight); i++)
        if (!isfinite(lk_tensor_get(weight, i)))
            return lki_fail(LK_ERR_INVALID, "%s: %s: expected finite numbers, found %g", type, what,
                            lk_tensor_get(weight, i));
    return LK_OK;
}

/* A weight per class. */
static lk_status check_class_weight(const char *type, const lk_tensor *weight)
{
    if (!weight || weight->shape.rank == 1) return LK_OK;
    return lki_fail(LK_ERR_SHAPE, "%s: weight: expected one number per class, found a tensor of %d axes",
                    type, weight->shape.rank);
}

/* Takes copies of the weights of `draft`. */
static lk_criterion *create_builtin(const char *type, lk_criterion_function forward, builtin_context draft)
{
    if (check_weight(type, "weight", draft.weight) || check_weight(type, "pos_weight", draft.pos_weight))
        return NULL;
    builtin_context *own = LKI_NEW(builtin_context);
    if (!own) return NULL;
    *own = draft;
    own->weight = draft.weight ? lk_tensor_cast(draft.weight, LK_F32) : NULL;
    own->pos_weight = draft.pos_weight ? lk_tensor_cast(draft.pos_weight, LK_F32) : NULL;
    if ((draft.weight && !own->weight) || (draft.pos_weight && !own->pos_weight)) {
        free_builtin(own);
        return NULL;
    }
    return lk_custom_criterion(.type = type, .forward = forward, .context = own,
                               .free_context = free_builtin);
}

/* The weight as a constant of the prediction's dtype, and where asked of its shape. */
static lk_value *constant(const lk_tensor *weight, lk_value *prediction, bool expands)
{
    if (!weight) return NULL;
    lk_value *value = lk_graph_constant(lk_value_graph(prediction), weight);
    if (value && lk_value_dtype(prediction) != LK_F32 && lk_dtype_is_float(lk_value_dtype(prediction)))
        value = lk_op_cast(value, lk_value_dtype(prediction));
    return expands ? lk_op_expand(value, lk_value_shape(prediction)) : value;
}

static lk_status check_reduction(const char *type, lk_reduction reduction, bool allows_batch_mean)
{
    if (reduction == LK_REDUCTION_BATCH_MEAN && !allows_batch_mean)
        return lki_fail(LK_ERR_INVALID, "%s: reduction: batch mean belongs to KLDivLoss", type);
    if ((int)reduction < LK_REDUCTION_MEAN || reduction > LK_REDUCTION_BATCH_MEAN)
        return lki_fail(LK_ERR_INVALID, "%s: there is no reduction %d", type, (int)reduction);
    return LK_OK;
}

/* ---- classification ---- */

static lk_value *cross_entropy_forward(lk_value *prediction, lk_value *target, void *context)
{
    const builtin_context *own = context;
    return lk_op_cross_entropy(prediction, target, constant(own->weight, prediction, false), own->reduction,
                               own->ignore_index, own->parameter);
}

lk_criterion *lk_cross_entropy_loss_with(const lk_cross_entropy_loss_options *given)
{
    LKI_TAKE(lk_cross_entropy_loss_options, options, given, NULL);
    if (check_reduction("CrossEntropyLoss", options.reduction, false) != LK_OK) return NULL;
    if (check_class_weight("CrossEntropyLoss", options.weight)) return NULL;
    if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1))
        return lki_fail_null(LK_ERR_INVALID, "CrossEntropyLoss: label_smoothing: expected 0 to 1, found %g",
                             options.label_smoothing);
    int64_t ignored;
    if (lki_whole_or(options.ignore_index, -100, "CrossEntropyLoss", "ignore_index", &ignored)) return NULL;
    return create_builtin("CrossEntropyLoss", cross_entropy_forward,
                          (builtin_context){.weight = (lk_tensor *)options.weight,
                                            .reduction = options.reduction,
                                            .parameter = options.label_smoothing,
                                            .ignore_index = ignored});
}

static lk_value *nll_forward(lk_value *prediction, lk_value *target, void *context)
{
    const builtin_context *own = context;
    return lk_op_nll(prediction, target, constant(own->weight, prediction, false), own->reduction,
                     own->ignore_index);
}

lk_criterion *lk_nll_loss_with(const lk_nll_loss_options *given)
{
    LKI_TAKE(lk_nll_loss_options, options, given, NULL);
    if (check_reduction("NLLLoss", options.reduction, false) != LK_OK) return NULL;
    int64_t ignored;
    if (lki_whole_or(options.ignore_index, -100, "NLLLoss", "ignore_index", &ignored)) return NULL;
    if (check_class_weight("NLLLoss", options.weight)) return NULL;
    return create_builtin("NLLLoss", nll_forward,
                          (builtin_context){.weight = (lk_tensor *)options.weight,
                                            .reduction = options.reduction,
                                            .ignore_index = ignored});
}

/* ---- pointwise ---- */

static lk_value *pointwise_forward(lk_value *prediction, lk_value *target, void *context)
{
    const builtin_context *own = context;
    return lk_op_pointwise_loss(prediction, target, constant(own->weight, prediction, true),
                                constant(own->pos_weight, prediction, true), own->kind, own->parameter,
                                own->reduction);
}

static lk_criterion *create_pointwise(const char *type, builtin_context draft)
{
    if (check_reduction(type, draft.reduction, draft.kind == LK_LOSS_KL_DIV) != LK_OK) return NULL;
    return create_builtin(type, pointwise_forward, draft);
}

lk_criterion *lk_bce_loss_with(const lk_bce_options *given)
{
    LKI_TAKE(lk_bce_options, options, given, NULL);
    if (options.pos_weight)
        return lki_fail_null(LK_ERR_INVALID, "BCELoss: pos_weight belongs to BCEWithLogitsLoss");
    return create_pointwise("BCELoss", (builtin_context){.weight = (lk_tensor *)options.weight,
                                                         .kind = LK_LOSS_BCE,
                                                         .reduction = options.reduction});
}

lk_criterion *lk_bce_with_logits_loss_with(const lk_bce_options *given)
{
    LKI_TAKE(lk_bce_options, options, given, NULL);
    return create_pointwise("BCEWithLogitsLoss",
                            (builtin_context){.weight = (lk_tensor *)options.weight,
                                              .pos_weight = (lk_tensor *)options.pos_weight,
                                              .kind = LK_LOSS_BCE_WITH_LOGITS,
                                              .reduction = options.reduction});
}

/* One struct serves four losses: a number that belongs to another one of them would have no effect. */
static lk_status check_regression(const char *type, const lk_regression_options *options)
{
    if (options->beta != 0 && strcmp(type, "SmoothL1Loss") != 0)
        return lki_fail(LK_ERR_INVALID, "%s: beta belongs to SmoothL1Loss", type);
    if (options->delta != 0 && strcmp(type, "HuberLoss") != 0)
        return lki_fail(LK_ERR_INVALID, "%s: delta belongs to HuberLoss", type);
    return LK_OK;
}

lk_criterion *lk_mse_loss_with(const lk_regression_options *given)
{
    LKI_TAKE(lk_regression_options, options, given, NULL);
    if (check_regression("MSELoss", &options)) return NULL;
    return create_pointwise("MSELoss",
                            (builtin_context){.kind = LK_LOSS_MSE, .reduction = options.reduction});
}

lk_criterion *lk_l1_loss_with(const lk_regression_options *given)
{
    LKI_TAKE(lk_regression_options, options, given, NULL);
    if (check_regression("L1Loss", &options)) return NULL;
    return create_pointwise("L1Loss", (builtin_context){.kind = LK_LOSS_L1, .reduction = options.reduction});
}

lk_criterion *lk_smooth_l1_loss_with(const lk_regression_options *given)
{
    LKI_TAKE(lk_regression_options, options, given, NULL);
    double beta = lki_number_or(options.beta, 1);
    if (check_regression("SmoothL1Loss", &options)) return NULL;
    if (!(beta >= 0) || isinf(beta))
        return lki_fail_null(LK_ERR_INVALID, "SmoothL1Loss: beta: expected 0 or more, found %g", beta);
    return create_pointwise("SmoothL1Loss",
                            (builtin_context){.kind = beta == 0 ? LK_LOSS_L1 : LK_LOSS_SMOOTH_L1,
                                              .parameter = beta,
                                              .reduction = options.reduction});
}

lk_criterion *lk_huber_loss_with(const lk_regression_options *given)
{
    LKI_TAKE(lk_regression_options, options, given, NULL);
    double delta = lki_number_or(options.delta, 1);
    if (check_regression("HuberLoss", &options)) return NULL;
    if (!(delta > 0) || isinf(delta))
        return lki_fail_null(LK_ERR_INVALID, "HuberLoss: delta: expected more than 0, found %g", delta);
    return create_pointwise(
        "HuberLoss",
        (builtin_context){.kind = LK_LOSS_HUBER, .parameter = delta, .reduction = options.reduction});
}

lk_criterion *lk_kl_div_loss_with(const lk_kl_div_loss_options *given)
{
    LKI_TAKE(lk_kl_div_loss_options, options, given, NULL);
    return create_pointwise("KLDivLoss", (builtin_context){.kind = LK_LOSS_KL_DIV,
                                                           .parameter = options.log_target,
                                                           .reduction = options.reduction});
}
