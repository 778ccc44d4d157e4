/* Products and convolutions of bf16 operands by oneDNN, where the machine multiplies bf16. Results are f32 or
 * bf16 as the call says. What oneDNN does not take (f16, odd shapes) is left to widening. */
#include "engine/cpu/dnnl.h"

#include "base/status.h"

static bool is_bf16(const lk_call *call)
{
    lk_dtype out = call->out[0].dtype;
    return call->in[0].dtype == LK_BF16 && call->in[1].dtype == LK_BF16 && (out == LK_F32 || out == LK_BF16);
}

/* A missing primitive is no error: the call is then widened. */
static lk_status or_nothing(lk_status status, lk_call *call)
{
    if (status != LK_ERR_UNSUPPORTED) return status;
    call->run = NULL;
    return LK_OK;
}

/* Operands with their factors' strides; the third, where not NULL, is a bias row of n. */
typedef struct matrices {
    dnnl_memory_desc_t a, b, c, bias;
    int a_operand, b_operand;
    bool has_bias, relu;
} matrices;

static lk_status prepare_product(lki_cpu *cpu, lk_call *call, const matrices *p)
{
    dnnl_matmul_desc_t desc;
    if (lki_onednn.matmul_desc_init(&desc, &p->a, &p->b, p->has_bias ? &p->bias : NULL, &p->c) !=
        dnnl_success)
        return LK_ERR_UNSUPPORTED;
    lki_dnnl *kernel;
    LKI_TRY(lki_dnnl_begin(&kernel, cpu, call, &desc, p->relu));
    LKI_TRY(lki_dnnl_add(kernel, DNNL_ARG_SRC, false, p->a_operand, &p->a));
    LKI_TRY(lki_dnnl_add(kernel, DNNL_ARG_WEIGHTS, false, p->b_operand, &p->b));
    if (p->has_bias) LKI_TRY(lki_dnnl_add(kernel, DNNL_ARG_BIAS, false, 2, &p->bias));
    LKI_TRY(lki_dnnl_add(kernel, DNNL_ARG_DST, true, 0, &p->c));
    return lki_dnnl_finish(kernel, call);
}

/* y (m, n) = x (m, k) w (n, k)^T + b */
static lk_status prepare_linear(lki_cpu *cpu, lk_call *call)
{
    lk_shape x = call->in[0].shape;
    int64_t m = lki_cpu_span(x, 0, x.rank - 1), n = call->in[1].shape.dim[0], k = call->in[1].shape.dim[1];
    matrices p = {
        .a = lki_dnnl_dense(LK_BF16, 2, (int64_t[]){m, k}),
        .b = lki_dnnl_strided(LK_BF16, 2, (int64_t[]){k, n}, (int64_t[]){1, k}),
        .c = lki_dnnl_dense(call->out[0].dtype, 2, (int64_t[]){m, n}),
        .a_operand = 0,
        .b_operand = 1,
        .has_bias = call->input_count > 2 && call->in[2].shape.rank == 1,
        .relu = call->attr->activation == LK_ACTIVATION_RELU,
    };
    if (p.has_bias) p.bias = lki_dnnl_dense(call->in[2].dtype, 2, (int64_t[]){1, n});
    return m ? prepare_product(cpu, call, &p) : LK_ERR_UNSUPPORTED;
}

/* The bias's gradient after the weight's: rows of dy are widened one at a time, at the end of the scratch. */
static lk_status run_linear_grad(const lk_call *call)
{
    LKI_TRY(lki_dnnl_run(call));
    float *db = call->out[1].data;
    if (!call->attr->index || !db) return LK_OK;
    const lki_cpu_kernels *kernels = lki_cpu_of(call)->kernels;
    const lk_tensor *dy = &call->in[0];
    int64_t n = dy->shape.dim[dy->shape.rank - 1], rows = lki_cpu_span(dy->shape, 0, dy->shape.rank - 1);
    float *row = (float *)((char *)call->scratch + call->scratch_nbytes) - n;
    kernels->tile_fill(db, 0, n);
    for (int64_t i = 0; i < rows; i++) {
        kernels->tile_load(row, (const uint16_t *)dy->data + i * n, LK_BF16, n);
        kernels->add_to(db, row, n);
    }
    return LK_OK;
}

/* dw (n, k) = dy (m, n)^T x (m, k) */
static lk_status prepare_linear_grad(lki_cpu *cpu, lk_call *call)
{
    lk_shape dy = call->in[0].shape, x = call->in[1].shape;
    int64_t m = lki_cpu_span(x, 0, x.rank - 1), n = dy.dim[dy.rank - 1], k = x.dim[x.rank - 1];
    matrices p = {
        .a = lki_dnnl_strided(LK_BF16, 2, (int64_t[]){n, m}, (int64_t[]){1, n}),
        .b = lki_dnnl_dense(LK_BF16, 2, (int64_t[]){m, k}),
        .c = lki_dnnl_dense(call->out[0].dtype, 2, (int64_t[]){n, k}),
        .a_operand = 0,
        .b_operand = 1,
    };
    if (!m || call->out[1].dtype != LK_F32) return LK_ERR_UNSUPPORTED;
    LKI_TRY(prepare_product(cpu, call, &p));
    call->scratch_nbytes += ((size_t)n * sizeof(float) + 63) / 64 * 64;
    call->run = run_linear_grad;
    return LK_OK;
}

