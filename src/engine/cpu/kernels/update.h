/* The optimizers' updates: one pass over parameter, gradient and state, in f32, in PyTorch's order of
 * operations. */
#ifndef LKI_CPU_KERNELS_UPDATE_H
#define LKI_CPU_KERNELS_UPDATE_H

#include "engine/cpu/kernels.h"
#include "engine/cpu/kernels/math.h"

/* One vector's worth of a flat slice: where it lies and how much of it counts. */
typedef struct span {
    int64_t at, n;
} span;

INLINE v get(const float *p, span s)
{
    return s.n == VN ? v_load(p + s.at) : v_load_n(p + s.at, s.n);
}

INLINE void put(float *p, v a, span s)
{
    if (s.n == VN)
        v_store(p + s.at, a);
    else
        v_store_n(p + s.at, a, s.n);
}

/* The gradient with its scale and the coupled decay. */
INLINE v decayed_gradient(const lki_update_args *u, v p, span s)
{
    v g = get(u->grad, s) * v_set(u->grad_scale);
    return u->weight_decay != 0 ? v_fma(v_set(u->weight_decay), p, g) : g;
}

INLINE void sgd_step(const lki_update_args *u, span s)
{
    v p = get(u->param, s), g = decayed_gradient(u, p, s);
    if (u->momentum != 0) {
        v buffer = u->first ? g : get(u->state[0], s) * v_set(u->momentum) + g * v_set(u->keep);
        put(u->state[0], buffer, s);
        g = u->nesterov ? v_fma(v_set(u->momentum), buffer, g) : buffer;
    }
    put(u->param, v_fma(v_set(-u->lr), g, p), s);
}

INLINE void adam_moments(const lki_update_args *u, v g, v *m, v *second, span s)
{
    *m = v_fma(get(u->state[0], s), v_set(u->beta1), g * v_set(u->rest1));
    *second = v_fma(get(u->state[1], s), v_set(u->beta2), g * g * v_set(u->rest2));
    put(u->state[0], *m, s);
    put(u->state[1], *second, s);
    if (u->amsgrad) {
        *second = v_max(*second, get(u->state[2], s));
        put(u->state[2], *second, s);
    }
}

INLINE void adam_apply(const lki_update_args *u, v p, v g, span s)
{
    v m, second;
    adam_moments(u, g, &m, &second, s);
    v denominator = v_fma(v_sqrt(second), v_set(u->inverse_root), v_set(u->eps));
    put(u->param, v_fma(v_set(-u->lr), v_divide(m, denominator), p), s);
}

INLINE void adam_step(const lki_update_args *u, span s)
{
    v p = get(u->param, s);
    adam_apply(u, p, decayed_gradient(u, p, s), s);
}

INLINE void adamw_step(const lki_update_args *u, span s)
{
    v g = get(u->grad, s) * v_set(u->grad_scale);
    adam_apply(u, get(u->param, s) * v_set(u->decay), g, s);
}

INLINE void rmsprop_step(const lki_update_args *u, span s)
{
    v p = get(u->param, s), g = decayed_gradient(u, p, s), a = v_set(u->beta1), rest = v_set(u->rest1);
    v square = v_fma(get(u->state[0], s), a, g * g * rest);
    put(u->state[0], square, s);
    v variance = square;
    if (u->centered) {
        v average = v_fma(get(u->state[2], s), a, g * rest);
        put(u->state[2], average, s);
        variance = square - average * average;
    }
    v change = g / (v_sqrt(variance) + v_set(u->eps));
    if (u->momentum != 0) {
        change = v_fma(get(u->state[1], s), v_set(u->momentum), change);
        put(u->state[1], change, s);
    }
    put(u->param, v_fma(v_set(-u->lr), change, p), s);
}

INLINE void adagrad_step(const lki_update_args *u, span s)
{
    v p = get(u->param, s), g = decayed_gradient(u, p, s);
    v total = v_fma(g, g, get(u->state[0], s));
    put(u->state[0], total, s);
    put(u->param, v_fma(v_set(-u->lr), g / (v_sqrt(total) + v_set(u->eps)), p), s);
}

/* PyTorch 1.13 counts mu twice in the second denominator. */
INLINE void nadam_step(const lki_update_args *u, span s)
{
    v p = get(u->param, s), g = decayed_gradient(u, p, s), m, second, one = v_set(1.0f), mu = v_set(u->mu),
      next = v_set(u->next);
    adam_moments(u, g, &m, &second, s);
    v product = u->first ? mu : get(u->state[2], s) * mu;
    put(u->state[2], product, s);
    v direction = (one - mu) / (one - product) * g + next / (one - product * mu * next) * m;
    v denominator = v_fma(v_sqrt(second), v_set(u->inverse_root), v_set(u->eps));
    put(u->param, v_fma(v_set(-u->lr), direction / denominator, p), s);
}

