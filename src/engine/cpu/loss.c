/* Losses: cross-entropy over class indices, and the pointwise ones. Targets given as probabilities and label
 * smoothing are in soft_loss.c. */
#include "engine/cpu/class_loss.h"

#include "base/status.h"

#include <math.h>

lki_classes lki_classes_of(const lk_call *call, lk_shape logits, int target)
{
    int axis = logits.rank > 1 ? 1 : 0;
    return (lki_classes){
        .outer = lki_cpu_span(logits, 0, axis),
        .count = logits.rank ? logits.dim[axis] : 1,
        .inner = lki_cpu_span(logits, axis + 1, logits.rank),
        .target = call->in[target].data,
        .weight = lki_cpu_in(call, target + 1),
        .ignored = call->attr->class_loss.ignore_index,
    };
}

lk_status lki_classes_check(const lki_classes *c)
{
    for (int64_t i = 0; i < c->outer * c->inner; i++) {
        int64_t target = c->target[i];
        if ((target < 0 || target >= c->count) && target != c->ignored)
            return lki_fail(LK_ERR_RANGE, "target %lld at position %lld is outside of 0..%lld",
                            (long long)target, (long long)i, (long long)c->count - 1);
    }
    return LK_OK;
}

double lki_classes_weight(const lki_classes *c, int64_t i)
{
    if (c->target[i] == c->ignored) return 0;
    return c->weight ? c->weight[c->target[i]] : 1;
}

double lki_classes_total(const lki_classes *c)
{
    double total = 0;
    for (int64_t i = 0; i < c->outer * c->inner; i++) total += lki_classes_weight(c, i);
    return total;
}

typedef struct rows {
    const lki_cpu_kernels *kernels;
    const lki_classes *c;
    const float *in;
    float *out;
    double scale;
    const float *each; /* dloss of every sample, or NULL */
} rows;

static void log_softmax_rows(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const rows *r = context;
    int64_t plane = r->c->count * r->c->inner;
    r->kernels->softmax(r->out + begin * plane, r->in + begin * plane, end - begin, r->c->count, r->c->inner,
                        true);
}

int64_t lki_classes_grain(const lki_classes *c)
{
    return LKI_CPU_GRAIN / 4 / (c->count * c->inner + 1) + 1;
}

void lki_classes_log_softmax(lki_cpu *cpu, const lki_classes *c, const float *logits, float *logp)
{
    rows r = {.kernels = cpu->kernels, .c = c, .in = logits, .out = logp};
    lki_parallel_for(cpu->pool, c->outer, lki_classes_grain(c), log_softmax_rows, &r);
}

static lk_status run_cross_entropy(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    lki_classes c = lki_classes_of(call, call->in[0].shape, 1);
    LKI_TRY(lki_classes_check(&c));
    float *logp = call->out[1].data ? call->out[1].data : call->scratch, *loss = call->out[0].data;
    lki_classes_log_softmax(cpu, &c, call->in[0].data, logp);
    double sum = 0, total = 0;
    for (int64_t i = 0; loss && i < c.outer * c.inner; i++) {
        double weight = lki_classes_weight(&c, i), value = 0;
        if (c.target[i] != c.ignored)
            value = -weight * logp[(i / c.inner * c.count + c.target[i]) * c.inner + i % c.inner];
        if (call->attr->class_loss.reduction == LK_REDUCTION_NONE) loss[i] = (float)value;
        sum += value;
        total += weight;
    }
    if (loss && call->attr->class_loss.reduction != LK_REDUCTION_NONE)
        loss[0] = (float)(call->attr->class_loss.reduction == LK_REDUCTION_MEAN ? sum / total : sum);
    return LK_OK;
}

static bool is_plain(const lk_call *call, int target)
{
    return call->in[target].dtype == LK_I64 && call->attr->class_loss.label_smoothing == 0 &&
           lki_cpu_all_f32(call, 1u << target);
}

lk_status lki_cpu_prepare_cross_entropy(lki_cpu *cpu, lk_call *call)
{
    if (!is_plain(call, 1)) return lki_cpu_prepare_soft_cross_entropy(call);
    lki_cpu_enter(cpu, LKI_CPU_PATH_CLASS_INDICES);
    call->scratch_nbytes = call->out[1].data ? 0 : lk_tensor_nbytes(&call->in[0]);
    call->run = run_cross_entropy;
    return LK_OK;
}

/* dlogits = g w_t (exp(logp) - [c = t]), nothing for an ignored sample. */
static void cross_entropy_grad_rows(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const rows *r = context;
    const lki_classes *c = r->c;
    for (int64_t o = begin; o < end; o++) {
        const float *logp = r->in + o * c->count * c->inner;
        float *dx = r->out + o * c->count * c->inner;
        for (int64_t s = 0; s < c->inner; s++) {
            int64_t i = o * c->inner + s;
            float g = (float)(lki_classes_weight(c, i) * (r->each ? r->each[i] : r->scale));
            if (c->inner == 1)
                r->kernels->scaled_exp(dx, logp, g, c->count);
            else
                for (int64_t k = 0; k < c->count; k++)
                    dx[k * c->inner + s] = g * expf(logp[k * c->inner + s]);
            if (c->target[i] == c->ignored) /* its log-probabilities may be anything */
                for (int64_t k = 0; k < c->count; k++) dx[k * c->inner + s] = 0;
            else
                dx[c->target[i] * c->inner + s] -= g;
        }
    }
}

