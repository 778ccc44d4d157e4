/* What the minimal examples have in common: made data, and a last line that says whether something was learned. */
#ifndef MINIMAL_H
#define MINIMAL_H

#include <lockstep/lockstep.h>

#include <stdio.h>

/* The metric of the valid loader after the run; ends the example well if it is at least `wanted`. */
static inline int learned(lk_runner *runner, lk_status status, const char *metric, double wanted)
{
    const lk_metrics *metrics = status ? NULL : lk_runner_loader_metrics(runner, "valid");
    double value = metrics ? lk_metrics_get(metrics, metric) : 0;
    if (status)
        fprintf(stderr, "%s\n", lk_error());
    else
        printf("%s %.3f, at least %g is wanted\n", metric, value, wanted);
    lk_runner_free(runner);
    return status || !(value >= wanted);
}

/* Elements `from` to before `to` of each row of x, as numbers (n, to - from): 1 above `above`, else 0. */
static inline lk_tensor *above(const lk_tensor *x, int from, int to, double limit)
{
    int64_t count = x->shape.dim[0], width = x->shape.dim[1];
    lk_tensor *y = lk_tensor_create(LK_F32, LK_SHAPE(count, to - from));
    for (int64_t i = 0; y && i < count; i++)
        for (int k = from; k < to; k++) lk_tensor_set(y, i * (to - from) + k - from, lk_tensor_get(x, i * width + k) > limit);
    return y;
}

/* Which of the elements `from` to before `to` of each row is the largest: classes (n). */
static inline lk_tensor *largest(const lk_tensor *x, int from, int to)
{
    int64_t count = x->shape.dim[0], width = x->shape.dim[1];
    lk_tensor *y = lk_tensor_create(LK_I64, LK_SHAPE(count));
    for (int64_t i = 0; y && i < count; i++) {
        int best = from;
        for (int k = from + 1; k < to; k++)
            if (lk_tensor_get(x, i * width + k) > lk_tensor_get(x, i * width + best)) best = k;
        lk_tensor_set(y, i, best - from);
    }
    return y;
}

#endif
