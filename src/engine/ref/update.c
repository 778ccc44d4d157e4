/* The update half of a step, over flat slices and in place: optimizers, clipping, accumulation.
 *
 * Throughout: g = grad_scale * gradient (negated with maximize), p the parameter, t the step from 1 on. */
#include "engine/ref/ref.h"

#include "base/status.h"

#include <math.h>

enum { UPDATE_SCALER = 5, CLIP_SCALER = 1 }; /* where a scaler stands among the operands */

static double scale_of(const lk_hyper *hyper)
{
    return hyper->grad_scale != 0 ? hyper->grad_scale : 1;
}

/* A number of the scaler in operand `index`; 0 where there is none. */
static double scaler_at(const lk_call *call, int index, lk_scaler_field field)
{
    const lk_tensor *scaler = lki_ref_in(call, index);
    return scaler ? lki_ref_get(scaler, field) : 0;
}

/* t: updates that were made count, skipped ones do not. */
static double step_of(const lk_call *call)
{
    return (double)call->attr->update.hyper->step - scaler_at(call, UPDATE_SCALER, LK_SCALER_SKIPPED);
}

static double gradient_at(const lk_call *call, int64_t i)
{
    const lk_hyper *hyper = call->attr->update.hyper;
    double g = lki_ref_get(&call->in[1], i) * scale_of(hyper);
    return hyper->maximize ? -g : g;
}

/* Moves an average in place: s = decay s + (1 - decay) x. Returns it. */
static double average(const lk_tensor *state, int64_t i, double decay, double x)
{
    double s = decay * lki_ref_get(state, i) + (1 - decay) * x;
    lki_ref_set(state, i, s);
    return s;
}

/* g += decay p; buffer = g at the first step, else momentum buffer + (1 - dampening) g; p -= lr (g + momentum
 * buffer) with nesterov, else p -= lr buffer. */
static void sgd(const lk_call *call, int64_t count)
{
    const lk_hyper *h = call->attr->update.hyper;
    const lk_tensor *param = &call->in[0], *buffer = lki_ref_in(call, 2);
    for (int64_t i = 0; i < count; i++) {
        double p = lki_ref_get(param, i);
        double g = gradient_at(call, i) + h->weight_decay * p;
        if (h->momentum != 0) {
            double b = step_of(call) <= 1 ? g : h->momentum * lki_ref_get(buffer, i) + (1 - h->dampening) * g;
            lki_ref_set(buffer, i, b);
            g = h->nesterov ? g + h->momentum * b : b;
        }
        lki_ref_set(param, i, p - h->lr * g);
    }
}

/* m and v are averages of g and g^2; p -= lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps). adam adds
 * decay p to g, adamw shrinks p by 1 - lr decay first; amsgrad takes the largest v so far. */
static void adam(const lk_call *call, int64_t count, bool decoupled)
{
    const lk_hyper *h = call->attr->update.hyper;
    const lk_tensor *param = &call->in[0], *m = &call->in[2], *v = &call->in[3], *v_max = lki_ref_in(call, 4);
    double correction1 = 1 - pow(h->beta1, step_of(call)), correction2 = 1 - pow(h->beta2, step_of(call));
    for (int64_t i = 0; i < count; i++) {
        double p = lki_ref_get(param, i), g = gradient_at(call, i);
        if (decoupled)
            p *= 1 - h->lr * h->weight_decay;
        else
            g += h->weight_decay * p;
        double first = average(m, i, h->beta1, g), second = average(v, i, h->beta2, g * g);
        if (h->amsgrad) {
            second = fmax(second, lki_ref_get(v_max, i));
            lki_ref_set(v_max, i, second);
        }
        double denominator = sqrt(second) / sqrt(correction2) + h->eps;
        lki_ref_set(param, i, p - h->lr / correction1 * first / denominator);
    }
}

/* s is an average of g^2 and, where centered, a of g: d = sqrt(s - a^2) + eps; with momentum b = momentum b +
 * g / d and p -= lr b, else p -= lr g / d. */
