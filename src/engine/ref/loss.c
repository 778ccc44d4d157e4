/* Losses over classes. A loss is a reduction of one number a sample:
 *
 *     loss_i = - sum_c q_ic logp_ic
 *
 * where q is the target: for class t with weights w and label smoothing s over C classes
 *
 *     q_ic = w_c ((1 - s) [c = t_i] + s / C)
 *
 * (all zero where t_i is ignore_index) and for probability targets q_ic = w_c ((1 - s) t_ic + s / C). The
 * mean divides by sum_i w_{t_i} over the samples that count, or by the number of samples where the targets
 * are probabilities. */
#include "engine/ref/ref.h"

#include "base/status.h"

#include <math.h>

/* How a loss reads its operands: logits (n, c, s...) as n by c by inner. */
typedef struct class_loss {
    const lk_tensor *target, *weight;
    const lk_class_loss_attr *attr;
    double smoothing;
    bool probabilities;
    int64_t outer, classes, inner;
} class_loss;

static class_loss describe(const lk_call *call, lk_shape scores, int target, double smoothing)
{
    int axis = scores.rank > 1 ? 1 : 0;
    class_loss loss = {
        .target = &call->in[target],
        .weight = lki_ref_in(call, target + 1),
        .attr = &call->attr->class_loss,
        .smoothing = smoothing,
        .probabilities = lk_dtype_is_float(call->in[target].dtype),
        .outer = lki_ref_span(scores, 0, axis),
        .classes = scores.rank ? scores.dim[axis] : 1,
        .inner = lki_ref_span(scores, axis + 1, scores.rank),
    };
    return loss;
}

static int64_t sample_count(const class_loss *loss)
{
    return loss->outer * loss->inner;
}

/* Where class c of sample i lies. */
static int64_t place(const class_loss *loss, int64_t i, int64_t c)
{
    return (i / loss->inner * loss->classes + c) * loss->inner + i % loss->inner;
}

static double weight_of(const class_loss *loss, int64_t c)
{
    return loss->weight ? lki_ref_get(loss->weight, c) : 1;
}

static bool is_ignored(const class_loss *loss, int64_t i)
{
    return !loss->probabilities && lki_ref_get_i64(loss->target, i) == loss->attr->ignore_index;
}

/* q_ic of the formula above. */
static double coefficient(const class_loss *loss, int64_t i, int64_t c)
{
    if (is_ignored(loss, i)) return 0;
    double share = loss->probabilities ? lki_ref_get(loss->target, place(loss, i, c))
                                       : (double)(lki_ref_get_i64(loss->target, i) == c);
    return weight_of(loss, c) * ((1 - loss->smoothing) * share + loss->smoothing / (double)loss->classes);
}

static lk_status check_targets(const class_loss *loss)
{
    if (loss->probabilities) return LK_OK;
    int64_t count = sample_count(loss);
    for (int64_t i = 0; i < count; i++) {
        int64_t target = lki_ref_get_i64(loss->target, i);
        if (!is_ignored(loss, i) && (target < 0 || target >= loss->classes))
            return lki_fail(LK_ERR_RANGE, "target %lld at position %lld is outside of 0..%lld",
                            (long long)target, (long long)i, (long long)loss->classes - 1);
    }
    return LK_OK;
}

/* What a mean divides by. */
static double divisor(const class_loss *loss)
{
    if (loss->attr->reduction != LK_REDUCTION_MEAN) return 1;
    int64_t count = sample_count(loss);
    if (loss->probabilities) return (double)count;
    double total = 0;
    for (int64_t i = 0; i < count; i++)
        if (!is_ignored(loss, i)) total += weight_of(loss, lki_ref_get_i64(loss->target, i));
    return total;
}

/* log sum_c exp(x_c) of sample i, by way of the largest so that nothing overflows. */
static double log_sum_exp(const class_loss *loss, const lk_tensor *logits, int64_t i)
{
    double largest = -INFINITY, sum = 0;
    for (int64_t c = 0; c < loss->classes; c++)
        largest = fmax(largest, lki_ref_get(logits, place(loss, i, c)));
    for (int64_t c = 0; c < loss->classes; c++) sum += exp(lki_ref_get(logits, place(loss, i, c)) - largest);
    return largest + log(sum);
}

