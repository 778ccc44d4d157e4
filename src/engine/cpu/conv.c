/* Convolutions as products with columns, tile by tile of output positions, for any shape; Winograd's
 * algorithm is tried first (winograd.c). */
#include "engine/cpu/conv.h"

#include "base/status.h"

#include <string.h>

lki_conv_sizes lki_conv_sizes_of(const lk_window *window, lk_shape in, lk_shape out)
{
    int64_t groups = window->groups > 0 ? window->groups : 1;
    lki_conv_sizes s = {.batch = in.dim[0],
                        .groups = groups,
                        .group_in = in.dim[1] / groups,
                        .group_out = out.dim[1] / groups};
    s.one.channels = s.group_in;
    s.taps = s.in_plane = s.out_plane = 1;
    for (int i = 0; i < 3; i++) {
        int from = i - (3 - window->rank);
        bool real = from >= 0;
        s.one.in[i] = real ? in.dim[2 + from] : 1;
        s.one.out[i] = real ? out.dim[2 + from] : 1;
        s.one.kernel[i] = real ? window->kernel[from] : 1;
        s.one.stride[i] = real ? window->stride[from] : 1;
        s.one.padding[i] = real ? window->padding[from] : 0;
        s.one.dilation[i] = real && window->dilation[from] ? window->dilation[from] : 1;
        s.taps *= s.one.kernel[i];
        s.in_plane *= s.one.in[i];
        s.out_plane *= s.one.out[i];
    }
    return s;
}

/* What call->state points to. */
typedef struct plan {
    lki_conv_sizes s;
    int64_t k;    /* rows of the columns: group_in * taps */
    int64_t tile; /* output positions at a time */
    int64_t col_count, gemm_count,
        weight_count; /* floats of scratch a thread: columns, panels, a partial dw with db */
} plan;

static const float *plane_of(const lk_tensor *t, int64_t sample, int64_t groups, int64_t group,
                             int64_t group_size)
{
    return (const float *)t->data + (sample * groups + group) * group_size;
}

/* Columns of about `nbytes`, a whole number of vectors wide. */
static int64_t tile_width(const lki_conv_sizes *s, int64_t k, int64_t nbytes)
{
    int64_t width = nbytes / (int64_t)sizeof(float) / (k > 0 ? k : 1) / 32 * 32;
    if (width < 64) width = 64;
    return width < s->out_plane ? width : s->out_plane;
}

/* A 1 x 1 convolution without stride or padding reads its input as the columns. (The output padding of a
 * transposed one makes the sides differ.) */
static bool is_pointwise(const lki_conv_sizes *s)
{
    for (int i = 0; i < 3; i++)
        if (s->one.kernel[i] != 1 || s->one.stride[i] != 1 || s->one.padding[i] != 0 ||
            s->one.in[i] != s->one.out[i])
            return false;
    return true;
}

/* Few output channels and pairs of columns, rows that fill a good part of a vector: no columns are written
 * down. */
static bool has_pairs(const lki_cpu *cpu, const lki_conv_sizes *s)
{
    return cpu->kernels->pairs && s->one.kernel[2] == 2 && s->one.stride[2] == 2 && s->one.dilation[2] == 1 &&
           s->group_out <= 16 && s->group_in * s->taps <= 256 && s->one.out[2] >= 8;
}

static lki_pairs pairs_of(const lk_call *call, const plan *p, int64_t group)
{
    lki_pairs pairs = {.one = p->s.one, .outs = p->s.group_out, .k = p->k};
    if (call->op == LK_OP_CONV) {
        const float *bias = lki_cpu_in(call, 2);
        pairs.w = lki_cpu_in(call, 1) + group * p->s.group_out * p->k;
        pairs.bias = bias ? bias + group * p->s.group_out : NULL;
        pairs.relu = call->attr->conv.activation == LK_ACTIVATION_RELU;
    }
    return pairs;
}

