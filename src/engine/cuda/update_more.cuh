/* The update rules of fewer users, one element at a time: as update_rules.cuh, but a step that is one kernel
 * has none of them. */
#ifndef LKI_CUDA_UPDATE_MORE_CUH
#define LKI_CUDA_UPDATE_MORE_CUH

#include "engine/cuda/update_rules.cuh"

/* The numbers of this step, rounded once from f64; op.h says which field of lk_hyper holds what. */
template <typename W> struct lki_cuda_more_numbers {
    W lr, decay, beta1, rest1, beta2, rest2, eps, scale;
    W rate;     /* lr, corrected for averages that start at zero */
    W root2;    /* sqrt(1 - beta2^t) */
    W mu, next; /* nadam: mu of this step and the next; asgd: mu of this step, eta of the next */
    W rho, rest_rho, high, lambd;
    bool is_first_step, rectifies;
};

/* rho = 2 / (1 - beta2) - 1, rho_t = rho - 2 t beta2^t / (1 - beta2^t); from rho_t > 5 on r^2 = (rho_t - 4)
 * (rho_t - 2) rho / ((rho - 4) (rho - 2) rho_t), and the rate is lr r sqrt(1 - beta2^t) / (1 - beta1^t). */
static __device__ inline double lki_cuda_radam_factor(double beta2, double bias2, double step)
{
    double most = 2 / (1 - beta2) - 1, now = most - 2 * step * (1 - bias2) / bias2;
    if (!(now > 5)) return 0;
    return sqrt((now - 4) * (now - 2) * most / ((most - 4) * (most - 2) * now) * bias2);
}

template <typename W>
static __device__ lki_cuda_more_numbers<W> lki_cuda_more_numbers_of(const lki_cuda_hyper *h, double skipped,
                                                                    int rule)
{
    const double step = (double)h->step - skipped;
    const double bias1 = skipped == 0 ? h->bias1 : 1 - pow(h->beta1, step);
    const double bias2 = skipped == 0 ? h->bias2 : 1 - pow(h->beta2, step);
    lki_cuda_more_numbers<W> n = {};
    n.lr = (W)h->lr;
    n.decay = rule == LK_UPDATE_LION ? (W)(1 - h->lr * h->weight_decay) : (W)h->weight_decay;
    n.beta1 = (W)h->beta1;
    n.rest1 = (W)(1 - h->beta1);
    n.beta2 = (W)h->beta2;
    n.rest2 = (W)(1 - h->beta2);
    n.eps = (W)h->eps;
    n.scale = (W)(h->maximize ? -h->grad_scale : h->grad_scale);
    n.rate = (W)(h->lr / bias1);
    n.root2 = (W)sqrt(bias2);
    n.rho = (W)h->alpha;
    n.rest_rho = (W)(1 - h->alpha);
    n.high = (W)h->clip;
    n.lambd = (W)h->lr_decay;
    n.is_first_step = step <= 1;
    if (rule == LK_UPDATE_NADAM) {
        n.mu = (W)(h->beta1 * (1 - 0.5 * pow(0.96, step * h->lr_decay)));
        n.next = (W)(h->beta1 * (1 - 0.5 * pow(0.96, (step + 1) * h->lr_decay)));
    }
    if (rule == LK_UPDATE_RADAM) {
        const double factor = lki_cuda_radam_factor(h->beta2, bias2, step);
        n.rectifies = factor > 0;
        if (n.rectifies) n.rate = (W)(h->lr / bias1 * factor);
    }
    if (rule == LK_UPDATE_ASGD) {
        n.mu = (W)(1 / fmax(1.0, step - 1 - h->dampening));
        n.next = (W)(h->lr / pow(1 + h->lr_decay * h->lr * step, h->alpha));
    }
    return n;
}

template <typename W> static __device__ W lki_cuda_sign(W x)
{
    return (W)((x > 0) - (x < 0));
}

template <typename W>
static __device__ void lki_cuda_more_moments(const lki_cuda_more_numbers<W> &n, lki_cuda_element<W> &e, W g)
{
    e.s0 = fma(n.beta1, e.s0, n.rest1 * g);
    e.s1 = fma(n.beta2, e.s1, n.rest2 * (g * g));
}

/* P, the product of mu_1 ... mu_t, is a state; p -= lr ((1 - mu_t) / (1 - P) g + mu_(t+1) / (1 - P mu_t
 * mu_(t+1)) m) / (sqrt(v / (1 - beta2^t)) + eps). */
template <typename W>
static __device__ void lki_cuda_nadam(const lki_cuda_more_numbers<W> &n, lki_cuda_element<W> &e)
{
    W g = fma(n.decay, e.p, e.g * n.scale);
    lki_cuda_more_moments(n, e, g);
    e.s2 = n.is_first_step ? n.mu : e.s2 * n.mu;
    W direction = (1 - n.mu) / (1 - e.s2) * g + n.next / (1 - e.s2 * n.mu * n.next) * e.s0;
    e.p -= n.lr * direction / (sqrt(e.s1) / n.root2 + n.eps);
}