static void rmsprop(const lk_call *call, int64_t count)
{
    const lk_hyper *h = call->attr->update.hyper;
    const lk_tensor *param = &call->in[0], *square = &call->in[2];
    const lk_tensor *buffer = lki_ref_in(call, 3), *mean = lki_ref_in(call, 4);
    for (int64_t i = 0; i < count; i++) {
        double p = lki_ref_get(param, i);
        double g = gradient_at(call, i) + h->weight_decay * p;
        double s = average(square, i, h->alpha, g * g);
        if (h->centered) {
            double a = average(mean, i, h->alpha, g);
            s -= a * a;
        }
        double change = g / (sqrt(s) + h->eps);
        if (h->momentum > 0) {
            change += h->momentum * lki_ref_get(buffer, i);
            lki_ref_set(buffer, i, change);
        }
        lki_ref_set(param, i, p - h->lr * change);
    }
}

/* s += g^2; p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps). */
static void adagrad(const lk_call *call, int64_t count)
{
    const lk_hyper *h = call->attr->update.hyper;
    const lk_tensor *param = &call->in[0], *sum = &call->in[2];
    double lr = h->lr / (1 + (step_of(call) - 1) * h->lr_decay);
    for (int64_t i = 0; i < count; i++) {
        double p = lki_ref_get(param, i);
        double g = gradient_at(call, i) + h->weight_decay * p;
        double s = lki_ref_get(sum, i) + g * g;
        lki_ref_set(sum, i, s);
        lki_ref_set(param, i, p - lr * g / (sqrt(s) + h->eps));
    }
}

/* u = m^ / (sqrt(v^) + eps) + decay p, with m^ and v^ corrected for their start at zero unless no_debias. */
static double lamb_direction(const lk_call *call, int64_t i)
{
    const lk_hyper *h = call->attr->update.hyper;
    double m = lki_ref_get(&call->in[2], i), v = lki_ref_get(&call->in[3], i);
    if (!h->no_debias) {
        m /= 1 - pow(h->beta1, step_of(call));
        v /= 1 - pow(h->beta2, step_of(call));
    }
    return m / (sqrt(v) + h->eps) + h->weight_decay * lki_ref_get(&call->in[0], i);
}

/* r = |p| / |u| over the whole parameter, with |p| at most `clip`; 1 if either norm is 0. */
static double trust_ratio(const lk_hyper *h, double param_square, double direction_square)
{
    if (h->no_trust || !(param_square > 0) || !(direction_square > 0)) return 1;
    double norm = sqrt(param_square);
    return (h->clip > 0 && norm > h->clip ? h->clip : norm) / sqrt(direction_square);
}

/* p -= lr r u with the trust ratio r. */
static void lamb(const lk_call *call, int64_t count)
{
    const lk_hyper *h = call->attr->update.hyper;
    const lk_tensor *param = &call->in[0];
    double param_square = 0, direction_square = 0;
    for (int64_t i = 0; i < count; i++) {
        double g = gradient_at(call, i), p = lki_ref_get(param, i);
        average(&call->in[2], i, h->beta1, g);
        average(&call->in[3], i, h->beta2, g * g);
        double u = lamb_direction(call, i);
        param_square += p * p;
        direction_square += u * u;
    }
    double ratio = trust_ratio(h, param_square, direction_square);
    for (int64_t i = 0; i < count; i++)
        lki_ref_set(param, i, lki_ref_get(param, i) - h->lr * ratio * lamb_direction(call, i));
}

/* mu_t = beta1 (1 - 0.96^(t decay) / 2). */
static double nadam_mu(const lk_hyper *h, double step)
{
    return h->beta1 * (1 - 0.5 * pow(0.96, step * h->lr_decay));
}

/* m and v as adam's, P the product of mu_1 ... mu_t, d = sqrt(v / (1 - beta2^t)) + eps; p -= lr ((1 - mu_t) /
 * (1 - P) g + mu_(t+1) / (1 - P mu_t mu_(t+1)) m) / d. PyTorch 1.13 counts mu_t twice there. */