/* Two matrices, or two equal batches of them. */
static lk_status prepare_matmul(lki_cpu *cpu, lk_call *call)
{
    lk_shape a = call->in[0].shape, b = call->in[1].shape, c = call->out[0].shape;
    bool ta = call->attr->transpose_a, tb = call->attr->transpose_b;
    int64_t batch = lki_cpu_span(c, 0, c.rank - 2), m = c.dim[c.rank - 2], n = c.dim[c.rank - 1];
    int64_t k = a.dim[a.rank - (ta ? 2 : 1)];
    bool alike = lki_cpu_span(a, 0, a.rank - 2) == batch && lki_cpu_span(b, 0, b.rank - 2) == batch;
    if (!alike || !batch || !m || !n || !k) return LK_ERR_UNSUPPORTED;
    matrices p = {
        .a = lki_dnnl_strided(LK_BF16, 3, (int64_t[]){batch, m, k},
                              (int64_t[]){m * k, ta ? 1 : k, ta ? m : 1}),
        .b = lki_dnnl_strided(LK_BF16, 3, (int64_t[]){batch, k, n},
                              (int64_t[]){k * n, tb ? 1 : n, tb ? k : 1}),
        .c = lki_dnnl_dense(call->out[0].dtype, 3, (int64_t[]){batch, m, n}),
        .a_operand = 0,
        .b_operand = 1,
    };
    return prepare_product(cpu, call, &p);
}

/* in: (n, c, s...), out: (n, o, p...), weight: (o, c / groups, k...), as the call has them. */
typedef struct conv {
    int rank;
    dnnl_dims_t in, out, weight;
    int weight_rank;
    dnnl_dims_t stride, dilation, before, after;
} conv;

static conv describe(const lk_call *call, lk_shape in, lk_shape out)
{
    const lk_window *w = &call->attr->window;
    int64_t groups = w->groups > 0 ? w->groups : 1;
    conv v = {.rank = w->rank + 2};
    for (int i = 0; i < v.rank; i++) v.in[i] = in.dim[i], v.out[i] = out.dim[i];
    if (groups > 1) v.weight[v.weight_rank++] = groups;
    v.weight[v.weight_rank++] = out.dim[1] / groups;
    v.weight[v.weight_rank++] = in.dim[1] / groups;
    for (int i = 0; i < w->rank; i++) {
        int64_t dilation = w->dilation[i] ? w->dilation[i] : 1, reach = dilation * (w->kernel[i] - 1) + 1;
        v.weight[v.weight_rank++] = w->kernel[i];
        v.stride[i] = w->stride[i];
        v.dilation[i] = dilation - 1;
        v.before[i] = w->padding[i];
        v.after[i] = (v.out[2 + i] - 1) * w->stride[i] + reach - v.in[2 + i] - w->padding[i];
    }
    return v;
}

static lk_status prepare_conv(lki_cpu *cpu, lk_call *call)
{
    conv v = describe(call, call->in[0].shape, call->out[0].shape);
    bool has_bias = call->input_count > 2 && call->in[2].shape.rank == 1;
    dnnl_memory_desc_t x = lki_dnnl_any(LK_BF16, v.rank, v.in),
                       w = lki_dnnl_any(LK_BF16, v.weight_rank, v.weight);
    dnnl_memory_desc_t y = lki_dnnl_any(call->out[0].dtype, v.rank, v.out),
                       b = lki_dnnl_dense(call->in[2 * has_bias].dtype, 1, &v.out[1]);
    dnnl_convolution_desc_t desc;
    if (lki_onednn.dilated_convolution_forward_desc_init(
            &desc, dnnl_forward_training, dnnl_convolution_direct, &x, &w, has_bias ? &b : NULL, &y, v.stride,
            v.dilation, v.before, v.after) != dnnl_success)
        return LK_ERR_UNSUPPORTED;
    lki_dnnl *kernel;
    LKI_TRY(lki_dnnl_begin(&kernel, cpu, call, &desc, call->attr->activation == LK_ACTIVATION_RELU));
    x = lki_dnnl_dense(LK_BF16, v.rank, v.in);
    w = lki_dnnl_dense(LK_BF16, v.weight_rank, v.weight);
    y = lki_dnnl_dense(call->out[0].dtype, v.rank, v.out);
    LKI_TRY(lki_dnnl_add(kernel, DNNL_ARG_SRC, false, 0, &x));
    LKI_TRY(lki_dnnl_add(kernel, DNNL_ARG_WEIGHTS, false, 1, &w));
    if (has_bias) LKI_TRY(lki_dnnl_add(kernel, DNNL_ARG_BIAS, false, 2, &b));
    LKI_TRY(lki_dnnl_add(kernel, DNNL_ARG_DST, true, 0, &y));
    return lki_dnnl_finish(kernel, call);
}

