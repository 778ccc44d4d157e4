/* Pooling: planes are shared among threads. */
#include "engine/cpu/conv.h"

#include "base/status.h"

#include <string.h>

/* What call->state points to. */
typedef struct plan {
    lki_conv one;
    int64_t planes, in_plane, out_plane;
} plan;

/* Pooling slides over the last axes of any tensor: all the others count planes. */
static plan describe(const lk_call *call, lk_shape in, lk_shape out)
{
    int rank = call->attr->pool.window.rank;
    lk_shape flat_in = {2 + rank, {lki_cpu_span(in, 0, in.rank - rank), 1}};
    lk_shape flat_out = {2 + rank, {flat_in.dim[0], 1}};
    for (int i = 0; i < rank; i++) {
        flat_in.dim[2 + i] = in.dim[in.rank - rank + i];
        flat_out.dim[2 + i] = out.dim[out.rank - rank + i];
    }
    lk_window window = call->attr->pool.window;
    window.groups = 1;
    lki_conv_sizes s = lki_conv_sizes_of(&window, flat_in, flat_out);
    return (plan){s.one, s.batch, s.in_plane, s.out_plane};
}

static bool is_low(lk_dtype dtype)
{
    return dtype == LK_BF16 || dtype == LK_F16;
}

/* 16-bit planes are widened one at a time, into scratch that a thread has of its own, and results narrowed.
 */
static bool takes_low(const lk_call *call)
{
    lk_dtype in = call->in[0].dtype, out = call->out[0].dtype;
    return (in == LK_F32 || is_low(in)) && (out == LK_F32 || is_low(out));
}

static size_t thread_floats(const plan *p)
{
    return (size_t)(p->in_plane + p->out_plane + 31) / 16 * 16;
}

static float *own_floats(const lk_call *call, int thread)
{
    return (float *)call->scratch + (size_t)thread * thread_floats(call->state);
}

/* Plane `i` of `count` elements as floats: as it is, or in `room`. */
static const float *load_plane(const lk_call *call, const lk_tensor *x, int64_t i, int64_t count, float *room)
{
    if (x->dtype == LK_F32) return (const float *)x->data + i * count;
    lki_cpu_of(call)->kernels->tile_load(room, (const uint16_t *)x->data + i * count, x->dtype, count);
    return room;
}

/* Where plane `i` of a result is computed, and how it gets from there to its place. */
static float *result_plane(const lk_tensor *y, int64_t i, int64_t count, float *room)
{
    if (!y->data) return NULL;
    return y->dtype == LK_F32 ? (float *)y->data + i * count : room;
}

static void save_plane(const lk_call *call, const lk_tensor *y, int64_t i, int64_t count, const float *room)
{
    if (y->data && y->dtype != LK_F32)
        lki_cpu_of(call)->kernels->tile_save((uint16_t *)y->data + i * count, room, y->dtype, count);
}

static lk_status prepare_planes(lk_call *call, lk_shape in, lk_shape out, lk_kernel run)
{
    plan *p = lki_cpu_new_state(call, sizeof *p);
    if (!p) return LK_ERR_NOMEM;
    *p = describe(call, in, out);
    call->run = run;
    return LK_OK;
}

static void run_planes(const lk_call *call, lki_loop_body body)
{
    const plan *p = call->state;
    lki_parallel_for(lki_cpu_of(call)->pool, p->planes, 4096 / (p->in_plane + 1) + 1, body, (void *)call);
}

/* A ReLU follows: where it lets nothing through, nothing has won, and the gradient goes nowhere. */
static void apply_relu(float *y, int32_t *index, const float *x, int64_t count)
{
    for (int64_t i = 0; index && i < count; i++)
        if (index[i] >= 0 && x[index[i]] <= 0) index[i] = -1;
    for (int64_t i = 0; y && i < count; i++)
        if (y[i] < 0) y[i] = 0;
}