static void nadam(const lk_call *call, int64_t count)
{
    const lk_hyper *h = call->attr->update.hyper;
    const lk_tensor *param = &call->in[0];
    double step = step_of(call), mu = nadam_mu(h, step), next = nadam_mu(h, step + 1);
    for (int64_t i = 0; i < count; i++) {
        double p = lki_ref_get(param, i), g = gradient_at(call, i) + h->weight_decay * p;
        double m = average(&call->in[2], i, h->beta1, g), v = average(&call->in[3], i, h->beta2, g * g);
        double product = (step <= 1 ? 1 : lki_ref_get(&call->in[4], i)) * mu;
        lki_ref_set(&call->in[4], i, product);
        double direction = (1 - mu) / (1 - product) * g + next / (1 - product * mu * next) * m;
        lki_ref_set(param, i, p - h->lr * direction / (sqrt(v / (1 - pow(h->beta2, step))) + h->eps));
    }
}

typedef struct radam_rate {
    double rate;
    bool rectifies; /* the second moment is known well enough */
} radam_rate;

/* rho = 2 / (1 - beta2) - 1, rho_t = rho - 2 t beta2^t / (1 - beta2^t); from rho_t > 5 on r^2 = (rho_t - 4)
 * (rho_t - 2) rho /
 * ((rho - 4) (rho - 2) rho_t). */
static radam_rate radam_rate_at(const lk_hyper *h, double step)
{
    double left = pow(h->beta2, step), rate = h->lr / (1 - pow(h->beta1, step));
    double most = 2 / (1 - h->beta2) - 1, now = most - 2 * step * left / (1 - left);
    if (!(now > 5)) return (radam_rate){rate, false};
    double square = (now - 4) * (now - 2) * most / ((most - 4) * (most - 2) * now);
    return (radam_rate){rate * sqrt(square * (1 - left)), true};
}

/* p -= rate m / (sqrt(v) + eps) with rate = lr r sqrt(1 - beta2^t) / (1 - beta1^t); as long as r is not
 * known, p -= lr / (1 - beta1^t) m. */
static void radam(const lk_call *call, int64_t count)
{
    const lk_hyper *h = call->attr->update.hyper;
    const lk_tensor *param = &call->in[0];
    radam_rate rate = radam_rate_at(h, step_of(call));
    for (int64_t i = 0; i < count; i++) {
        double p = lki_ref_get(param, i), g = gradient_at(call, i) + h->weight_decay * p;
        double m = average(&call->in[2], i, h->beta1, g), v = average(&call->in[3], i, h->beta2, g * g);
        lki_ref_set(param, i, p - rate.rate * (rate.rectifies ? m / (sqrt(v) + h->eps) : m));
    }
}

/* s is an average of g^2; d = sqrt(a + eps) / sqrt(s + eps) g, a is an average of d^2; p -= lr d. */
static void adadelta(const lk_call *call, int64_t count)
{
    const lk_hyper *h = call->attr->update.hyper;
    const lk_tensor *param = &call->in[0];
    for (int64_t i = 0; i < count; i++) {
        double p = lki_ref_get(param, i), g = gradient_at(call, i) + h->weight_decay * p;
        double s = average(&call->in[2], i, h->alpha, g * g), a = lki_ref_get(&call->in[3], i);
        double change = sqrt(a + h->eps) / sqrt(s + h->eps) * g;
        average(&call->in[3], i, h->alpha, change * change);
        lki_ref_set(param, i, p - h->lr * change);
    }
}

/* u = max(beta2 u, |g| + eps); p -= lr / (1 - beta1^t) m / u. */
static void adamax(const lk_call *call, int64_t count)
{
    const lk_hyper *h = call->attr->update.hyper;
    const lk_tensor *param = &call->in[0];
    double rate = h->lr / (1 - pow(h->beta1, step_of(call)));
    for (int64_t i = 0; i < count; i++) {
        double p = lki_ref_get(param, i), g = gradient_at(call, i) + h->weight_decay * p;
        double m = average(&call->in[2], i, h->beta1, g);
        double u = fmax(h->beta2 * lki_ref_get(&call->in[3], i), fabs(g) + h->eps);
        lki_ref_set(&call->in[3], i, u);
        lki_ref_set(param, i, p - rate * m / u);
    }
}

