/* Losses over classes that the plain cross-entropy of loss.c does not cover. For sample i with the target q
 *
 *     loss_i = - sum_c q_ic logp_ic        dlogits_ic = g_i (exp(logp_ic) sum_k q_ik - q_ic)
 *
 * q_ic = w_c ((1 - s) t_ic + s / C) with label smoothing s, where t is a probability, or 1 at the class and 0
 * elsewhere; an ignored sample has none. And the negative log-likelihood, of one class per sample. */
#include "engine/cpu/class_loss.h"

#include "base/status.h"

#include <math.h>
#include <string.h>

typedef struct soft {
    const lk_call *call;
    lki_classes c;
    const float *probabilities; /* (outer, count, inner), or NULL */
    const float *logp;
    float *out;
    double *losses; /* of each sample */
    double smoothing, scale;
    const float *each; /* dloss of every sample, or NULL: `scale` */
} soft;

static soft describe(const lk_call *call, const lk_tensor *scores, int target)
{
    soft s = {.call = call,
              .c = lki_classes_of(call, scores->shape, target),
              .smoothing = call->attr->class_loss.label_smoothing};
    if (call->in[target].dtype != LK_F32) return s;
    s.c.target = NULL;
    s.probabilities = call->in[target].data;
    return s;
}

static double coefficient(const soft *s, int64_t sample, int64_t at, int64_t k)
{
    double share = s->probabilities ? s->probabilities[at] : s->c.target[sample] == k;
    double weight = s->c.weight ? s->c.weight[k] : 1;
    return weight * ((1 - s->smoothing) * share + s->smoothing / (double)s->c.count);
}

static bool is_ignored(const soft *s, int64_t sample)
{
    return s->c.target && s->c.target[sample] == s->c.ignored;
}

static lk_status check(const soft *s)
{
    return s->c.target ? lki_classes_check(&s->c) : LK_OK;
}

/* What a mean divides by. */
static double divisor(const soft *s)
{
    if (s->call->attr->class_loss.reduction != LK_REDUCTION_MEAN) return 1;
    return s->c.target ? lki_classes_total(&s->c) : (double)(s->c.outer * s->c.inner);
}

static void loss_range(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const soft *s = context;
    for (int64_t o = begin; o < end; o++)
        for (int64_t i = 0; i < s->c.inner; i++) {
            int64_t sample = o * s->c.inner + i;
            double sum = 0;
            for (int64_t k = 0; k < s->c.count && !is_ignored(s, sample); k++) {
                int64_t at = (o * s->c.count + k) * s->c.inner + i;
                double q = coefficient(s, sample, at, k);
                if (q != 0) sum -= q * s->logp[at]; /* 0 times -inf is 0 here */
            }
            s->losses[sample] = sum;
        }
}

static void reduce(const soft *s, float *loss)
{
    int64_t count = s->c.outer * s->c.inner;
    double sum = 0;
    if (s->call->attr->class_loss.reduction == LK_REDUCTION_NONE) {
        for (int64_t i = 0; i < count; i++) loss[i] = (float)s->losses[i];
        return;
    }
    for (int64_t i = 0; i < count; i++) sum += s->losses[i];
    loss[0] = (float)(sum / divisor(s));
}

static size_t losses_nbytes(const soft *s)
{
    return ((size_t)(s->c.outer * s->c.inner) * sizeof(double) + 63) / 64 * 64;
}

static lk_status run_cross_entropy(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    soft s = describe(call, &call->in[0], 1);
    LKI_TRY(check(&s));
    s.losses = call->scratch;
    float *logp =
        call->out[1].data ? call->out[1].data : (float *)((char *)call->scratch + losses_nbytes(&s));
    s.logp = logp;
    lki_classes_log_softmax(cpu, &s.c, call->in[0].data, logp);
    if (!call->out[0].data) return LK_OK;
    lki_parallel_for(cpu->pool, s.c.outer, lki_classes_grain(&s.c), loss_range, &s);
    reduce(&s, call->out[0].data);
    return LK_OK;
}

static bool fits(const lk_call *call, int target)
{
    bool is_class = call->in[target].dtype == LK_I64;
    return lki_cpu_all_f32(call, is_class ? 1u << target : 0);
}

lk_status lki_cpu_prepare_soft_cross_entropy(lk_call *call)
{
    if (!fits(call, 1)) return LK_OK;
    soft s = describe(call, &call->in[0], 1);
    call->scratch_nbytes = losses_nbytes(&s) + (call->out[1].data ? 0 : lk_tensor_nbytes(&call->in[0]));
    call->run = run_cross_entropy;
    return LK_OK;
}

