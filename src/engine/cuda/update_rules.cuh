/* The update rules, one element at a time: for the kernels over flat slices (update.cu) and for steps that
 * are one kernel (small_kernel.cuh). Throughout g = grad_scale * gradient (negated with maximize), p is the
 * parameter. */
#ifndef LKI_CUDA_UPDATE_RULES_CUH
#define LKI_CUDA_UPDATE_RULES_CUH

#include "engine/cuda/kernels.cuh"

/* One element of each slice, in what it is computed in. */
template <typename W> struct lki_cuda_element {
    W p, g, s0, s1, s2;
};

/* The numbers of this step, rounded once from f64. */
template <typename W> struct lki_cuda_numbers {
    W lr, momentum, undamped, decay, beta1, rest1, beta2, rest2, eps, alpha, rest_alpha, scale;
    W rate, root2, bias1, bias2; /* lr / bias1, or adagrad's lr; sqrt(bias2) */
    bool nesterov, amsgrad, centered, is_first_step;
};

/* skipped: updates that a scaler has left out. */
template <typename W>
static __device__ lki_cuda_numbers<W> lki_cuda_numbers_of(const lki_cuda_hyper *h, double skipped, int rule)
{
    const double step = (double)h->step - skipped;
    lki_cuda_numbers<W> n;
    n.lr = (W)h->lr;
    n.momentum = (W)h->momentum;
    n.undamped = (W)(1 - h->dampening);
    n.decay = rule == LK_UPDATE_ADAMW ? (W)(1 - h->lr * h->weight_decay) : (W)h->weight_decay;
    n.beta1 = (W)h->beta1;
    n.rest1 = (W)(1 - h->beta1);
    n.beta2 = (W)h->beta2;
    n.rest2 = (W)(1 - h->beta2);
    n.eps = (W)h->eps;
    n.alpha = (W)h->alpha;
    n.rest_alpha = (W)(1 - h->alpha);
    n.scale = (W)(h->maximize ? -h->grad_scale : h->grad_scale);
    const bool known = skipped == 0 || h->no_debias;
    n.bias1 = (W)(known ? h->bias1 : 1 - pow(h->beta1, step));
    n.bias2 = (W)(known ? h->bias2 : 1 - pow(h->beta2, step));
    n.rate = rule == LK_UPDATE_ADAGRAD ? n.lr / ((W)1 + (W)(step - 1) * (W)h->lr_decay) : n.lr / n.bias1;
    n.root2 = sqrt(n.bias2);
    n.nesterov = h->nesterov;
    n.amsgrad = h->amsgrad;
    n.centered = h->centered;
    n.is_first_step = step <= 1;
    return n;
}

/* g += decay p; buffer = g at the first step, else momentum buffer + (1 - dampening) g; p -= lr (g + momentum
 * buffer) with nesterov, else p -= lr buffer. */
template <typename W>
static __device__ void lki_cuda_sgd(const lki_cuda_numbers<W> &n, lki_cuda_element<W> &e)
{
    W g = fma(n.decay, e.p, e.g * n.scale);
    if (n.momentum != 0) {
        e.s0 = n.is_first_step ? g : fma(n.momentum, e.s0, n.undamped * g);
        g = n.nesterov ? fma(n.momentum, e.s0, g) : e.s0;
    }
    e.p = fma(-n.lr, g, e.p);
}

/* m and v are averages of g and g^2; p -= lr / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + eps). adam adds
 * decay p to g, adamw shrinks p by 1 - lr decay first; amsgrad takes the largest v so far. */
template <typename W, bool DECOUPLED>
static __device__ void lki_cuda_adam(const lki_cuda_numbers<W> &n, lki_cuda_element<W> &e)
{
    W g = e.g * n.scale;
    if (DECOUPLED)
        e.p = lki_cuda_rounded_product(e.p, n.decay);
    else
        g = fma(n.decay, e.p, g);
    e.s0 = fma(n.beta1, e.s0, n.rest1 * g);
    e.s1 = fma(n.beta2, e.s1, n.rest2 * (g * g));
    W second = e.s1;
    if (n.amsgrad) e.s2 = second = lki_cuda_larger(second, e.s2);
    e.p -= n.rate * e.s0 / (sqrt(second) / n.root2 + n.eps);
}

/* s is an average of g^2 and, where centered, a of g: d = sqrt(s - a^2) + eps; with momentum b = momentum b +
 * g / d and p -= lr b, else p -= lr g / d. */
template <typename W>
static __device__ void lki_cuda_rmsprop(const lki_cuda_numbers<W> &n, lki_cuda_element<W> &e)
{
    W g = fma(n.decay, e.p, e.g * n.scale);
    W s = e.s0 = fma(n.alpha, e.s0, n.rest_alpha * (g * g));
    if (n.centered) {
        e.s2 = fma(n.alpha, e.s2, n.rest_alpha * g);
        s = fma(-e.s2, e.s2, s);
    }
    W change = g / (sqrt(s) + n.eps);
    if (n.momentum > 0) e.s1 = change = fma(n.momentum, e.s1, change);
    e.p = fma(-n.lr, change, e.p);
}

/* s += g^2; p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps). */
template <typename W>
static __device__ void lki_cuda_adagrad(const lki_cuda_numbers<W> &n, lki_cuda_element<W> &e)
{
    W g = fma(n.decay, e.p, e.g * n.scale);
    e.s0 = fma(g, g, e.s0);
    e.p -= n.rate * g / (sqrt(e.s0) + n.eps);
}

/* The averages of lamb, whose parameter moves only when both norms are known. */
template <typename W>
static __device__ void lki_cuda_lamb_average(const lki_cuda_numbers<W> &n, lki_cuda_element<W> &e)
{
    W g = e.g * n.scale;
    e.s0 = fma(n.beta1, e.s0, n.rest1 * g);
    e.s1 = fma(n.beta2, e.s1, n.rest2 * (g * g));
}

/* u = m^ / (sqrt(v^) + eps) + decay p, with m^ and v^ corrected for their start at zero unless no_debias. */
template <typename W>
static __device__ W lki_cuda_lamb_direction(const lki_cuda_numbers<W> &n, const lki_cuda_element<W> &e)
{
    return fma(n.decay, e.p, e.s0 / n.bias1 / (sqrt(e.s1 / n.bias2) + n.eps));
}

template <typename W, int RULE>
static __device__ void lki_cuda_apply_rule(const lki_cuda_numbers<W> &n, lki_cuda_element<W> &e)
{
    if (RULE == LK_UPDATE_SGD) lki_cuda_sgd(n, e);
    if (RULE == LK_UPDATE_ADAM) lki_cuda_adam<W, false>(n, e);
    if (RULE == LK_UPDATE_ADAMW) lki_cuda_adam<W, true>(n, e);
    if (RULE == LK_UPDATE_RMSPROP) lki_cuda_rmsprop(n, e);
    if (RULE == LK_UPDATE_ADAGRAD) lki_cuda_adagrad(n, e);
}

#endif