/* s = lr at the first step; it grows where g has the sign of the last g, and shrinks where g has the other
 * one, which then counts as 0; p -= sign(g) s. */
static void rprop(const lk_call *call, int64_t count)
{
    const lk_hyper *h = call->attr->update.hyper;
    const lk_tensor *param = &call->in[0];
    bool first = step_of(call) <= 1;
    for (int64_t i = 0; i < count; i++) {
        double g = gradient_at(call, i), turn = first ? 0 : g * lki_ref_get(&call->in[2], i);
        double s = first ? h->lr : lki_ref_get(&call->in[3], i);
        s = fmin(fmax(s * (turn > 0 ? h->lr_decay : turn < 0 ? h->alpha : 1), h->eps), h->clip);
        if (turn < 0) g = 0;
        lki_ref_set(&call->in[2], i, g);
        lki_ref_set(&call->in[3], i, s);
        lki_ref_set(param, i, lki_ref_get(param, i) - ((g > 0) - (g < 0)) * s);
    }
}

/* p = (1 - lambd eta) p - eta g, with the eta that the last step left; ax moves by mu = 1 / max(1, t - 1 -
 * t0) towards p; eta = lr / (1 + lambd lr t)^alpha. */
static void asgd(const lk_call *call, int64_t count)
{
    const lk_hyper *h = call->attr->update.hyper;
    const lk_tensor *param = &call->in[0], *ax = &call->in[2], *eta = &call->in[3];
    double step = step_of(call), mu = 1 / fmax(1, step - 1 - h->dampening);
    double next = h->lr / pow(1 + h->lr_decay * h->lr * step, h->alpha);
    for (int64_t i = 0; i < count; i++) {
        double p = lki_ref_get(param, i), g = gradient_at(call, i) + h->weight_decay * p;
        double rate = step <= 1 ? h->lr : lki_ref_get(eta, i), old = lki_ref_get(ax, i);
        p = (1 - h->lr_decay * rate) * p - rate * g;
        lki_ref_set(param, i, p);
        lki_ref_set(ax, i, mu == 1 ? p : old + (p - old) * mu);
        lki_ref_set(eta, i, next);
    }
}

/* c = beta1 m + (1 - beta1) g; p = (1 - lr decay) p - lr sign(c); m is an average of g by beta2. */
static void lion(const lk_call *call, int64_t count)
{
    const lk_hyper *h = call->attr->update.hyper;
    const lk_tensor *param = &call->in[0];
    for (int64_t i = 0; i < count; i++) {
        double p = lki_ref_get(param, i), g = gradient_at(call, i);
        double c = h->beta1 * lki_ref_get(&call->in[2], i) + (1 - h->beta1) * g;
        average(&call->in[2], i, h->beta2, g);
        lki_ref_set(param, i, p * (1 - h->lr * h->weight_decay) - h->lr * ((c > 0) - (c < 0)));
    }
}

lk_status lki_ref_update(const lk_call *call)
{
    int64_t count = lk_tensor_count(&call->in[0]);
    if (scaler_at(call, UPDATE_SCALER, LK_SCALER_FOUND) != 0) return LK_OK;
    switch (call->attr->update.rule) {
    case LK_UPDATE_SGD: sgd(call, count); return LK_OK;
    case LK_UPDATE_ADAM: adam(call, count, false); return LK_OK;
    case LK_UPDATE_ADAMW: adam(call, count, true); return LK_OK;
    case LK_UPDATE_RMSPROP: rmsprop(call, count); return LK_OK;
    case LK_UPDATE_ADAGRAD: adagrad(call, count); return LK_OK;
    case LK_UPDATE_LAMB: lamb(call, count); return LK_OK;
    case LK_UPDATE_NADAM: nadam(call, count); return LK_OK;
    case LK_UPDATE_RADAM: radam(call, count); return LK_OK;
    case LK_UPDATE_ADADELTA: adadelta(call, count); return LK_OK;
    case LK_UPDATE_ADAMAX: adamax(call, count); return LK_OK;
    case LK_UPDATE_RPROP: rprop(call, count); return LK_OK;
    case LK_UPDATE_ASGD: asgd(call, count); return LK_OK;
    case LK_UPDATE_LION: lion(call, count); return LK_OK;
    case LK_UPDATE_COUNT: break;
    }
    return lki_fail(LK_ERR_UNSUPPORTED, "there is no update rule %d", (int)call->attr->update.rule);
}