/* loss_i, from scores that become log-probabilities when `shift` is taken off. */
static double sample_loss(const class_loss *loss, const lk_tensor *scores, double shift, int64_t i)
{
    double sum = 0;
    for (int64_t c = 0; c < loss->classes; c++) {
        double q = coefficient(loss, i, c);
        if (q != 0) sum -= q * (lki_ref_get(scores, place(loss, i, c)) - shift); /* 0 times -inf is 0 here */
    }
    return sum;
}

static void reduce_losses(const class_loss *loss, const lk_tensor *scores, bool are_logits,
                          const lk_tensor *out)
{
    int64_t count = sample_count(loss);
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        double value = sample_loss(loss, scores, are_logits ? log_sum_exp(loss, scores, i) : 0, i);
        if (loss->attr->reduction == LK_REDUCTION_NONE) lki_ref_set(out, i, value);
        sum += value;
    }
    if (loss->attr->reduction != LK_REDUCTION_NONE) lki_ref_set(out, 0, sum / divisor(loss));
}

/* d loss / d loss_i. */
static double upstream(const class_loss *loss, const lk_tensor *dloss, int64_t i, double total)
{
    return loss->attr->reduction == LK_REDUCTION_NONE ? lki_ref_get(dloss, i) : lki_ref_get(dloss, 0) / total;
}

lk_status lki_ref_cross_entropy(const lk_call *call)
{
    const lk_tensor *logits = &call->in[0], *logp = lki_ref_out(call, 1);
    class_loss loss = describe(call, logits->shape, 1, call->attr->class_loss.label_smoothing);
    LKI_TRY(check_targets(&loss));
    if (lki_ref_out(call, 0)) reduce_losses(&loss, logits, true, &call->out[0]);
    int64_t count = sample_count(&loss);
    for (int64_t i = 0; logp && i < count; i++) {
        double total = log_sum_exp(&loss, logits, i);
        for (int64_t c = 0; c < loss.classes; c++) {
            int64_t at = place(&loss, i, c);
            lki_ref_set(logp, at, lki_ref_get(logits, at) - total);
        }
    }
    return LK_OK;
}

/* dlogits_ic = g_i (exp(logp_ic) sum_k q_ik - q_ic) */
lk_status lki_ref_cross_entropy_grad(const lk_call *call)
{
    const lk_tensor *dloss = &call->in[0], *logp = &call->in[1], *out = &call->out[0];
    class_loss loss = describe(call, logp->shape, 2, call->attr->class_loss.label_smoothing);
    LKI_TRY(check_targets(&loss));
    int64_t count = sample_count(&loss);
    double total = divisor(&loss);
    for (int64_t i = 0; i < count; i++) {
        double g = upstream(&loss, dloss, i, total), mass = 0;
        for (int64_t c = 0; c < loss.classes; c++) mass += coefficient(&loss, i, c);
        for (int64_t c = 0; c < loss.classes; c++) {
            int64_t at = place(&loss, i, c);
            double slope = exp(lki_ref_get(logp, at)) * mass - coefficient(&loss, i, c);
            lki_ref_set(out, at, is_ignored(&loss, i) ? 0 : g * slope);
        }
    }
    return LK_OK;
}

lk_status lki_ref_nll(const lk_call *call)
{
    const lk_tensor *logp = &call->in[0];
    class_loss loss = describe(call, logp->shape, 1, 0);
    LKI_TRY(check_targets(&loss));
    reduce_losses(&loss, logp, false, &call->out[0]);
    return LK_OK;
}

/* dlogp_ic = - g_i q_ic */
lk_status lki_ref_nll_grad(const lk_call *call)
{
    const lk_tensor *dloss = &call->in[0], *logp = &call->in[1], *out = &call->out[0];
    class_loss loss = describe(call, logp->shape, 2, 0);
    LKI_TRY(check_targets(&loss));
    int64_t count = sample_count(&loss);
    double total = divisor(&loss);
    for (int64_t i = 0; i < count; i++)
        for (int64_t c = 0; c < loss.classes; c++) {
            double q = coefficient(&loss, i, c);
            lki_ref_set(out, place(&loss, i, c), q != 0 ? -q * upstream(&loss, dloss, i, total) : 0);
        }
    return LK_OK;
}
