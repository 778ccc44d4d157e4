/* Sums, means, maxima and variances over any axes. Neighbouring axes that are both kept or both reduced count
 * as one; then either the last axis is reduced, and a result is made of runs of memory, or it is kept, and
 * rows are added to rows. */
#include "engine/cpu/cpu.h"

#include <math.h>
#include <string.h>

/* What call->state points to. Strides are in elements of x; the innermost axis of each list comes last. */
typedef struct plan {
    int kept_rank, gone_rank;
    int64_t kept[LK_MAX_DIMS], kept_stride[LK_MAX_DIMS];
    int64_t gone[LK_MAX_DIMS], gone_stride[LK_MAX_DIMS];
    int64_t kept_count, gone_count; /* without the innermost axis, which is `length` long */
    int64_t length;
    bool last_is_gone;
} plan;

static void add_axis(int *rank, int64_t *dims, int64_t *strides, int64_t dim, int64_t stride)
{
    dims[*rank] = dim;
    strides[(*rank)++] = stride;
}

static void reverse(int64_t *values, int count)
{
    for (int i = 0; i < count / 2; i++) {
        int64_t value = values[i];
        values[i] = values[count - 1 - i];
        values[count - 1 - i] = value;
    }
}

/* Walks the axes from the last to the first, merging; the innermost one becomes `length`. */
static void describe(plan *p, lk_shape x, uint32_t axes)
{
    int64_t stride = 1;
    int previous = -1; /* 1: reduced, 0: kept */
    *p = (plan){.kept_count = 1, .gone_count = 1, .length = 1, .last_is_gone = true};
    bool inner = true;
    for (int i = x.rank - 1; i >= 0; i--) {
        int gone = (axes >> i) & 1;
        if (x.dim[i] == 1) continue;
        if (inner && (previous < 0 || gone == previous)) {
            p->length *= x.dim[i];
            p->last_is_gone = gone;
        } else if (gone == previous) {
            if (gone)
                p->gone[p->gone_rank - 1] *= x.dim[i];
            else
                p->kept[p->kept_rank - 1] *= x.dim[i];
        } else {
            inner = false;
            if (gone)
                add_axis(&p->gone_rank, p->gone, p->gone_stride, x.dim[i], stride);
            else
                add_axis(&p->kept_rank, p->kept, p->kept_stride, x.dim[i], stride);
        }
        previous = gone;
        stride *= x.dim[i];
    }
    reverse(p->kept, p->kept_rank);
    reverse(p->kept_stride, p->kept_rank);
    reverse(p->gone, p->gone_rank);
    reverse(p->gone_stride, p->gone_rank);
    for (int i = 0; i < p->kept_rank; i++) p->kept_count *= p->kept[i];
    for (int i = 0; i < p->gone_rank; i++) p->gone_count *= p->gone[i];
}

static int64_t offset_of(int64_t index, int rank, const int64_t *dims, const int64_t *strides)
{
    int64_t offset = 0;
    for (int i = rank - 1; i >= 0; i--) {
        offset += index % dims[i] * strides[i];
        index /= dims[i];
    }
    return offset;
}

static const float *run_at(const lk_call *call, const plan *p, int64_t kept, int64_t gone)
{
    return lki_cpu_in(call, 0) + offset_of(kept, p->kept_rank, p->kept, p->kept_stride) +
           offset_of(gone, p->gone_rank, p->gone, p->gone_stride);
}

static double sum_runs(const lk_call *call, const plan *p, int64_t kept)
{
    double sum = 0;
    for (int64_t i = 0; i < p->gone_count; i++)
        sum += lki_cpu_of(call)->kernels->sum(run_at(call, p, kept, i), p->length);
    return sum;
}

static float largest_of_runs(const lk_call *call, const plan *p, int64_t kept)
{
    float best = -INFINITY;
    for (int64_t i = 0; i < p->gone_count && best == best; i++) {
        float value = lki_cpu_of(call)->kernels->largest(run_at(call, p, kept, i), p->length);
        if (value > best || value != value) best = value;
    }
    return best;
}

static double variance_of_runs(const lk_call *call, const plan *p, int64_t kept)
{
    double n = (double)(p->gone_count * p->length), square = 0, exact = sum_runs(call, p, kept) / n;
    float mean = (float)exact;
    for (int64_t i = 0; i < p->gone_count; i++)
        square += lki_cpu_of(call)->kernels->sum_square_deviations(run_at(call, p, kept, i), p->length, mean);
    square -= n * (exact - mean) * (exact - mean); /* what rounding the mean has added */
    if (square < 0) square = 0;                    /* a NaN stays one */
    return square / fmax(0, n - (double)call->attr->reduce.correction);
}