/* y (o, p) = W (o, c k) col (c k, p) + b */
static void forward_group(const lk_call *call, const plan *p, int64_t sample, int64_t group, float *scratch)
{
    const lki_conv_sizes *s = &p->s;
    const lki_cpu_kernels *kernels = lki_cpu_of(call)->kernels;
    const float *x = plane_of(&call->in[0], sample, s->groups, group, s->group_in * s->in_plane);
    const float *w = (const float *)call->in[1].data + group * s->group_out * p->k,
                *bias = lki_cpu_in(call, 2);
    float *y = (float *)plane_of(&call->out[0], sample, s->groups, group, s->group_out * s->out_plane);
    bool pointwise = is_pointwise(s);
    if (has_pairs(lki_cpu_of(call), s)) {
        lki_pairs pairs = pairs_of(call, p, group);
        kernels->pairs->forward(y, &pairs, x, scratch);
        return;
    }
    for (int64_t p0 = 0; p0 < s->out_plane; p0 += p->tile) {
        int64_t p1 = p0 + p->tile < s->out_plane ? p0 + p->tile : s->out_plane;
        if (!pointwise) kernels->im2col(scratch, p1 - p0, &s->one, x, p0, p1);
        lki_gemm g = {
            .m = s->group_out,
            .n = p1 - p0,
            .k = p->k,
            .a = w,
            .a_row = p->k,
            .a_col = 1,
            .b = pointwise ? x + p0 : scratch,
            .b_row = pointwise ? s->out_plane : p1 - p0,
            .b_col = 1,
            .c = y + p0,
            .c_row = s->out_plane,
            .row_bias = bias ? bias + group * s->group_out : NULL,
            .relu = call->attr->conv.activation == LK_ACTIVATION_RELU,
        };
        kernels->gemm(&g, 0, g.m, 0, g.n, scratch + p->col_count);
    }
}

static void forward_range(int64_t begin, int64_t end, int thread, void *context)
{
    const lk_call *call = context;
    const plan *p = call->state;
    float *scratch = (float *)call->scratch + thread * (p->col_count + p->gemm_count);
    for (int64_t i = begin; i < end; i++) forward_group(call, p, i / p->s.groups, i % p->s.groups, scratch);
}

static lk_status run_conv(const lk_call *call)
{
    const plan *p = call->state;
    lki_parallel_for(lki_cpu_of(call)->pool, p->s.batch * p->s.groups, 1, forward_range, (void *)call);
    return LK_OK;
}

static plan *new_plan(lki_cpu *cpu, lk_call *call, lk_shape in, lk_shape out, int64_t col_nbytes)
{
    plan *p = lki_cpu_new_state(call, sizeof *p);
    if (!p) return NULL;
    p->s = lki_conv_sizes_of(&call->attr->conv.window, in, out);
    p->k = p->s.group_in * p->s.taps;
    p->tile = tile_width(&p->s, p->k, col_nbytes);
    p->col_count = (p->k * p->tile + 15) / 16 * 16;
    int64_t rows = p->s.one.out[1] * 2 > p->k ? p->s.one.out[1] * 2 : p->k;
    if (has_pairs(cpu, &p->s) && p->col_count < rows * 16) p->col_count = rows * 16;
    p->gemm_count = lki_gemm_scratch_count(p->tile, p->k > p->s.group_out ? p->k : p->s.group_out);
    call->scratch_nbytes = (size_t)((p->col_count + p->gemm_count) * cpu->thread_count) * sizeof(float);
    return p;
}

lk_status lki_cpu_prepare_conv(lki_cpu *cpu, lk_call *call)
{
    if (!lki_cpu_all_f32(call, 0)) return LK_OK;
    LKI_TRY(lki_cpu_prepare_winograd(cpu, call));
    if (call->run) return LK_OK;
    return lki_cpu_prepare_direct(cpu, call);
}

/* bias and activation of the transposed convolution; x: the planes of one group of a sample. */
static void finish_planes(const lk_call *call, const lki_conv_sizes *s, int64_t group, float *x)
{
    const lki_cpu_kernels *kernels = lki_cpu_of(call)->kernels;
    const float *bias = call->op == LK_OP_CONV_TRANSPOSE ? lki_cpu_in(call, 2) : NULL;
    bool relu = call->attr->conv.activation == LK_ACTIVATION_RELU;
    for (int64_t c = 0; c < s->group_in && (bias || relu); c++) {
        float *plane = x + c * s->in_plane;
        lki_tile_args args = {bias ? bias[group * s->group_in + c] : 0, 0, 0};
        kernels->tile[LK_OP_ADD_SCALAR](plane, plane, NULL, NULL, s->in_plane, &args);
        if (relu) kernels->tile[LK_OP_RELU](plane, plane, NULL, NULL, s->in_plane, &args);
    }
}

