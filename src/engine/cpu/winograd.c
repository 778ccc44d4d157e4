/* Winograd's convolution: input tiles to 36 matrices V, products with the 36 matrices U of the weights, and
 * back. Tiles go through in blocks whose V stays in the second cache; output channels in groups whose
 * products stay there with it. */
#include "engine/cpu/conv.h"

#include "base/status.h"

#include <string.h>

enum { FREQUENCIES = 36, GROUP = 28 };

/* What call->state points to. */
typedef struct plan {
    lki_winograd w;
    int64_t tiles, block, blocks;
    int64_t weight_count, input_count, product_count, pack_count, pad_count; /* floats of scratch */
} plan;

static int64_t rounded_up(int64_t value, int64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static bool is_suitable(const lki_cpu *cpu, const lki_conv_sizes *s)
{
    const lki_conv *c = &s->one;
    bool plain = c->in[0] == 1 && c->kernel[0] == 1 && c->padding[0] == 0 && c->kernel[1] == 3 &&
                 c->kernel[2] == 3 && c->stride[1] == 1 && c->stride[2] == 1 && c->dilation[1] == 1 &&
                 c->dilation[2] == 1;
    bool worth = s->group_in >= 16 && s->group_out >= 16 && c->out[1] >= 4 && c->out[2] >= 4;
    return cpu->kernels->winograd && plain && worth && s->groups == 1 && c->padding[1] <= 2 &&
           c->padding[2] <= 2;
}

static void cut_into_blocks(plan *p, int64_t channels, int64_t nbytes)
{
    p->w.tiles_y = (p->w.out_height + 3) / 4;
    p->w.tiles_x = (p->w.out_width + 3) / 4;
    p->tiles = p->w.batch * p->w.tiles_y * p->w.tiles_x;
    int64_t most = nbytes / (FREQUENCIES * (int64_t)sizeof(float) * channels) / 32 * 32;
    p->block = most < 32 ? 32 : most > 192 ? 192 : most;
    if (p->block > rounded_up(p->tiles, 16)) p->block = rounded_up(p->tiles, 16);
    p->blocks = (p->tiles + p->block - 1) / p->block;
}

/* M (36, channels, block) = U (36, out_channels, in_channels) [rows c0...] V (36, in_channels, block) */
static void multiply(const lki_cpu *cpu, const plan *p, const float *u, const float *input, float *product,
                     int64_t c0, int64_t channels, int64_t columns, float *pack)
{
    int64_t in = p->w.in_channels;
    for (int f = 0; f < FREQUENCIES; f++) {
        lki_gemm g = {
            .m = channels,
            .n = columns,
            .k = in,
            .a = u + (f * p->w.out_channels + c0) * in,
            .a_row = in,
            .a_col = 1,
            .b = input + f * lki_winograd_stride(in, p->block),
            .b_row = p->block,
            .b_col = 1,
            .c = product + f * lki_winograd_stride(channels, p->block),
            .c_row = p->block,
        };
        cpu->kernels->gemm(&g, 0, g.m, 0, g.n, pack);
    }
}

static int64_t thread_floats(const plan *p)
{
    return p->input_count + p->product_count + p->pack_count + p->pad_count;
}

static void run_blocks(int64_t begin, int64_t end, int thread, void *context)
{
    const lk_call *call = context;
    const plan *p = call->state;
    const lki_cpu *cpu = lki_cpu_of(call);
    float *u = call->scratch, *input = u + p->weight_count + thread * thread_floats(p);
    float *product = input + p->input_count, *pack = product + p->product_count;
    const float *bias = call->op == LK_OP_CONV ? lki_cpu_in(call, 2) : NULL;
    bool relu = call->attr->activation == LK_ACTIVATION_RELU;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i * p->block, count = p->tiles - first < p->block ? p->tiles - first : p->block;
        cpu->kernels->winograd->input(input, &p->w, call->in[0].data, first, count, p->block,
                                      pack + p->pack_count);
        for (int64_t c0 = 0; c0 < p->w.out_channels; c0 += GROUP) {
            int64_t channels = p->w.out_channels - c0 < GROUP ? p->w.out_channels - c0 : GROUP;
            multiply(cpu, p, u, input, product, c0, channels, rounded_up(count, 16), pack);
            cpu->kernels->winograd->output(call->out[0].data, &p->w, product, c0, channels, first, count,
                                           p->block, bias, relu);
        }
    }
}

/* A convolution, or the gradient of its input: a convolution of dy with the kernels turned around and their
 * two channel axes exchanged. */
static lk_status run_winograd(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    const plan *p = call->state;
    bool forward = call->op == LK_OP_CONV;
    int64_t in = p->w.in_channels, out = p->w.out_channels;
    cpu->kernels->winograd->weights(call->scratch, call->in[1].data, out, in, forward ? in * 9 : 9,
                                    forward ? 9 : out * 9, !forward);
    lki_parallel_for(cpu->pool, p->blocks, 1, run_blocks, (void *)call);
    return LK_OK;
}

