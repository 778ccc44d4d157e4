/* The gradient of a maximum: dx = dy / count where x equals the maximum y of its set, else 0; `count` is how
 * many elements of the set do. dy and y have x's rank, with 1 for the axes that were reduced. */
#include "engine/cpu/cpu.h"

#include <string.h>

/* Rows of the last axis of x, and where each lies in y. */
typedef struct rows {
    const lk_call *call;
    lk_shape x, y;
    int64_t width, each; /* each: rows per index of axis 0 */
    bool is_reduced;     /* the last axis */
    float *counts;       /* of y's shape */
} rows;

static int64_t place_in_y(const rows *r, int64_t row)
{
    int64_t offset = 0, stride = r->y.dim[r->y.rank - 1];
    for (int k = r->x.rank - 2; k >= 0; k--) {
        int64_t at = row % r->x.dim[k];
        row /= r->x.dim[k];
        if (r->y.dim[k] != 1) offset += at * stride;
        stride *= r->y.dim[k];
    }
    return offset;
}

static void count_row(const rows *r, int64_t row)
{
    const float *x = lki_cpu_in(r->call, 1) + row * r->width;
    int64_t at = place_in_y(r, row);
    const float *y = lki_cpu_in(r->call, 2) + at;
    float *count = r->counts + at;
    if (!r->is_reduced) {
        for (int64_t i = 0; i < r->width; i++) count[i] += x[i] == y[i];
        return;
    }
    int64_t equal = 0;
    for (int64_t i = 0; i < r->width; i++) equal += x[i] == *y;
    *count += (float)equal;
}

static void share_row(const rows *r, int64_t row)
{
    const float *x = lki_cpu_in(r->call, 1) + row * r->width;
    float *dx = lki_cpu_out(r->call, 0) + row * r->width;
    int64_t at = place_in_y(r, row);
    const float *dy = lki_cpu_in(r->call, 0) + at, *y = lki_cpu_in(r->call, 2) + at, *count = r->counts + at;
    int64_t step = !r->is_reduced;
    for (int64_t i = 0; i < r->width; i++)
        dx[i] = dy[i * step] * (float)(x[i] == y[i * step]) / count[i * step];
}

/* A range of axis 0; if that was reduced, all of it is one set and stays with one thread. */
static void grad_range(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const rows *r = context;
    for (int64_t row = begin * r->each; row < end * r->each; row++) count_row(r, row);
    for (int64_t row = begin * r->each; row < end * r->each; row++) share_row(r, row);
}

static lk_status run_max_grad(const lk_call *call)
{
    lk_shape x = call->in[1].shape, y = call->in[2].shape;
    rows r = {.call = call, .x = x, .y = y, .width = x.dim[x.rank - 1], .counts = call->scratch};
    int64_t row_count = lki_cpu_span(x, 0, x.rank - 1);
    bool is_whole = x.rank == 1 || y.dim[0] != x.dim[0] || y.dim[0] == 1;
    int64_t parts = is_whole ? 1 : x.dim[0];
    r.is_reduced = y.dim[y.rank - 1] == 1;
    r.each = row_count / parts;
    memset(r.counts, 0, (size_t)lk_tensor_count(&call->in[2]) * sizeof(float));
    lki_parallel_for(lki_cpu_of(call)->pool, parts, LKI_CPU_GRAIN / (r.each * r.width + 1) + 1, grad_range,
                     &r);
    return LK_OK;
}

lk_status lki_cpu_prepare_max_grad(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (!lki_cpu_all_f32(call, 0) || !call->in[1].shape.rank || !lk_tensor_count(&call->in[1])) return LK_OK;
    call->scratch_nbytes = (size_t)lk_tensor_count(&call->in[2]) * sizeof(float);
    call->run = run_max_grad;
    return LK_OK;
}