static lk_status run_cross_entropy_grad(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    lki_classes c = lki_classes_of(call, call->in[1].shape, 2);
    LKI_TRY(lki_classes_check(&c));
    const float *dloss = call->in[0].data;
    rows r = {
        .kernels = cpu->kernels,
        .c = &c,
        .in = call->in[1].data,
        .out = call->out[0].data,
        .scale = call->attr->class_loss.reduction == LK_REDUCTION_MEAN ? dloss[0] / lki_classes_total(&c)
                                                                       : dloss[0],
        .each = call->attr->class_loss.reduction == LK_REDUCTION_NONE ? dloss : NULL,
    };
    lki_parallel_for(cpu->pool, c.outer, lki_classes_grain(&c), cross_entropy_grad_rows, &r);
    return LK_OK;
}

lk_status lki_cpu_prepare_cross_entropy_grad(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (!is_plain(call, 2)) return lki_cpu_prepare_soft_cross_entropy_grad(call);
    call->run = run_cross_entropy_grad;
    return LK_OK;
}

/* The sum of one block of elements goes to its own place; blocks are added in order, so the threads do not
 * show. */
enum { LOSS_BLOCK = 8192 };

typedef struct pointwise {
    const lki_cpu_kernels *kernels;
    lki_loss_args args;
    float *out; /* dx, or each element's loss */
    double *partial;
    int64_t count;
} pointwise;

static lki_loss_args loss_args(const lk_call *call, int first)
{
    return (lki_loss_args){
        .kind = call->attr->pointwise_loss.kind,
        .alpha = (float)call->attr->pointwise_loss.parameter,
        .x = lki_cpu_in(call, first),
        .target = lki_cpu_in(call, first + 1),
        .weight = lki_cpu_in(call, first + 2),
        .pos_weight = lki_cpu_in(call, first + 3),
        .scale = 1,
    };
}

static double reduction_divisor(const lk_pointwise_loss_attr *attr, lk_shape shape)
{
    if (attr->reduction == LK_REDUCTION_MEAN) return (double)lk_shape_count(shape);
    if (attr->reduction == LK_REDUCTION_BATCH_MEAN) return shape.rank ? (double)shape.dim[0] : 1;
    return 1;
}

static void loss_blocks(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const pointwise *p = context;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i * LOSS_BLOCK, last = first + LOSS_BLOCK < p->count ? first + LOSS_BLOCK : p->count;
        p->partial[i] = p->kernels->loss(&p->args, p->out, first, last);
    }
}

static lk_status check_probabilities(const float *x, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!(x[i] >= 0 && x[i] <= 1))
            return lki_fail(LK_ERR_RANGE, "probability %g at position %lld is outside of 0..1", (double)x[i],
                            (long long)i);
    return LK_OK;
}

static int64_t block_count(int64_t count)
{
    return (count + LOSS_BLOCK - 1) / LOSS_BLOCK;
}

static lk_status run_pointwise_loss(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    const lk_tensor *x = &call->in[0];
    bool each = call->attr->pointwise_loss.reduction == LK_REDUCTION_NONE;
    pointwise p = {cpu->kernels, loss_args(call, 0), each ? call->out[0].data : NULL, call->scratch,
                   lk_tensor_count(x)};
    if (p.args.kind == LK_LOSS_BCE) LKI_TRY(check_probabilities(x->data, p.count));
    lki_parallel_for(cpu->pool, block_count(p.count), 2, loss_blocks, &p);
    if (each) return LK_OK;
    double sum = 0;
    for (int64_t i = 0; i < block_count(p.count); i++) sum += p.partial[i];
    *(float *)call->out[0].data = (float)(sum / reduction_divisor(&call->attr->pointwise_loss, x->shape));
    return LK_OK;
}

lk_status lki_cpu_prepare_pointwise_loss(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (!lki_cpu_all_f32(call, 0)) return LK_OK;
    call->scratch_nbytes = (size_t)block_count(lk_tensor_count(&call->in[0])) * sizeof(double);
    call->run = run_pointwise_loss;
    return LK_OK;
}

static void loss_grad_range(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const pointwise *p = context;
    p->kernels->loss_grad(&p->args, p->out, begin, end);
}

static lk_status run_pointwise_loss_grad(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    const lk_tensor *x = &call->in[1];
    const float *dloss = call->in[0].data;
    pointwise p = {cpu->kernels, loss_args(call, 1), call->out[0].data, NULL, lk_tensor_count(x)};
    if (call->attr->pointwise_loss.reduction == LK_REDUCTION_NONE)
        p.args.dloss = dloss;
    else
        p.args.scale = (float)(dloss[0] / reduction_divisor(&call->attr->pointwise_loss, x->shape));
    lki_parallel_for(cpu->pool, p.count, LKI_CPU_GRAIN, loss_grad_range, &p);
    return LK_OK;
}

lk_status lki_cpu_prepare_pointwise_loss_grad(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (lki_cpu_all_f32(call, 0)) call->run = run_pointwise_loss_grad;
    return LK_OK;
}
