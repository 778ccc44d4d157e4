/* Normalisation: batch norm by channels, group norm by groups of a sample, layer norm by rows. With xh = (x -
 * mean) istd and g = dy w over a set of n elements:
 *
 *     dx = istd (g - sum(g) / n - xh sum(g xh) / n)     dw = sum of dy xh     db = sum of dy
 *
 * which for a plane of one channel is a blend a dy + b (x - mean) + c of its two inputs. x meets its mean
 * before anything else: x scale - mean scale would cost digits when the mean is large. Kernels take the mean
 * rounded to f32; what rounding has left out goes into the shift. */
#include "engine/cpu/cpu.h"

#include "base/status.h"

#include <math.h>
#include <string.h>

/* x as (outer, channels, inner). */
typedef struct norm {
    const lk_call *call;
    const lki_cpu_kernels *kernels;
    int64_t outer, channels, inner, groups;
} norm;

static norm describe(const lk_call *call, lk_shape x)
{
    return (norm){call,     lki_cpu_of(call)->kernels,  x.dim[0],
                  x.dim[1], lki_cpu_span(x, 2, x.rank), call->attr->norm.group_count};
}

static float or_one(const float *w, int64_t i)
{
    return w ? w[i] : 1;
}

static float or_zero(const float *b, int64_t i)
{
    return b ? b[i] : 0;
}

/* A mean of squares around a number that is `left_out` off the true mean. */
static double without_rounding(double square, double left_out)
{
    double variance = square - left_out * left_out;
    return variance < 0 ? 0 : variance; /* a NaN stays one */
}

static void batch_moments(const norm *v, int64_t c, double *mean, double *variance)
{
    const float *x = lki_cpu_in(v->call, 0) + c * v->inner;
    int64_t stride = v->channels * v->inner;
    double n = (double)(v->outer * v->inner), sum = 0, square = 0;
    if (v->inner == 1)
        for (int64_t i = 0; i < v->outer; i++) sum += x[i * stride];
    else
        for (int64_t i = 0; i < v->outer; i++) sum += v->kernels->sum(x + i * stride, v->inner);
    *mean = sum / n;
    if (v->inner == 1)
        for (int64_t i = 0; i < v->outer; i++) square += (x[i * stride] - *mean) * (x[i * stride] - *mean);
    else
        for (int64_t i = 0; i < v->outer; i++)
            square += v->kernels->sum_square_deviations(x + i * stride, v->inner, (float)*mean);
    double left_out = v->inner == 1 ? 0 : *mean - (float)*mean;
    *variance = without_rounding(square / n, left_out);
}

static void move_running(const lk_call *call, int input, int64_t c, double fresh)
{
    if (!lki_cpu_has(call, input)) return;
    float *running = (float *)call->in[input].data + c;
    *running = (float)((1 - call->attr->norm.momentum) * *running + call->attr->norm.momentum * fresh);
}

static void batch_norm_range(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const norm *v = context;
    const lk_call *call = v->call;
    bool own = call->attr->norm.training || !lki_cpu_has(call, 3) || !lki_cpu_has(call, 4);
    double n = (double)(v->outer * v->inner);
    for (int64_t c = begin; c < end; c++) {
        double mean, variance;
        if (own) {
            batch_moments(v, c, &mean, &variance);
            if (n > 0) move_running(call, 3, c, mean);
            if (n > 0) move_running(call, 4, c, variance * n / (n - 1));
        } else {
            mean = lki_cpu_in(call, 3)[c];
            variance = lki_cpu_in(call, 4)[c];
        }
        double istd = 1 / sqrt(variance + call->attr->norm.eps);
        double factor = istd * or_one(lki_cpu_in(call, 1), c);
        float scale = (float)factor, center = (float)mean;
        float shift = (float)(or_zero(lki_cpu_in(call, 2), c) - (mean - center) * factor);
        for (int64_t i = 0; i < v->outer && call->out[0].data; i++) {
            int64_t at = (i * v->channels + c) * v->inner;
            const float *x = lki_cpu_in(call, 0) + at;
            if (v->inner == 1)
                *(lki_cpu_out(call, 0) + at) = (*x - center) * scale + shift;
            else
                v->kernels->center_scale(lki_cpu_out(call, 0) + at, x, center, scale, shift, v->inner);
        }
        if (call->out[1].data) lki_cpu_out(call, 1)[c] = (float)mean;
        if (call->out[2].data) lki_cpu_out(call, 2)[c] = (float)istd;
    }
}