static void max_pool_range(int64_t begin, int64_t end, int thread, void *context)
{
    const lk_call *call = context;
    const plan *p = call->state;
    float *room = own_floats(call, thread);
    int32_t *index = call->output_count > 1 ? call->out[1].data : NULL;
    bool relu = call->attr->pool.activation == LK_ACTIVATION_RELU;
    for (int64_t i = begin; i < end; i++) {
        float *to = result_plane(&call->out[0], i, p->out_plane, room + p->in_plane);
        int32_t *winners = index ? index + i * p->out_plane : NULL;
        const float *x = load_plane(call, &call->in[0], i, p->in_plane, room);
        lki_cpu_of(call)->kernels->max_pool_plane(to, winners, &p->one, x);
        if (relu) apply_relu(to, winners, x, p->out_plane);
        save_plane(call, &call->out[0], i, p->out_plane, to);
    }
}

static lk_status run_max_pool(const lk_call *call)
{
    run_planes(call, max_pool_range);
    return LK_OK;
}

lk_status lki_cpu_prepare_max_pool(lki_cpu *cpu, lk_call *call)
{
    if (!takes_low(call)) return LK_OK;
    LKI_TRY(prepare_planes(call, call->in[0].shape, call->out[0].shape, run_max_pool));
    call->scratch_nbytes = thread_floats(call->state) * sizeof(float) * (size_t)cpu->thread_count;
    return LK_OK;
}

static void max_pool_grad_range(int64_t begin, int64_t end, int thread, void *context)
{
    const lk_call *call = context;
    const plan *p = call->state;
    float *room = own_floats(call, thread);
    for (int64_t i = begin; i < end; i++) {
        const float *dy = load_plane(call, &call->in[0], i, p->out_plane, room + p->in_plane);
        const int32_t *index = (const int32_t *)call->in[1].data + i * p->out_plane;
        float *dx = result_plane(&call->out[0], i, p->in_plane, room);
        memset(dx, 0, (size_t)p->in_plane * sizeof(float));
        for (int64_t j = 0; j < p->out_plane; j++)
            if (index[j] >= 0) dx[index[j]] += dy[j];
        save_plane(call, &call->out[0], i, p->in_plane, dx);
    }
}

static lk_status run_max_pool_grad(const lk_call *call)
{
    run_planes(call, max_pool_grad_range);
    return LK_OK;
}

lk_status lki_cpu_prepare_max_pool_grad(lki_cpu *cpu, lk_call *call)
{
    if (!takes_low(call)) return LK_OK;
    LKI_TRY(prepare_planes(call, call->out[0].shape, call->in[0].shape, run_max_pool_grad));
    call->scratch_nbytes = thread_floats(call->state) * sizeof(float) * (size_t)cpu->thread_count;
    return LK_OK;
}

/* How much of an axis the window at `place` covers: cut at the far edge of the padding, or with exclude_pad
 * at both ends of the input. */
static int64_t covered(const plan *p, bool exclude_pad, int axis, int64_t place)
{
    int64_t begin = place * p->one.stride[axis] - p->one.padding[axis], end = begin + p->one.kernel[axis];
    int64_t edge = p->one.in[axis] + (exclude_pad ? 0 : p->one.padding[axis]);
    if (exclude_pad && begin < 0) begin = 0;
    return (end < edge ? end : edge) - begin;
}

/* What the sum over the window at one output place is divided by. */
static float divisor(const lk_call *call, const plan *p, int64_t z, int64_t y, int64_t x)
{
    const lk_window *window = &call->attr->pool.window;
    if (window->divisor) return (float)window->divisor;
    return (float)(covered(p, window->exclude_pad, 0, z) * covered(p, window->exclude_pad, 1, y) *
                   covered(p, window->exclude_pad, 2, x));
}

static void avg_pool_range(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const lk_call *call = context;
    const plan *p = call->state;
    for (int64_t i = begin; i < end; i++) {
        float *y = lki_cpu_out(call, 0) + i * p->out_plane;
        lki_cpu_of(call)->kernels->sum_pool_plane(y, &p->one, lki_cpu_in(call, 0) + i * p->in_plane);
        for (int64_t oz = 0; oz < p->one.out[0]; oz++)
            for (int64_t oy = 0; oy < p->one.out[1]; oy++)
                for (int64_t ox = 0; ox < p->one.out[2]; ox++) {
                    float d = divisor(call, p, oz, oy, ox);
                    *y = d != 0 && *y != 0 ? *y / d : 0;
                    y++;
                }
    }
}

static lk_status run_avg_pool(const lk_call *call)
{
    run_planes(call, avg_pool_range);
    return LK_OK;
}