/* oneDNN wants the forward convolution's description as a hint for the backward ones' layouts; without one it
 * asks for what it likes best. */
static lk_status prepare_conv_grad_input(lki_cpu *cpu, lk_call *call)
{
    conv v = describe(call, call->out[0].shape, call->in[0].shape);
    dnnl_memory_desc_t dx = lki_dnnl_any(call->out[0].dtype, v.rank, v.in),
                       w = lki_dnnl_any(LK_BF16, v.weight_rank, v.weight);
    dnnl_memory_desc_t dy = lki_dnnl_any(LK_BF16, v.rank, v.out);
    dnnl_convolution_desc_t desc;
    if (lki_onednn.dilated_convolution_backward_data_desc_init(&desc, dnnl_convolution_direct, &dx, &w, &dy,
                                                               v.stride, v.dilation, v.before,
                                                               v.after) != dnnl_success)
        return LK_ERR_UNSUPPORTED;
    lki_dnnl *kernel;
    LKI_TRY(lki_dnnl_begin(&kernel, cpu, call, &desc, false));
    dx = lki_dnnl_dense(call->out[0].dtype, v.rank, v.in);
    w = lki_dnnl_dense(LK_BF16, v.weight_rank, v.weight);
    dy = lki_dnnl_dense(LK_BF16, v.rank, v.out);
    LKI_TRY(lki_dnnl_add(kernel, DNNL_ARG_DIFF_DST, false, 0, &dy));
    LKI_TRY(lki_dnnl_add(kernel, DNNL_ARG_WEIGHTS, false, 1, &w));
    LKI_TRY(lki_dnnl_add(kernel, DNNL_ARG_DIFF_SRC, true, 0, &dx));
    return lki_dnnl_finish(kernel, call);
}

static lk_status prepare_conv_grad_weight(lki_cpu *cpu, lk_call *call)
{
    conv v = describe(call, call->in[1].shape, call->in[0].shape);
    bool has_bias = call->attr->index && call->out[1].data;
    if (has_bias && call->out[1].dtype != LK_F32) return LK_ERR_UNSUPPORTED;
    dnnl_memory_desc_t x = lki_dnnl_any(LK_BF16, v.rank, v.in), dy = lki_dnnl_any(LK_BF16, v.rank, v.out);
    dnnl_memory_desc_t dw = lki_dnnl_any(call->out[0].dtype, v.weight_rank, v.weight),
                       db = lki_dnnl_dense(LK_F32, 1, &v.out[1]);
    dnnl_convolution_desc_t desc;
    if (lki_onednn.dilated_convolution_backward_weights_desc_init(
            &desc, dnnl_convolution_direct, &x, &dw, has_bias ? &db : NULL, &dy, v.stride, v.dilation,
            v.before, v.after) != dnnl_success)
        return LK_ERR_UNSUPPORTED;
    lki_dnnl *kernel;
    LKI_TRY(lki_dnnl_begin(&kernel, cpu, call, &desc, false));
    x = lki_dnnl_dense(LK_BF16, v.rank, v.in);
    dy = lki_dnnl_dense(LK_BF16, v.rank, v.out);
    dw = lki_dnnl_dense(call->out[0].dtype, v.weight_rank, v.weight);
    LKI_TRY(lki_dnnl_add(kernel, DNNL_ARG_SRC, false, 1, &x));
    LKI_TRY(lki_dnnl_add(kernel, DNNL_ARG_DIFF_DST, false, 0, &dy));
    LKI_TRY(lki_dnnl_add(kernel, DNNL_ARG_DIFF_WEIGHTS, true, 0, &dw));
    if (has_bias) LKI_TRY(lki_dnnl_add(kernel, DNNL_ARG_DIFF_BIAS, true, 1, &db));
    return lki_dnnl_finish(kernel, call);
}

lk_status lki_cpu_prepare_low(lki_cpu *cpu, lk_call *call)
{
    if (!cpu->dnnl || !is_bf16(call) || !call->out[0].data) return LK_OK;
    lk_status status = LK_ERR_UNSUPPORTED;
    switch (call->op) {
    case LK_OP_LINEAR: status = prepare_linear(cpu, call); break;
    case LK_OP_LINEAR_GRAD: status = prepare_linear_grad(cpu, call); break;
    case LK_OP_MATMUL: status = prepare_matmul(cpu, call); break;
    case LK_OP_CONV: status = prepare_conv(cpu, call); break;
    case LK_OP_CONV_GRAD_INPUT: status = prepare_conv_grad_input(cpu, call); break;
    case LK_OP_CONV_GRAD_WEIGHT: status = prepare_conv_grad_weight(cpu, call); break;
    default: break;
    }
    return or_nothing(status, call);
}