static lk_status run_batch_norm(const lk_call *call)
{
    norm v = describe(call, call->in[0].shape);
    int64_t grain = LKI_CPU_GRAIN / 4 / (v.outer * v.inner + 1) + 1;
    lki_parallel_for(lki_cpu_of(call)->pool, v.channels, grain, batch_norm_range, &v);
    return LK_OK;
}

lk_status lki_cpu_prepare_batch_norm(lki_cpu *cpu, lk_call *call)
{
    if (!lki_cpu_all_f32(call, 0)) return LK_OK;
    bool planes = lki_cpu_span(call->in[0].shape, 2, call->in[0].shape.rank) != 1;
    lki_cpu_enter(cpu, planes ? LKI_CPU_PATH_NORM_PLANES : LKI_CPU_PATH_NORM_SINGLES);
    call->run = run_batch_norm;
    return LK_OK;
}

static void batch_norm_grad_range(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const norm *v = context;
    const lk_call *call = v->call;
    double n = (double)(v->outer * v->inner);
    for (int64_t c = begin; c < end; c++) {
        const float *dy = lki_cpu_in(call, 0), *x = lki_cpu_in(call, 1);
        float mean = lki_cpu_in(call, 3)[c], istd = lki_cpu_in(call, 4)[c],
              w = or_one(lki_cpu_in(call, 2), c);
        double sum = 0, product = 0;
        for (int64_t i = 0; i < v->outer; i++) {
            int64_t at = (i * v->channels + c) * v->inner;
            sum += v->inner == 1 ? dy[at] : v->kernels->sum(dy + at, v->inner);
            product += v->inner == 1 ? (double)dy[at] * ((double)x[at] - mean)
                                     : v->kernels->sum_centered_products(dy + at, x + at, mean, v->inner);
        }
        product *= istd;
        if (call->out[1].data) lki_cpu_out(call, 1)[c] = (float)product;
        if (call->out[2].data) lki_cpu_out(call, 2)[c] = (float)sum;
        if (!call->out[0].data) continue;
        double a = (double)w * istd, b = call->attr->norm.training ? -a * istd * product / n : 0;
        double shift = call->attr->norm.training ? -a * sum / n : 0;
        for (int64_t i = 0; i < v->outer; i++) {
            int64_t at = (i * v->channels + c) * v->inner;
            v->kernels->blend(lki_cpu_out(call, 0) + at, dy + at, x + at, (float)a, (float)b, mean,
                              (float)shift, v->inner);
        }
    }
}

static lk_status run_batch_norm_grad(const lk_call *call)
{
    norm v = describe(call, call->in[1].shape);
    int64_t grain = LKI_CPU_GRAIN / 4 / (v.outer * v.inner + 1) + 1;
    lki_parallel_for(lki_cpu_of(call)->pool, v.channels, grain, batch_norm_grad_range, &v);
    return LK_OK;
}

lk_status lki_cpu_prepare_batch_norm_grad(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (lki_cpu_all_f32(call, 0)) call->run = run_batch_norm_grad;
    return LK_OK;
}

/* Mean and istd of a run of memory; kept for the gradient where wanted. *shift: what is left out of the mean.
 */
static void run_moments(const norm *v, const float *x, int64_t n, int64_t set, float *mean, float *istd,
                        float *shift)
{
    double m = v->kernels->sum(x, n) / (double)n, left_out = m - (float)m;
    double variance = v->kernels->sum_square_deviations(x, n, (float)m) / (double)n;
    variance = without_rounding(variance, left_out);
    *mean = (float)m;
    *istd = (float)(1 / sqrt(variance + v->call->attr->norm.eps));
    *shift = (float)(-left_out * *istd);
    if (v->call->out[1].data) lki_cpu_out(v->call, 1)[set] = *mean;
    if (v->call->out[2].data) lki_cpu_out(v->call, 2)[set] = *istd;
}