static void reduce_runs(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const lk_call *call = context;
    const plan *p = call->state;
    for (int64_t i = begin; i < end; i++) {
        float *out = lki_cpu_out(call, 0) + i;
        switch (call->op) {
        case LK_OP_MEAN: *out = (float)(sum_runs(call, p, i) / (double)(p->gone_count * p->length)); break;
        case LK_OP_MAX: *out = largest_of_runs(call, p, i); break;
        case LK_OP_VAR: *out = (float)variance_of_runs(call, p, i); break;
        default: *out = (float)sum_runs(call, p, i); break;
        }
    }
}

/* Columns [begin, end) of every kept row. */
static void reduce_columns(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const lk_call *call = context;
    const plan *p = call->state;
    const lki_cpu_kernels *kernels = lki_cpu_of(call)->kernels;
    int64_t n = end - begin;
    for (int64_t i = 0; i < p->kept_count; i++) {
        float *out = lki_cpu_out(call, 0) + i * p->length + begin;
        const float *first = run_at(call, p, i, 0) + begin;
        if (call->op == LK_OP_MAX) {
            memcpy(out, first, (size_t)n * sizeof(float));
            for (int64_t j = 1; j < p->gone_count; j++)
                kernels->max_to(out, first + j * p->gone_stride[0], n);
            continue;
        }
        kernels->column_sums(out, first, p->gone_count, p->gone_rank ? p->gone_stride[0] : 0, n);
        if (call->op == LK_OP_MEAN) {
            lki_tile_args args = {(float)(1.0 / (double)p->gone_count), 0, 0};
            kernels->tile[LK_OP_MUL_SCALAR](out, out, NULL, NULL, n, &args);
        }
    }
}

static lk_status run_reduction(const lk_call *call)
{
    const plan *p = call->state;
    lki_pool *pool = lki_cpu_of(call)->pool;
    int64_t each = p->gone_count * (p->last_is_gone ? p->length : p->kept_count);
    int64_t count = p->last_is_gone ? p->kept_count : p->length;
    lki_parallel_for(pool, count, LKI_CPU_GRAIN / (each + 1) + 1,
                     p->last_is_gone ? reduce_runs : reduce_columns, (void *)call);
    return LK_OK;
}

lk_status lki_cpu_prepare_reduction(lki_cpu *cpu, lk_call *call)
{
    if (!lki_cpu_all_f32(call, 0) || !lk_tensor_count(&call->in[0])) return LK_OK;
    plan *p = lki_cpu_new_state(call, sizeof *p);
    if (!p) return LK_ERR_NOMEM;
    describe(p, call->in[0].shape, call->attr->reduce.axes);
    bool rows_to_rows = !p->last_is_gone && p->gone_rank <= 1 && call->op != LK_OP_VAR;
    if (!p->last_is_gone && !rows_to_rows) return LK_OK;
    lki_cpu_enter(cpu, p->last_is_gone ? LKI_CPU_PATH_REDUCE_RUNS : LKI_CPU_PATH_REDUCE_ROWS);
    call->run = run_reduction;
    return LK_OK;
}

/* The first of the largest; a NaN is larger than any number. */
static lk_status run_argmax(const lk_call *call)
{
    lk_shape x = call->in[0].shape;
    int axis = call->attr->axis.axis;
    int64_t outer = lki_cpu_span(x, 0, axis), n = x.dim[axis], inner = lki_cpu_span(x, axis + 1, x.rank);
    int64_t *out = call->out[0].data;
    for (int64_t i = 0; i < outer; i++)
        for (int64_t j = 0; j < inner; j++) {
            const float *row = lki_cpu_in(call, 0) + i * n * inner + j;
            float best = row[0];
            int64_t place = 0;
            for (int64_t k = 1; k < n && best == best; k++)
                if (row[k * inner] > best || row[k * inner] != row[k * inner]) {
                    best = row[k * inner];
                    place = k;
                }
            out[i * inner + j] = place;
        }
    return LK_OK;
}

lk_status lki_cpu_prepare_argmax(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (call->in[0].dtype == LK_F32 && call->in[0].shape.rank) call->run = run_argmax;
    return LK_OK;
}