/* dcol (c k, p) = W^T dy (o, p), then each column goes back to where it came from. */
static void grad_input_group(const lk_call *call, const plan *p, int64_t sample, int64_t group,
                             float *scratch)
{
    const lki_conv_sizes *s = &p->s;
    const lki_cpu_kernels *kernels = lki_cpu_of(call)->kernels;
    const float *dy = plane_of(&call->in[0], sample, s->groups, group, s->group_out * s->out_plane);
    const float *w = (const float *)call->in[1].data + group * s->group_out * p->k;
    float *dx = (float *)plane_of(&call->out[0], sample, s->groups, group, s->group_in * s->in_plane);
    bool pointwise = is_pointwise(s);
    if (!pointwise) memset(dx, 0, (size_t)(s->group_in * s->in_plane) * sizeof(float));
    for (int64_t p0 = 0; p0 < s->out_plane; p0 += p->tile) {
        int64_t p1 = p0 + p->tile < s->out_plane ? p0 + p->tile : s->out_plane;
        lki_gemm g = {
            .m = p->k,
            .n = p1 - p0,
            .k = s->group_out,
            .a = w,
            .a_row = 1,
            .a_col = p->k,
            .b = dy + p0,
            .b_row = s->out_plane,
            .b_col = 1,
            .c = pointwise ? dx + p0 : scratch,
            .c_row = pointwise ? s->out_plane : p1 - p0,
        };
        kernels->gemm(&g, 0, g.m, 0, g.n, scratch + p->col_count);
        if (!pointwise) kernels->col2im(dx, &s->one, scratch, p1 - p0, p0, p1);
    }
    finish_planes(call, s, group, dx);
}

static void grad_input_range(int64_t begin, int64_t end, int thread, void *context)
{
    const lk_call *call = context;
    const plan *p = call->state;
    float *scratch = (float *)call->scratch + thread * (p->col_count + p->gemm_count);
    for (int64_t i = begin; i < end; i++)
        grad_input_group(call, p, i / p->s.groups, i % p->s.groups, scratch);
}

static lk_status run_conv_grad_input(const lk_call *call)
{
    const plan *p = call->state;
    lki_parallel_for(lki_cpu_of(call)->pool, p->s.batch * p->s.groups, 1, grad_input_range, (void *)call);
    return LK_OK;
}

/* The transposed convolution is the gradient with respect to the input of a convolution whose weight is its
 * own. */
lk_status lki_cpu_prepare_conv_grad_input(lki_cpu *cpu, lk_call *call)
{
    if (!lki_cpu_all_f32(call, 0)) return LK_OK;
    LKI_TRY(lki_cpu_prepare_winograd_grad_input(cpu, call));
    if (call->run) return LK_OK;
    return lki_cpu_prepare_direct(cpu, call);
}

/* dw (o, c k) += dy (o, p) col (c k, p)^T; db (o) += sum of dy (o, p). */
static void grad_weight_group(const lk_call *call, const plan *p, int64_t sample, int64_t group, float *dw,
                              float *scratch)
{
    const lki_conv_sizes *s = &p->s;
    const lki_cpu_kernels *kernels = lki_cpu_of(call)->kernels;
    const float *dy = plane_of(&call->in[0], sample, s->groups, group, s->group_out * s->out_plane);
    const float *x = plane_of(&call->in[1], sample, s->groups, group, s->group_in * s->in_plane);
    float *db = dw + s->groups * s->group_out * p->k + group * s->group_out;
    bool pointwise = is_pointwise(s), by_pairs = has_pairs(lki_cpu_of(call), s);
    if (by_pairs) {
        lki_pairs pairs = pairs_of(call, p, group);
        kernels->pairs->gradient(dw + group * s->group_out * p->k, &pairs, x, dy, scratch);
    }
    for (int64_t p0 = 0; p0 < s->out_plane && !by_pairs; p0 += p->tile) {
        int64_t p1 = p0 + p->tile < s->out_plane ? p0 + p->tile : s->out_plane;
        if (!pointwise) kernels->im2col(scratch, p1 - p0, &s->one, x, p0, p1);
        lki_gemm g = {
            .m = s->group_out,
            .n = p->k,
            .k = p1 - p0,
            .a = dy + p0,
            .a_row = s->out_plane,
            .a_col = 1,
            .b = pointwise ? x + p0 : scratch,
            .b_row = 1,
            .b_col = pointwise ? s->out_plane : p1 - p0,
            .c = dw + group * s->group_out * p->k,
            .c_row = p->k,
            .accumulate = true,
        };
        kernels->gemm(&g, 0, g.m, 0, g.n, scratch + p->col_count);
    }
    for (int64_t o = 0; o < s->group_out && call->attr->conv.wants_bias; o++)
        db[o] += (float)kernels->sum(dy + o * s->out_plane, s->out_plane);
}

