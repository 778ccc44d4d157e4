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

static void clamp_in_place(float *x, float limit, int64_t n)
{
    v high = v_set(limit), low = -high;
    int64_t i = 0;
    for (; i + VN <= n; i += VN) v_store(x + i, v_min(high, v_max(low, v_load(x + i))));
    if (i < n) v_store_n(x + i, v_min(high, v_max(low, v_load_n(x + i, n - i))), n - i);
}

#endif