static void sample_grad(const soft *s, int64_t sample, int64_t first)
{
    const float *logp = s->logp + first;
    float *dx = s->out + first;
    double g = s->each ? s->each[sample] : s->scale, mass = 0;
    int64_t step = s->c.inner, count = s->c.count;
    if (is_ignored(s, sample)) { /* its log-probabilities may be anything */
        for (int64_t k = 0; k < count; k++) dx[k * step] = 0;
        return;
    }
    for (int64_t k = 0; k < count; k++) mass += coefficient(s, sample, first + k * step, k);
    if (step == 1)
        lki_cpu_of(s->call)->kernels->scaled_exp(dx, logp, (float)(g * mass), count);
    else
        for (int64_t k = 0; k < count; k++) dx[k * step] = (float)(g * mass) * expf(logp[k * step]);
    for (int64_t k = 0; k < count; k++)
        dx[k * step] -= (float)(g * coefficient(s, sample, first + k * step, k));
}

static void grad_range(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const soft *s = context;
    for (int64_t o = begin; o < end; o++)
        for (int64_t i = 0; i < s->c.inner; i++)
            sample_grad(s, o * s->c.inner + i, o * s->c.count * s->c.inner + i);
}

/* The operands of a gradient: (dloss, logp, target, weight?). */
static soft describe_grad(const lk_call *call)
{
    soft s = describe(call, &call->in[1], 2);
    const float *dloss = call->in[0].data;
    s.logp = call->in[1].data;
    s.out = call->out[0].data;
    s.each = call->attr->class_loss.reduction == LK_REDUCTION_NONE ? dloss : NULL;
    return s;
}

static lk_status run_cross_entropy_grad(const lk_call *call)
{
    soft s = describe_grad(call);
    LKI_TRY(check(&s));
    if (!s.each) s.scale = *(const float *)call->in[0].data / divisor(&s);
    lki_parallel_for(lki_cpu_of(call)->pool, s.c.outer, lki_classes_grain(&s.c), grad_range, &s);
    return LK_OK;
}

lk_status lki_cpu_prepare_soft_cross_entropy_grad(lk_call *call)
{
    if (fits(call, 2)) call->run = run_cross_entropy_grad;
    return LK_OK;
}

/* ---- Negative log-likelihood ---- */

static int64_t place_of(const lki_classes *c, int64_t i)
{
    return (i / c->inner * c->count + c->target[i]) * c->inner + i % c->inner;
}

static lk_status run_nll(const lk_call *call)
{
    lki_classes c = lki_classes_of(call, call->in[0].shape, 1);
    const float *logp = call->in[0].data;
    float *loss = call->out[0].data;
    lk_reduction reduction = call->attr->class_loss.reduction;
    double sum = 0;
    LKI_TRY(lki_classes_check(&c));
    for (int64_t i = 0; i < c.outer * c.inner; i++) {
        double weight = lki_classes_weight(&c, i), value = weight != 0 ? -weight * logp[place_of(&c, i)] : 0;
        if (reduction == LK_REDUCTION_NONE) loss[i] = (float)value;
        sum += value;
    }
    if (reduction != LK_REDUCTION_NONE)
        loss[0] = (float)(reduction == LK_REDUCTION_MEAN ? sum / lki_classes_total(&c) : sum);
    return LK_OK;
}

lk_status lki_cpu_prepare_nll(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (call->in[1].dtype == LK_I64 && lki_cpu_all_f32(call, 1u << 1)) call->run = run_nll;
    return LK_OK;
}

/* dlogp_ic = - g_i w_t [c = t_i] */
static lk_status run_nll_grad(const lk_call *call)
{
    soft s = describe_grad(call);
    LKI_TRY(lki_classes_check(&s.c));
    if (!s.each) s.scale = *(const float *)call->in[0].data / divisor(&s);
    memset(s.out, 0, lk_tensor_nbytes(&call->out[0]));
    for (int64_t i = 0; i < s.c.outer * s.c.inner; i++) {
        double weight = lki_classes_weight(&s.c, i);
        if (weight != 0) s.out[place_of(&s.c, i)] = (float)(-weight * (s.each ? s.each[i] : s.scale));
    }
    return LK_OK;
}

lk_status lki_cpu_prepare_nll_grad(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (call->in[2].dtype == LK_I64 && lki_cpu_all_f32(call, 1u << 2)) call->run = run_nll_grad;
    return LK_OK;
}