/* n = |grad_scale g|; g *= clip / (n + 1e-6) where that is below 1. The scale itself is left to the update,
 * which applies it to what it reads. */
lk_status lki_ref_clip_norm(const lk_call *call)
{
    lk_hyper *hyper = call->attr->update.hyper;
    const lk_tensor *grad = &call->in[0];
    int64_t count = lk_tensor_count(grad);
    double square = 0;
    if (scaler_at(call, CLIP_SCALER, LK_SCALER_FOUND) != 0) return LK_OK;
    for (int64_t i = 0; i < count; i++) square += lki_ref_get(grad, i) * lki_ref_get(grad, i);
    hyper->grad_norm = sqrt(square) * fabs(scale_of(hyper));
    double factor = hyper->clip / (hyper->grad_norm + 1e-6);
    if (factor >= 1) return LK_OK; /* a NaN goes on and makes every gradient one, as in PyTorch */
    for (int64_t i = 0; i < count; i++) lki_ref_set(grad, i, lki_ref_get(grad, i) * factor);
    return LK_OK;
}

/* grad_scale g is held within -clip..clip. */
lk_status lki_ref_clip_value(const lk_call *call)
{
    const lk_hyper *hyper = call->attr->update.hyper;
    const lk_tensor *grad = &call->in[0];
    int64_t count = lk_tensor_count(grad);
    double limit = hyper->clip / fabs(scale_of(hyper));
    if (scaler_at(call, CLIP_SCALER, LK_SCALER_FOUND) != 0) return LK_OK;
    for (int64_t i = 0; i < count; i++) {
        double g = lki_ref_get(grad, i);
        lki_ref_set(grad, i, g > limit ? limit : g < -limit ? -limit : g);
    }
    return LK_OK;
}

lk_status lki_ref_accumulate(const lk_call *call)
{
    const lk_tensor *sum = &call->in[0], *grad = &call->in[1];
    int64_t count = lk_tensor_count(sum);
    for (int64_t i = 0; i < count; i++) {
        double before = call->attr->update.hyper->first ? 0 : lki_ref_get(sum, i);
        lki_ref_set(sum, i, before + lki_ref_get(grad, i));
    }
    return LK_OK;
}

/* A scale that has been right for long enough is made larger, unless it could not be larger in f32. */
static void settle(const lk_call *call, const lk_tensor *scaler, bool found)
{
    double scale = lki_ref_get(scaler, LK_SCALER_SCALE), tracker = lki_ref_get(scaler, LK_SCALER_TRACKER) + 1;
    lki_ref_set(scaler, LK_SCALER_FOUND, found);
    if (found) {
        lki_ref_set(scaler, LK_SCALER_SCALE, scale * call->attr->unscale.backoff_factor);
        lki_ref_add(scaler, LK_SCALER_SKIPPED, 1);
        tracker = 0;
    } else if (tracker >= (double)call->attr->unscale.growth_interval) {
        float grown = (float)(scale * call->attr->unscale.growth_factor);
        if (isfinite(grown)) lki_ref_set(scaler, LK_SCALER_SCALE, grown);
        tracker = 0;
    }
    lki_ref_set(scaler, LK_SCALER_TRACKER, tracker);
}

lk_status lki_ref_unscale(const lk_call *call)
{
    const lk_tensor *grad = &call->in[0], *scaler = &call->in[1];
    int64_t count = lk_tensor_count(grad);
    double factor = 1 / lki_ref_get(scaler, LK_SCALER_SCALE);
    bool found = false;
    for (int64_t i = 0; i < count; i++) {
        double g = lki_ref_get(grad, i);
        found = found || !isfinite(g);
        lki_ref_set(grad, i, g * factor);
    }
    settle(call, scaler, found);
    return LK_OK;
}