static void group_norm_range(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const norm *v = context;
    const lk_call *call = v->call;
    int64_t members = v->channels / v->groups, size = members * v->inner;
    for (int64_t s = begin; s < end; s++) {
        const float *x = lki_cpu_in(call, 0) + s * size;
        float mean, istd, shift;
        run_moments(v, x, size, s, &mean, &istd, &shift);
        for (int64_t j = 0; j < members && call->out[0].data; j++) {
            int64_t c = s % v->groups * members + j;
            float w = or_one(lki_cpu_in(call, 1), c), b = or_zero(lki_cpu_in(call, 2), c);
            v->kernels->center_scale(lki_cpu_out(call, 0) + s * size + j * v->inner, x + j * v->inner, mean,
                                     istd * w, b + shift * w, v->inner);
        }
    }
}

static lk_status run_group_norm(const lk_call *call)
{
    norm v = describe(call, call->in[0].shape);
    int64_t sets = v.outer * v.groups, size = v.channels / v.groups * v.inner;
    lki_parallel_for(lki_cpu_of(call)->pool, sets, LKI_CPU_GRAIN / 4 / (size + 1) + 1, group_norm_range, &v);
    return LK_OK;
}

lk_status lki_cpu_prepare_group_norm(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (lki_cpu_all_f32(call, 0)) call->run = run_group_norm;
    return LK_OK;
}

/* One group of one sample; dw and db are running sums over samples. */
static void group_norm_grad_set(const norm *v, int64_t s, double *dw, double *db)
{
    const lk_call *call = v->call;
    int64_t members = v->channels / v->groups, size = members * v->inner, first = s % v->groups * members;
    const float *dy = lki_cpu_in(call, 0) + s * size, *x = lki_cpu_in(call, 1) + s * size,
                *w = lki_cpu_in(call, 2);
    float mean = lki_cpu_in(call, 3)[s], istd = lki_cpu_in(call, 4)[s];
    double sum = 0, product = 0, n = (double)size;
    for (int64_t j = 0; j < members; j++) {
        double plain = v->kernels->sum(dy + j * v->inner, v->inner);
        double centered =
            istd * v->kernels->sum_centered_products(dy + j * v->inner, x + j * v->inner, mean, v->inner);
        sum += or_one(w, first + j) * plain;
        product += or_one(w, first + j) * centered;
        db[first + j] += plain;
        dw[first + j] += centered;
    }
    /* One number is its own mean: its gradient is zero, not what rounding leaves of the terms below, which
     * istd and an optimizer like Adam would make large. */
    if (size == 1 && call->out[0].data) lki_cpu_out(call, 0)[s] = 0;
    if (size == 1) return;
    double b = -(double)istd * istd * product / n, shift = -istd * sum / n;
    for (int64_t j = 0; j < members && call->out[0].data; j++)
        v->kernels->blend(lki_cpu_out(call, 0) + s * size + j * v->inner, dy + j * v->inner, x + j * v->inner,
                          istd * or_one(w, first + j), (float)b, mean, (float)shift, v->inner);
}

static lk_status run_group_norm_grad(const lk_call *call)
{
    norm v = describe(call, call->in[1].shape);
    double *dw = call->scratch, *db = dw + v.channels;
    memset(dw, 0, (size_t)(2 * v.channels) * sizeof(double));
    for (int64_t s = 0; s < v.outer * v.groups; s++) group_norm_grad_set(&v, s, dw, db);
    for (int64_t c = 0; c < v.channels; c++) {
        if (call->out[1].data) lki_cpu_out(call, 1)[c] = (float)dw[c];
        if (call->out[2].data) lki_cpu_out(call, 2)[c] = (float)db[c];
    }
    return LK_OK;
}

lk_status lki_cpu_prepare_group_norm_grad(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (!lki_cpu_all_f32(call, 0)) return LK_OK;
    call->scratch_nbytes = (size_t)(2 * call->in[1].shape.dim[1]) * sizeof(double);
    call->run = run_group_norm_grad;
    return LK_OK;
}