/* p -= rate m / (sqrt(v) + eps), or rate m as long as v is not known well enough. */
template <typename W>
static __device__ void lki_cuda_radam(const lki_cuda_more_numbers<W> &n, lki_cuda_element<W> &e)
{
    lki_cuda_more_moments(n, e, fma(n.decay, e.p, e.g * n.scale));
    e.p -= n.rate * (n.rectifies ? e.s0 / (sqrt(e.s1) + n.eps) : e.s0);
}

/* s is an average of g^2; d = sqrt(a + eps) / sqrt(s + eps) g, a is an average of d^2; p -= lr d. */
template <typename W>
static __device__ void lki_cuda_adadelta(const lki_cuda_more_numbers<W> &n, lki_cuda_element<W> &e)
{
    W g = fma(n.decay, e.p, e.g * n.scale);
    e.s0 = fma(n.rho, e.s0, n.rest_rho * (g * g));
    W change = sqrt(e.s1 + n.eps) / sqrt(e.s0 + n.eps) * g;
    e.s1 = fma(n.rho, e.s1, n.rest_rho * (change * change));
    e.p = fma(-n.lr, change, e.p);
}

/* u = max(beta2 u, |g| + eps); p -= lr / (1 - beta1^t) m / u. */
template <typename W>
static __device__ void lki_cuda_adamax(const lki_cuda_more_numbers<W> &n, lki_cuda_element<W> &e)
{
    W g = fma(n.decay, e.p, e.g * n.scale);
    e.s0 = fma(n.beta1, e.s0, n.rest1 * g);
    e.s1 = lki_cuda_larger(n.beta2 * e.s1, fabs(g) + n.eps);
    e.p -= n.rate * e.s0 / e.s1;
}

/* The step grows where g has the sign of the last g, and shrinks where it has the other one, which then
 * counts as 0; p -= sign(g) step. */
template <typename W>
static __device__ void lki_cuda_rprop(const lki_cuda_more_numbers<W> &n, lki_cuda_element<W> &e)
{
    W g = e.g * n.scale, turn = n.is_first_step ? (W)0 : lki_cuda_sign(g) * lki_cuda_sign(e.s0);
    W size = (n.is_first_step ? n.lr : e.s1) * (turn > 0 ? n.lambd : turn < 0 ? n.rho : (W)1);
    e.s1 = size < n.eps ? n.eps : size > n.high ? n.high : size;
    e.s0 = turn < 0 ? (W)0 : g;
    e.p = fma(-lki_cuda_sign(e.s0), e.s1, e.p);
}

/* p = (1 - lambd eta) p - eta g, with the eta that the last step left; ax moves by mu towards p. */
template <typename W>
static __device__ void lki_cuda_asgd(const lki_cuda_more_numbers<W> &n, lki_cuda_element<W> &e)
{
    W g = fma(n.decay, e.p, e.g * n.scale), eta = n.is_first_step ? n.lr : e.s1;
    e.p = fma(-eta, g, fma(-n.lambd, eta, (W)1) * e.p);
    e.s0 = n.mu == (W)1 ? e.p : fma(e.p - e.s0, n.mu, e.s0);
    e.s1 = n.next;
}

/* p = (1 - lr decay) p - lr sign(beta1 m + (1 - beta1) g); m is an average of g by beta2. */
template <typename W>
static __device__ void lki_cuda_lion(const lki_cuda_more_numbers<W> &n, lki_cuda_element<W> &e)
{
    W g = e.g * n.scale, sign = lki_cuda_sign(fma(n.beta1, e.s0, n.rest1 * g));
    e.s0 = fma(n.beta2, e.s0, n.rest2 * g);
    e.p = fma(-n.lr, sign, lki_cuda_rounded_product(e.p, n.decay));
}

template <typename W, int RULE>
static __device__ void lki_cuda_apply_more(const lki_cuda_more_numbers<W> &n, lki_cuda_element<W> &e)
{
    if (RULE == LK_UPDATE_NADAM) lki_cuda_nadam(n, e);
    if (RULE == LK_UPDATE_RADAM) lki_cuda_radam(n, e);
    if (RULE == LK_UPDATE_ADADELTA) lki_cuda_adadelta(n, e);
    if (RULE == LK_UPDATE_ADAMAX) lki_cuda_adamax(n, e);
    if (RULE == LK_UPDATE_RPROP) lki_cuda_rprop(n, e);
    if (RULE == LK_UPDATE_ASGD) lki_cuda_asgd(n, e);
    if (RULE == LK_UPDATE_LION) lki_cuda_lion(n, e);
}

#endif