static int64_t thread_floats(const plan *p)
{
    return p->col_count + p->gemm_count + p->weight_count;
}

/* Each thread has its own sum over its samples; they are added in the order of threads. */
static void grad_weight_range(int64_t begin, int64_t end, int thread, void *context)
{
    const lk_call *call = context;
    const plan *p = call->state;
    float *dw = (float *)call->scratch + thread * thread_floats(p), *scratch = dw + p->weight_count;
    for (int64_t i = begin; i < end; i++)
        for (int64_t group = 0; group < p->s.groups; group++)
            grad_weight_group(call, p, i, group, dw, scratch);
}

static lk_status run_conv_grad_weight(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    const plan *p = call->state;
    int64_t outs = p->s.groups * p->s.group_out;
    for (int thread = 0; thread < cpu->thread_count; thread++)
        memset((float *)call->scratch + thread * thread_floats(p), 0,
               (size_t)p->weight_count * sizeof(float));
    lki_parallel_for(cpu->pool, p->s.batch, 1, grad_weight_range, (void *)call);
    float *sum = call->scratch;
    for (int thread = 1; thread < cpu->thread_count; thread++)
        cpu->kernels->add_to(sum, sum + thread * thread_floats(p), outs * p->k + outs);
    if (call->out[0].data) memcpy(call->out[0].data, sum, (size_t)(outs * p->k) * sizeof(float));
    if (call->attr->conv.wants_bias && call->out[1].data)
        memcpy(call->out[1].data, sum + outs * p->k, (size_t)outs * sizeof(float));
    return LK_OK;
}

lk_status lki_cpu_prepare_conv_grad_weight(lki_cpu *cpu, lk_call *call)
{
    if (!lki_cpu_all_f32(call, 0)) return LK_OK;
    LKI_TRY(lki_cpu_prepare_winograd_grad_weight(cpu, call));
    return call->run ? LK_OK : lki_cpu_prepare_direct(cpu, call);
}

static lk_status prepare_grad_weight(lki_cpu *cpu, lk_call *call)
{
    plan *p = new_plan(cpu, call, call->in[1].shape, call->in[0].shape, 128 << 10);
    if (!p) return LK_ERR_NOMEM;
    int64_t outs = p->s.groups * p->s.group_out;
    p->gemm_count = lki_gemm_scratch_count(p->k, p->tile);
    p->weight_count = (outs * p->k + outs + 15) / 16 * 16;
    call->scratch_nbytes = (size_t)(thread_floats(p) * cpu->thread_count) * sizeof(float);
    call->run = run_conv_grad_weight;
    return LK_OK;
}

static void count_entry(lki_cpu *cpu, const lk_call *call)
{
    const plan *p = call->state;
    bool pairs = has_pairs(cpu, &p->s) && (call->op == LK_OP_CONV || call->op == LK_OP_CONV_GRAD_WEIGHT);
    if (pairs)
        lki_cpu_enter(cpu, call->op == LK_OP_CONV ? LKI_CPU_PATH_PAIRS : LKI_CPU_PATH_PAIRS_WEIGHT);
    else
        lki_cpu_enter(cpu, is_pointwise(&p->s) ? LKI_CPU_PATH_CONV_POINTWISE : LKI_CPU_PATH_CONV_COLUMNS);
}

lk_status lki_cpu_prepare_direct(lki_cpu *cpu, lk_call *call)
{
    if (call->op == LK_OP_CONV_GRAD_WEIGHT) {
        LKI_TRY(prepare_grad_weight(cpu, call));
    } else {
        bool forward = call->op == LK_OP_CONV;
        lk_shape in = call->in[0].shape, out = call->out[0].shape;
        if (!new_plan(cpu, call, forward ? in : out, forward ? out : in, 24 << 10)) return LK_ERR_NOMEM;
        call->run = forward ? run_conv : run_conv_grad_input;
    }
    count_entry(cpu, call);
    return LK_OK;
}
