/* Adaptive average pools to several places: place p of n over a dimension of size d is the mean of elements
 * floor(p d / n) to before ceil((p + 1) d / n), so that neighbours may share elements. */
#include "engine/cpu/cpu.h"

#include <string.h>

enum { MOST_DIMS = 3 };

/* What call->state points to: planes of `in` places each are pooled to `out` places. */
typedef struct plan {
    int64_t in[MOST_DIMS], out[MOST_DIMS];
    int64_t in_plane, out_plane, plane_count;
} plan;

typedef struct bin {
    int64_t begin[MOST_DIMS], end[MOST_DIMS];
    double count;
} bin;

static bin bin_of(const plan *p, int64_t z, int64_t y, int64_t x)
{
    bin b = {.count = 1};
    const int64_t at[MOST_DIMS] = {z, y, x};
    for (int i = 0; i < MOST_DIMS; i++) {
        b.begin[i] = at[i] * p->in[i] / p->out[i];
        b.end[i] = ((at[i] + 1) * p->in[i] + p->out[i] - 1) / p->out[i];
        b.count *= (double)(b.end[i] - b.begin[i]);
    }
    return b;
}

static float mean_of(const plan *p, const bin *b, const float *x)
{
    double sum = 0;
    for (int64_t z = b->begin[0]; z < b->end[0]; z++)
        for (int64_t y = b->begin[1]; y < b->end[1]; y++) {
            const float *row = x + (z * p->in[1] + y) * p->in[2];
            for (int64_t i = b->begin[2]; i < b->end[2]; i++) sum += row[i];
        }
    return (float)(sum / b->count);
}

static void share(const plan *p, const bin *b, float *dx, float dy)
{
    float each = (float)(dy / b->count);
    for (int64_t z = b->begin[0]; z < b->end[0]; z++)
        for (int64_t y = b->begin[1]; y < b->end[1]; y++) {
            float *row = dx + (z * p->in[1] + y) * p->in[2];
            for (int64_t i = b->begin[2]; i < b->end[2]; i++) row[i] += each;
        }
}

static void pool_planes(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const lk_call *call = context;
    const plan *p = call->state;
    bool forward = call->op == LK_OP_ADAPTIVE_AVG_POOL;
    for (int64_t i = begin; i < end; i++) {
        const float *from = lki_cpu_in(call, 0) + i * (forward ? p->in_plane : p->out_plane);
        float *to = lki_cpu_out(call, 0) + i * (forward ? p->out_plane : p->in_plane);
        int64_t k = 0;
        if (!forward) memset(to, 0, (size_t)p->in_plane * sizeof *to);
        for (int64_t z = 0; z < p->out[0]; z++)
            for (int64_t y = 0; y < p->out[1]; y++)
                for (int64_t x = 0; x < p->out[2]; x++, k++) {
                    bin b = bin_of(p, z, y, x);
                    if (forward)
                        to[k] = mean_of(p, &b, from);
                    else
                        share(p, &b, to, from[k]);
                }
    }
}

static lk_status run_adaptive_pool(const lk_call *call)
{
    const plan *p = call->state;
    int64_t grain = LKI_CPU_GRAIN / (p->in_plane + p->out_plane + 1) + 1;
    lki_parallel_for(lki_cpu_of(call)->pool, p->plane_count, grain, pool_planes, (void *)call);
    return LK_OK;
}

lk_status lki_cpu_prepare_adaptive_places(lk_call *call, lk_shape in, lk_shape out)
{
    int rank = call->attr->pool.window.rank, first = in.rank - rank;
    plan *p = lki_cpu_new_state(call, sizeof *p);
    if (!p) return LK_ERR_NOMEM;
    for (int i = 0; i < MOST_DIMS; i++) {
        bool is_absent = i < MOST_DIMS - rank;
        p->in[i] = is_absent ? 1 : in.dim[first + i - (MOST_DIMS - rank)];
        p->out[i] = is_absent ? 1 : out.dim[first + i - (MOST_DIMS - rank)];
    }
    p->in_plane = lki_cpu_span(in, first, in.rank);
    p->out_plane = lki_cpu_span(out, first, out.rank);
    p->plane_count = lki_cpu_span(in, 0, first);
    call->run = run_adaptive_pool;
    return LK_OK;
}