static lk_status prepare_average(lk_call *call, lk_shape in, lk_shape out, lk_kernel run)
{
    lk_status status = prepare_planes(call, in, out, run);
    plan *p = call->state;
    for (int i = 0; p && i < 3; i++) p->one.dilation[i] = 1; /* averages have none */
    return status;
}

lk_status lki_cpu_prepare_avg_pool(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (!lki_cpu_all_f32(call, 0)) return LK_OK;
    return prepare_average(call, call->in[0].shape, call->out[0].shape, run_avg_pool);
}

/* Adds one window's share to the part of the plane that it covers. */
static void share_window(const plan *p, float *dx, float share, int64_t z, int64_t y, int64_t x)
{
    int64_t low[3], high[3], at[3] = {z, y, x};
    for (int i = 0; i < 3; i++) {
        low[i] = at[i] * p->one.stride[i] - p->one.padding[i];
        high[i] = low[i] + p->one.kernel[i] < p->one.in[i] ? low[i] + p->one.kernel[i] : p->one.in[i];
        if (low[i] < 0) low[i] = 0;
    }
    for (int64_t iz = low[0]; iz < high[0]; iz++)
        for (int64_t iy = low[1]; iy < high[1]; iy++) {
            float *row = dx + (iz * p->one.in[1] + iy) * p->one.in[2];
            for (int64_t ix = low[2]; ix < high[2]; ix++) row[ix] += share;
        }
}

static void avg_pool_grad_range(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const lk_call *call = context;
    const plan *p = call->state;
    for (int64_t i = begin; i < end; i++) {
        const float *dy = lki_cpu_in(call, 0) + i * p->out_plane;
        float *dx = lki_cpu_out(call, 0) + i * p->in_plane;
        memset(dx, 0, (size_t)p->in_plane * sizeof(float));
        for (int64_t oz = 0; oz < p->one.out[0]; oz++)
            for (int64_t oy = 0; oy < p->one.out[1]; oy++)
                for (int64_t ox = 0; ox < p->one.out[2]; ox++, dy++)
                    share_window(p, dx, *dy / divisor(call, p, oz, oy, ox), oz, oy, ox);
    }
}

static lk_status run_avg_pool_grad(const lk_call *call)
{
    run_planes(call, avg_pool_grad_range);
    return LK_OK;
}

lk_status lki_cpu_prepare_avg_pool_grad(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (!lki_cpu_all_f32(call, 0)) return LK_OK;
    return prepare_average(call, call->out[0].shape, call->in[0].shape, run_avg_pool_grad);
}

/* Adaptive pooling to a single place is a mean over the plane; other sizes are in adaptive_pool.c. */
static void global_pool_range(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const lk_call *call = context;
    const plan *p = call->state;
    const lki_cpu_kernels *kernels = lki_cpu_of(call)->kernels;
    for (int64_t i = begin; i < end; i++) {
        if (call->op == LK_OP_ADAPTIVE_AVG_POOL)
            lki_cpu_out(call, 0)[i] =
                (float)(kernels->sum(lki_cpu_in(call, 0) + i * p->in_plane, p->in_plane) /
                        (double)p->in_plane);
        else
            kernels->tile_fill(lki_cpu_out(call, 0) + i * p->in_plane,
                               lki_cpu_in(call, 0)[i] / (float)p->in_plane, p->in_plane);
    }
}

static lk_status run_global_pool(const lk_call *call)
{
    run_planes(call, global_pool_range);
    return LK_OK;
}

lk_status lki_cpu_prepare_adaptive_avg_pool(lki_cpu *cpu, lk_call *call)
{
    bool forward = call->op == LK_OP_ADAPTIVE_AVG_POOL;
    lk_shape in = forward ? call->in[0].shape : call->out[0].shape,
             out = forward ? call->out[0].shape : call->in[0].shape;
    int rank = call->attr->pool.window.rank;
    if (!lki_cpu_all_f32(call, 0)) return LK_OK;
    if (lki_cpu_span(out, out.rank - rank, out.rank) != 1)
        return lki_cpu_prepare_adaptive_places(call, in, out);
    lki_cpu_enter(cpu, LKI_CPU_PATH_GLOBAL_POOL);
    return prepare_planes(call, in, out, run_global_pool);
}