INLINE void radam_step(const lki_update_args *u, span s)
{
    v p = get(u->param, s), m, second;
    adam_moments(u, decayed_gradient(u, p, s), &m, &second, s);
    v rectified = m / (v_sqrt(second) + v_set(u->eps));
    put(u->param, v_fma(v_set(-u->lr), u->rectifies ? rectified : m, p), s);
}

INLINE void adadelta_step(const lki_update_args *u, span s)
{
    v p = get(u->param, s), g = decayed_gradient(u, p, s), rho = v_set(u->beta1), rest = v_set(u->rest1),
      eps = v_set(u->eps), changes = get(u->state[1], s);
    v square = v_fma(get(u->state[0], s), rho, g * g * rest);
    v change = v_sqrt(changes + eps) / v_sqrt(square + eps) * g;
    put(u->state[0], square, s);
    put(u->state[1], v_fma(changes, rho, change * change * rest), s);
    put(u->param, v_fma(v_set(-u->lr), change, p), s);
}

INLINE void adamax_step(const lki_update_args *u, span s)
{
    v p = get(u->param, s), g = decayed_gradient(u, p, s);
    v m = v_fma(get(u->state[0], s), v_set(u->beta1), g * v_set(u->rest1));
    v largest = v_max(get(u->state[1], s) * v_set(u->beta2), v_abs(g) + v_set(u->eps));
    put(u->state[0], m, s);
    put(u->state[1], largest, s);
    put(u->param, v_fma(v_set(-u->lr), m / largest, p), s);
}

/* 1, 0 or -1. */
INLINE v sign_of(v x)
{
    v zero = v_set(0.0f), one = v_set(1.0f);
    return v_and(v_less(zero, x), one) - v_and(v_less(x, zero), one);
}

INLINE void rprop_step(const lki_update_args *u, span s)
{
    v zero = v_set(0.0f), g = get(u->grad, s) * v_set(u->grad_scale);
    v turn = u->first ? zero : sign_of(g) * sign_of(get(u->state[0], s));
    v size = u->first ? v_set(u->lr) : get(u->state[1], s);
    v factor = v_select(v_less(zero, turn), v_set(u->beta2),
                        v_select(v_less(turn, zero), v_set(u->beta1), v_set(1.0f)));
    size = v_min(v_max(size * factor, v_set(u->low)), v_set(u->high));
    g = v_select(v_less(turn, zero), zero, g);
    put(u->state[0], g, s);
    put(u->state[1], size, s);
    put(u->param, v_fma(-sign_of(g), size, get(u->param, s)), s);
}

INLINE void asgd_step(const lki_update_args *u, span s)
{
    v p = get(u->param, s), g = decayed_gradient(u, p, s), old = get(u->state[0], s);
    v eta = u->first ? v_set(u->lr) : get(u->state[1], s);
    p = v_fma(-eta, g, p * v_fma(v_set(-u->beta1), eta, v_set(1.0f)));
    put(u->param, p, s);
    put(u->state[0], u->mu == 1 ? p : v_fma(p - old, v_set(u->mu), old), s);
    put(u->state[1], v_set(u->next), s);
}

INLINE void lion_step(const lki_update_args *u, span s)
{
    v g = get(u->grad, s) * v_set(u->grad_scale), m = get(u->state[0], s);
    v sign = sign_of(v_fma(m, v_set(u->beta1), g * v_set(u->rest1)));
    put(u->state[0], v_fma(m, v_set(u->beta2), g * v_set(u->rest2)), s);
    put(u->param, v_fma(v_set(-u->lr), sign, get(u->param, s) * v_set(u->decay)), s);
}

#define UPDATE(rule)                                                                                         \
    static void rule##_update(const lki_update_args *args, int64_t begin, int64_t end)                       \
    {                                                                                                        \
        lki_update_args u = *args;                                                                           \
        int64_t i = begin;                                                                                   \
        for (; i + VN <= end; i += VN) rule##_step(&u, (span){i, VN});                                       \
        if (i < end) rule##_step(&u, (span){i, end - i});                                                    \
    }
UPDATE(sgd)
UPDATE(adam)
UPDATE(adamw)
UPDATE(rmsprop)
UPDATE(adagrad)
UPDATE(nadam)
UPDATE(radam)
UPDATE(adadelta)
UPDATE(adamax)
UPDATE(rprop)
UPDATE(asgd)
UPDATE(lion)

static void clamp_in_place(float *x, float limit, int64_t n)
{
    v high = v_set(limit), low = -high;
    int64_t i = 0;
    for (; i + VN <= n; i += VN) v_store(x + i, v_min(high, v_max(low, v_load(x + i))));
    if (i < n) v_store_n(x + i, v_min(high, v_max(low, v_load_n(x + i, n - i))), n - i);
}

#endif