/* Layer norm sees (rows, width). */
static norm describe_rows(const lk_call *call, lk_shape x)
{
    int axis = x.rank - call->attr->norm.axis_count;
    return (norm){.call = call,
                  .kernels = lki_cpu_of(call)->kernels,
                  .outer = lki_cpu_span(x, 0, axis),
                  .channels = lki_cpu_span(x, axis, x.rank),
                  .inner = 1};
}

static void layer_norm_range(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const norm *v = context;
    const lk_call *call = v->call;
    for (int64_t r = begin; r < end; r++) {
        const float *x = lki_cpu_in(call, 0) + r * v->channels;
        float mean, istd, shift;
        run_moments(v, x, v->channels, r, &mean, &istd, &shift);
        if (call->out[0].data)
            v->kernels->norm_row(lki_cpu_out(call, 0) + r * v->channels, x, mean, istd, shift,
                                 lki_cpu_in(call, 1), lki_cpu_in(call, 2), v->channels);
    }
}

static lk_status run_layer_norm(const lk_call *call)
{
    norm v = describe_rows(call, call->in[0].shape);
    lki_parallel_for(lki_cpu_of(call)->pool, v.outer, LKI_CPU_GRAIN / 4 / (v.channels + 1) + 1,
                     layer_norm_range, &v);
    return LK_OK;
}

lk_status lki_cpu_prepare_layer_norm(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (lki_cpu_all_f32(call, 0)) call->run = run_layer_norm;
    return LK_OK;
}

/* Sums over rows go through blocks of 64, so that their error does not grow with the rows: a thread's scratch
 * is the sum of its blocks and the block that is being added up, each for dw and db. */
enum { ROW_BLOCK = 64 };

static void layer_norm_grad_range(int64_t begin, int64_t end, int thread, void *context)
{
    const norm *v = context;
    const lk_call *call = v->call;
    int64_t n = v->channels;
    float *total = (float *)call->scratch + thread * 4 * n, *part = total + 2 * n;
    for (int64_t first = begin; first < end; first += ROW_BLOCK) {
        memset(part, 0, (size_t)(2 * n) * sizeof(float));
        for (int64_t r = first; r < end && r < first + ROW_BLOCK; r++)
            v->kernels->norm_grad_row(call->out[0].data ? lki_cpu_out(call, 0) + r * n : NULL,
                                      lki_cpu_in(call, 0) + r * n, lki_cpu_in(call, 1) + r * n,
                                      lki_cpu_in(call, 2), lki_cpu_in(call, 3)[r], lki_cpu_in(call, 4)[r],
                                      part, part + n, n);
        v->kernels->add_to(total, part, 2 * n);
    }
}

static lk_status run_layer_norm_grad(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    norm v = describe_rows(call, call->in[1].shape);
    int64_t n = v.channels;
    float *total = call->scratch;
    if (n == 0) return LK_OK; /* every output is empty, and there is no scratch */
    memset(total, 0, (size_t)(cpu->thread_count * 4 * n) * sizeof(float));
    lki_parallel_for(cpu->pool, v.outer, LKI_CPU_GRAIN / 4 / (n + 1) + 1, layer_norm_grad_range, &v);
    for (int thread = 1; thread < cpu->thread_count; thread++)
        cpu->kernels->add_to(total, total + thread * 4 * n, 2 * n);
    if (call->out[1].data) memcpy(call->out[1].data, total, (size_t)n * sizeof(float));
    if (call->out[2].data) memcpy(call->out[2].data, total + n, (size_t)n * sizeof(float));
    return LK_OK;
}

lk_status lki_cpu_prepare_layer_norm_grad(lki_cpu *cpu, lk_call *call)
{
    if (!lki_cpu_all_f32(call, 0)) return LK_OK;
    lk_shape x = call->in[1].shape;
    int64_t n = lki_cpu_span(x, x.rank - call->attr->norm.axis_count, x.rank);
    call->scratch_nbytes = (size_t)(cpu->thread_count * 4 * n) * sizeof(float);
    call->run = run_layer_norm_grad;
    return LK_OK;
}