lk_status lki_cpu_prepare_winograd(lki_cpu *cpu, lk_call *call)
{
    bool forward = call->op == LK_OP_CONV;
    lk_shape x = call->in[0].shape, y = call->out[0].shape;
    if (call->op == LK_OP_CONV_TRANSPOSE) return LK_OK;
    lki_conv_sizes s = lki_conv_sizes_of(&call->attr->window, forward ? x : y, forward ? y : x);
    if (!is_suitable(cpu, &s)) return LK_OK;
    plan *p = lki_cpu_new_state(call, sizeof *p);
    if (!p) return LK_ERR_NOMEM;
    const int64_t *from = forward ? s.one.in : s.one.out, *to = forward ? s.one.out : s.one.in;
    p->w = (lki_winograd){
        .batch = s.batch,
        .in_channels = x.dim[1],
        .out_channels = y.dim[1],
        .in_height = from[1],
        .in_width = from[2],
        .out_height = to[1],
        .out_width = to[2],
        .pad_y = forward ? s.one.padding[1] : 2 - s.one.padding[1],
        .pad_x = forward ? s.one.padding[2] : 2 - s.one.padding[2],
    };
    cut_into_blocks(p, p->w.in_channels, 320 << 10);
    p->weight_count = FREQUENCIES * rounded_up(p->w.in_channels * p->w.out_channels, 16);
    p->input_count = FREQUENCIES * lki_winograd_stride(p->w.in_channels, p->block);
    p->product_count = FREQUENCIES * lki_winograd_stride(GROUP, p->block);
    p->pack_count = lki_gemm_scratch_count(p->block, p->w.in_channels);
    p->pad_count = lki_winograd_pad_count(&p->w, p->block);
    call->scratch_nbytes = (size_t)(p->weight_count + thread_floats(p) * cpu->thread_count) * sizeof(float);
    call->run = run_winograd;
    return LK_OK;
}

/* U (36, o, c) += Z (36, o, t) V (36, c, t)^T over the tiles t of a thread's blocks. */
static void grad_weight_blocks(int64_t begin, int64_t end, int thread, void *context)
{
    const lk_call *call = context;
    const plan *p = call->state;
    const lki_cpu *cpu = lki_cpu_of(call);
    int64_t in = p->w.in_channels, out = p->w.out_channels;
    float *u = (float *)call->scratch + thread * (p->weight_count + thread_floats(p)),
          *input = u + p->weight_count;
    float *gradient = input + p->input_count, *pack = gradient + p->product_count;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i * p->block, count = p->tiles - first < p->block ? p->tiles - first : p->block;
        cpu->kernels->winograd->input(input, &p->w, call->in[1].data, first, count, p->block,
                                      pack + p->pack_count);
        cpu->kernels->winograd->gradient(gradient, &p->w, call->in[0].data, first, count, p->block);
        for (int f = 0; f < FREQUENCIES; f++) {
            lki_gemm g = {
                .m = out,
                .n = in,
                .k = rounded_up(count, 16), /* beyond the tiles, the gradient is zero */
                .a = gradient + f * lki_winograd_stride(out, p->block),
                .a_row = p->block,
                .a_col = 1,
                .b = input + f * lki_winograd_stride(in, p->block),
                .b_row = 1,
                .b_col = p->block,
                .c = u + f * out * in,
                .c_row = in,
                .accumulate = true,
            };
            cpu->kernels->gemm(&g, 0, g.m, 0, g.n, pack);
        }
    }
}

static void sum_bias(const lk_call *call, const plan *p)
{
    int64_t plane = p->w.out_height * p->w.out_width;
    for (int64_t o = 0; o < p->w.out_channels; o++) {
        double sum = 0;
        for (int64_t n = 0; n < p->w.batch; n++)
            sum += lki_cpu_of(call)->kernels->sum(lki_cpu_in(call, 0) + (n * p->w.out_channels + o) * plane,
                                                  plane);
        lki_cpu_out(call, 1)[o] = (float)sum;
    }
}

static lk_status run_winograd_grad_weight(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    const plan *p = call->state;
    int64_t each = p->weight_count + thread_floats(p);
    float *u = call->scratch;
    for (int thread = 0; thread < cpu->thread_count; thread++)
        memset(u + thread * each, 0, (size_t)p->weight_count * sizeof(float));
    lki_parallel_for(cpu->pool, p->blocks, 1, grad_weight_blocks, (void *)call);
    for (int thread = 1; thread < cpu->thread_count; thread++)
        cpu->kernels->add_to(u, u + thread * each, p->weight_count);
    cpu->kernels->winograd->weights_back(call->out[0].data, u, p->w.out_channels, p->w.in_channels);
    if (call->attr->index && call->out[1].data) sum_bias(call, p);
    return LK_OK;
}

lk_status lki_cpu_prepare_winograd_grad_weight(lki_cpu *cpu, lk_call *call)
{
    lk_shape dy = call->in[0].shape, x = call->in[1].shape;
    lki_conv_sizes s = lki_conv_sizes_of(&call->attr->window, x, dy);
    if (!is_suitable(cpu, &s) || !call->out[0].data) return LK_OK;
    plan *p = lki_cpu_new_state(call, sizeof *p);
    if (!p) return LK_ERR_NOMEM;
    p->w = (lki_winograd){
        .batch = s.batch,
        .in_channels = x.dim[1],
        .out_channels = dy.dim[1],
        .in_height = s.one.in[1],
        .in_width = s.one.in[2],
        .out_height = s.one.out[1],
        .out_width = s.one.out[2],
        .pad_y = s.one.padding[1],
        .pad_x = s.one.padding[2],
    };
    cut_into_blocks(p, p->w.in_channels + p->w.out_channels, 1 << 20);
    p->weight_count = FREQUENCIES * rounded_up(p->w.in_channels * p->w.out_channels, 16);
    p->input_count = FREQUENCIES * lki_winograd_stride(p->w.in_channels, p->block);
    p->product_count = FREQUENCIES * lki_winograd_stride(p->w.out_channels, p->block);
    p->pack_count = lki_gemm_scratch_count(p->w.in_channels, p->block);
    p->pad_count = lki_winograd_pad_count(&p->w, p->block);
    call->scratch_nbytes = (size_t)((p->weight_count + thread_floats(p)) * cpu->thread_count) * sizeof(float);
    call->run = run_winograd_grad_weight;
    return LK_OK;
}
