/* Pointwise losses and their gradients, one pass over the operands. */
#ifndef LKI_CPU_KERNELS_LOSS_H
#define LKI_CPU_KERNELS_LOSS_H

#include "engine/cpu/kernels.h"
#include "engine/cpu/kernels/math.h"

/* log(1 - x) for x in [0, 1]: log w * x / (1 - w) with w = 1 - x undoes the rounding of w. */
INLINE v log_one_minus(v x)
{
    v w = v_set(1.0f) - x, d = v_set(1.0f) - w;
    vmask vanished = v_equal(d, v_set(0.0f));
    return v_select(vanished, -x, v_log(w) * x / v_select(vanished, v_set(1.0f), d));
}

INLINE v loss_value(const lk_pointwise_loss kind, v x, v t, v b, v pos_weight)
{
    v d = x - t, a = v_abs(d), zero = v_set(0.0f), one = v_set(1.0f), half = v_set(0.5f),
      floor = v_set(-100.0f);
    switch (kind) {
    case LK_LOSS_MSE: return d * d;
    case LK_LOSS_L1: return a;
    case LK_LOSS_SMOOTH_L1: return v_select(v_less(a, b), half * d * d / b, a - half * b);
    case LK_LOSS_HUBER: return v_select(v_less_equal(a, b), half * d * d, b * (a - half * b));
    case LK_LOSS_BCE: return (t - one) * v_max(floor, log_one_minus(x)) - t * v_max(floor, v_log(x));
    case LK_LOSS_BCE_WITH_LOGITS: {
        v log_weight = (pos_weight - one) * t + one;
        return (one - t) * x + log_weight * (v_log1p_unit(v_exp(-v_abs(x))) + v_max(zero, -x));
    }
    case LK_LOSS_KL_DIV: {
        v exact = v_select(v_less(zero, t), t * (v_log(t) - x), zero);
        return v_select(v_unequal(b, zero), v_exp(t) * (t - x), exact);
    }
    }
    return zero;
}

/* d loss / d x */
INLINE v loss_slope(const lk_pointwise_loss kind, v x, v t, v b, v pos_weight)
{
    v d = x - t, a = v_abs(d), zero = v_set(0.0f), one = v_set(1.0f);
    v sign = v_and(v_less(zero, d), one) - v_and(v_less(d, zero), one);
    switch (kind) {
    case LK_LOSS_MSE: return d + d;
    case LK_LOSS_L1: return sign;
    case LK_LOSS_SMOOTH_L1: { /* -1 at d = 0 where b = 0, as PyTorch; a NaN stays one */
        v outside = v_select(v_less(zero, d), one, v_select(v_less_equal(d, zero), -one, d));
        return v_select(v_less(a, b), d / b, outside);
    }
    case LK_LOSS_HUBER: return v_select(v_less(a, b), d, b * sign);
    case LK_LOSS_BCE: return d / v_max((one - x) * x, v_set(1e-12f));
    case LK_LOSS_BCE_WITH_LOGITS: {
        v weighted = pos_weight * t;
        return (weighted + one - t) * v_sigmoid(x) - weighted;
    }
    case LK_LOSS_KL_DIV: return -v_select(v_unequal(b, zero), v_exp(t), v_max(zero, t));
    }
    return zero;
}

INLINE v loss_at(const lk_pointwise_loss kind, const lki_loss_args *args, int64_t i, int64_t n)
{
    v pos_weight = args->pos_weight ? v_load_n(args->pos_weight + i, n) : v_set(1.0f);
    v value = loss_value(kind, v_load_n(args->x + i, n), v_load_n(args->target + i, n), v_set(args->alpha),
                         pos_weight);
    return args->weight ? value * v_load_n(args->weight + i, n) : value;
}

/* The first loop is the common case: no weights, no output for each element. In the second, lanes beyond n
 * must not count. */
INLINE double loss_loop(const lk_pointwise_loss kind, const lki_loss_args *args, float *out, int64_t begin,
                        int64_t end)
{
    vdouble total = {0};
    double rest = 0;
    int64_t i = begin;
    v b = v_set(args->alpha), one = v_set(1.0f);
    if (!out && !args->weight && !args->pos_weight)
        for (; i + 2 * VN <= end; i += 2 * VN) {
            v first = loss_value(kind, v_load(args->x + i), v_load(args->target + i), b, one);
            v second = loss_value(kind, v_load(args->x + i + VN), v_load(args->target + i + VN), b, one);
            total += v_widen(first + second);
        }
    for (; i < end; i += VN) {
        int64_t n = end - i < VN ? end - i : VN;
        v value = loss_at(kind, args, i, n);
        if (out) {
            v_store_n(out + i, value, n);
            continue;
        }
        float lane[VN];
        v_store(lane, value);
        for (int64_t j = 0; j < n; j++) rest += lane[j];
    }
    return v_sum_double(total) + rest;
}

INLINE void loss_grad_loop(const lk_pointwise_loss kind, const lki_loss_args *args, float *dx, int64_t begin,
                           int64_t end)
{
    v b = v_set(args->alpha), one = v_set(1.0f), scale = v_set(args->scale);
    int64_t i = begin;
    if (!args->dloss && !args->weight && !args->pos_weight)
        for (; i + VN <= end; i += VN)
            v_store(dx + i, scale * loss_slope(kind, v_load(args->x + i), v_load(args->target + i), b, one));
    for (; i < end; i += VN) {
        int64_t n = end - i < VN ? end - i : VN;
        v pos_weight = args->pos_weight ? v_load_n(args->pos_weight + i, n) : one;
        v slope = loss_slope(kind, v_load_n(args->x + i, n), v_load_n(args->target + i, n), b, pos_weight);
        if (args->weight) slope *= v_load_n(args->weight + i, n);
        if (args->dloss) slope *= v_load_n(args->dloss + i, n);
        v_store_n(dx + i, scale * slope, n);
    }
}

#define LOSS_CASES(X)                                                                                        \
    X(LK_LOSS_MSE)                                                                                           \
    X(LK_LOSS_L1)                                                                                            \
    X(LK_LOSS_SMOOTH_L1) X(LK_LOSS_HUBER) X(LK_LOSS_BCE) X(LK_LOSS_BCE_WITH_LOGITS) X(LK_LOSS_KL_DIV)

static double loss(const lki_loss_args *args, float *out, int64_t begin, int64_t end)
{
    switch (args->kind) {
#define X(kind)                                                                                              \
    case kind: return loss_loop(kind, args, out, begin, end);
        LOSS_CASES(X)
#undef X
    }
    return 0;
}

static void loss_grad(const lki_loss_args *args, float *dx, int64_t begin, int64_t end)
{
    switch (args->kind) {
#define X(kind)                                                                                              \
    case kind: loss_grad_loop(kind, args, dx, begin, end); break;
        LOSS_CASES(X)
#undef X
    }
}

#endif
