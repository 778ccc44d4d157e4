/* The update half of a step: optimizers, clipping, accumulation, over flat slices. Hyperparameters are read
 * at every run. */
#include "engine/cpu/cpu.h"

#include "base/status.h"

#include <math.h>

static double scale_of(const lk_hyper *hyper)
{
    return hyper->grad_scale != 0 ? hyper->grad_scale : 1;
}

enum { UPDATE_SCALER = 5, CLIP_SCALER = 1 }; /* where a scaler stands among the operands */

/* A number of the scaler in operand `index`; 0 where there is none. */
static float scaler_at(const lk_call *call, int index, lk_scaler_field field)
{
    const float *scaler = index < call->input_count ? call->in[index].data : NULL;
    return scaler ? scaler[field] : 0;
}

/* rho = 2 / (1 - beta2) - 1, rho_t = rho - 2 t beta2^t / (1 - beta2^t); from rho_t > 5 on r^2 = (rho_t - 4)
 * (rho_t - 2) rho /
 * ((rho - 4) (rho - 2) rho_t), and the rate is lr r sqrt(1 - beta2^t) / (1 - beta1^t). */
static void ready_radam(const lk_hyper *h, double step, lki_update_args *args)
{
    double left = pow(h->beta2, step), rate = h->lr / (1 - pow(h->beta1, step));
    double most = 2 / (1 - h->beta2) - 1, now = most - 2 * step * left / (1 - left);
    args->rectifies = now > 5;
    if (args->rectifies)
        rate *= sqrt((now - 4) * (now - 2) * most / ((most - 4) * (most - 2) * now) * (1 - left));
    args->lr = (float)rate;
}

static void ready_more(lk_update_rule rule, const lk_hyper *h, double step, lki_update_args *args)
{
    args->amsgrad = false;
    switch (rule) {
    case LK_UPDATE_NADAM:
        args->mu = (float)(h->beta1 * (1 - 0.5 * pow(0.96, step * h->lr_decay)));
        args->next = (float)(h->beta1 * (1 - 0.5 * pow(0.96, (step + 1) * h->lr_decay)));
        args->inverse_root = (float)(1 / sqrt(1 - pow(h->beta2, step)));
        break;
    case LK_UPDATE_RADAM: ready_radam(h, step, args); break;
    case LK_UPDATE_ADADELTA:
        args->beta1 = (float)h->alpha;
        args->rest1 = (float)(1 - h->alpha);
        break;
    case LK_UPDATE_ADAMAX: args->lr = (float)(h->lr / (1 - pow(h->beta1, step))); break;
    case LK_UPDATE_RPROP:
        args->beta1 = (float)h->alpha;
        args->beta2 = (float)h->lr_decay;
        args->low = (float)h->eps;
        args->high = (float)h->clip;
        break;
    case LK_UPDATE_ASGD:
        args->beta1 = (float)h->lr_decay;
        args->mu = (float)(1 / fmax(1, step - 1 - h->dampening));
        args->next = (float)(h->lr / pow(1 + h->lr_decay * h->lr * step, h->alpha));
        break;
    default: break;
    }
}

/* The numbers that a rule's formula needs, rounded once to f32 from doubles, as PyTorch's scalars are. */
static lki_update_args ready(const lk_call *call)
{
    const lk_hyper *h = call->attr->update.hyper;
    double step = (double)h->step - scaler_at(call, UPDATE_SCALER, LK_SCALER_SKIPPED);
    lki_update_args args = {
        .param = call->in[0].data,
        .grad = call->in[1].data,
        .grad_scale = (float)(h->maximize ? -scale_of(h) : scale_of(h)),
        .lr = (float)h->lr,
        .momentum = (float)h->momentum,
        .keep = (float)(1 - h->dampening),
        .weight_decay = (float)h->weight_decay,
        .beta1 = (float)h->beta1,
        .beta2 = (float)h->beta2,
        .rest1 = (float)(1 - h->beta1),
        .rest2 = (float)(1 - h->beta2),
        .eps = (float)h->eps,
        .decay = (float)(1 - h->lr * h->weight_decay),
        .nesterov = h->nesterov,
        .first = step <= 1,
        .amsgrad = h->amsgrad,
        .centered = h->centered,
    };
    for (int i = 0; i < 3; i++) args.state[i] = i + 2 < call->input_count ? call->in[i + 2].data : NULL;
    switch (call->attr->update.rule) {
    case LK_UPDATE_ADAM:
    case LK_UPDATE_ADAMW:
    case LK_UPDATE_LAMB:
        args.lr = (float)(h->lr / (1 - pow(h->beta1, step)));
        args.inverse_root = (float)(1 / sqrt(1 - pow(h->beta2, step)));
        break;
    case LK_UPDATE_RMSPROP:
        args.beta1 = (float)h->alpha;
        args.rest1 = (float)(1 - h->alpha);
        break;
    case LK_UPDATE_ADAGRAD: args.lr = (float)(h->lr / (1 + (step - 1) * h->lr_decay)); break;
    case LK_UPDATE_SGD: break;
    default: ready_more(call->attr->update.rule, h, step, &args); break;
    }
    return args;
}

typedef struct slice {
    lki_update_args args;
    void (*run)(const lki_update_args *args, int64_t begin, int64_t end);
} slice;

static void update_range(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const slice *s = context;
    s->run(&s->args, begin, end);
}

static lk_status run_update(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    if (scaler_at(call, UPDATE_SCALER, LK_SCALER_FOUND) != 0) return LK_OK;
    slice s = {ready(call), cpu->kernels->update[call->attr->update.rule]};
    lki_parallel_for(cpu->pool, lk_tensor_count(&call->in[0]), LKI_CPU_GRAIN, update_range, &s);
    return LK_OK;
}

lk_status lki_cpu_prepare_update(lki_cpu *cpu, lk_call *call)
{
    int rule = (int)call->attr->update.rule;
    if (rule < 0 || rule >= LK_UPDATE_COUNT || !cpu->kernels->update[rule] || !lki_cpu_all_f32(call, 0))
        return LK_OK;
    call->run = run_update;
    return LK_OK;
}

typedef struct clip {
    const lki_cpu_kernels *kernels;
    float *grad;
    double *partial;
    int64_t count;
    float factor;
} clip;

enum { CLIP_BLOCK = 16384 };

static void square_blocks(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const clip *c = context;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i * CLIP_BLOCK, n = c->count - first < CLIP_BLOCK ? c->count - first : CLIP_BLOCK;
        c->partial[i] = c->kernels->sum_squares(c->grad + first, n);
    }
}

static void scale_elements(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const clip *c = context;
    c->kernels->scale_shift(c->grad + begin, c->grad + begin, c->factor, 0, end - begin);
}

static void clamp_elements(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const clip *c = context;
    c->kernels->clamp_in_place(c->grad + begin, c->factor, end - begin);
}

static int64_t clip_blocks(int64_t count)
{
    return (count + CLIP_BLOCK - 1) / CLIP_BLOCK;
}

/* n = |grad_scale g|; g *= clip / (n + 1e-6) where that is below 1; a NaN goes on and makes every gradient
 * one. */
static lk_status run_clip_norm(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    lk_hyper *hyper = call->attr->update.hyper;
    if (scaler_at(call, CLIP_SCALER, LK_SCALER_FOUND) != 0) return LK_OK;
    clip c = {cpu->kernels, call->in[0].data, call->scratch, lk_tensor_count(&call->in[0]), 0};
    lki_parallel_for(cpu->pool, clip_blocks(c.count), 1, square_blocks, &c);
    double square = 0;
    for (int64_t i = 0; i < clip_blocks(c.count); i++) square += c.partial[i];
    hyper->grad_norm = sqrt(square) * fabs(scale_of(hyper));
    double factor = hyper->clip / (hyper->grad_norm + 1e-6);
    if (factor >= 1) return LK_OK;
    c.factor = (float)factor;
    lki_parallel_for(cpu->pool, c.count, LKI_CPU_GRAIN, scale_elements, &c);
    return LK_OK;
}

static lk_status run_clip_value(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    const lk_hyper *hyper = call->attr->update.hyper;
    if (scaler_at(call, CLIP_SCALER, LK_SCALER_FOUND) != 0) return LK_OK;
    clip c = {cpu->kernels, call->in[0].data, NULL, lk_tensor_count(&call->in[0]),
              (float)(hyper->clip / fabs(scale_of(hyper)))};
    lki_parallel_for(cpu->pool, c.count, LKI_CPU_GRAIN, clamp_elements, &c);
    return LK_OK;
}

lk_status lki_cpu_prepare_clip(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (!lki_cpu_all_f32(call, 0)) return LK_OK;
    call->scratch_nbytes = (size_t)clip_blocks(lk_tensor_count(&call->in[0])) * sizeof(double);
    call->run = call->op == LK_OP_CLIP_NORM ? run_clip_norm : run_clip_value;
    return LK_OK;
}

typedef struct sums {
    const lki_cpu_kernels *kernels;
    float *sum;
    const float *grad;
    bool first;
} sums;

static void accumulate_range(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const sums *s = context;
    if (s->first)
        s->kernels->tile_load(s->sum + begin, s->grad + begin, LK_F32, end - begin);
    else
        s->kernels->add_to(s->sum + begin, s->grad + begin, end - begin);
}

static lk_status run_accumulate(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    sums s = {cpu->kernels, call->in[0].data, call->in[1].data, call->attr->update.hyper->first};
    lki_parallel_for(cpu->pool, lk_tensor_count(&call->in[0]), LKI_CPU_GRAIN, accumulate_range, &s);
    return LK_OK;
}

lk_status lki_cpu_prepare_accumulate(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (lki_cpu_all_f32(call, 0)) call->run = run_accumulate;
    return LK_OK;
}

typedef struct unscaling {
    float *grad;
    float factor;
    _Atomic int found;
} unscaling;

static void unscale_range(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    unscaling *u = context;
    int found = 0;
    for (int64_t i = begin; i < end; i++) {
        found |= !isfinite(u->grad[i]);
        u->grad[i] *= u->factor;
    }
    if (found) u->found = 1;
}

/* A scale that has been right for long enough is made larger, unless it could not be larger in f32. */
static void settle(const lk_call *call, float *scaler, bool found)
{
    float tracker = scaler[LK_SCALER_TRACKER] + 1;
    scaler[LK_SCALER_FOUND] = found;
    if (found) {
        scaler[LK_SCALER_SCALE] = (float)(scaler[LK_SCALER_SCALE] * call->attr->unscale.backoff_factor);
        scaler[LK_SCALER_SKIPPED] += 1;
        tracker = 0;
    } else if (tracker >= (float)call->attr->unscale.growth_interval) {
        float grown = (float)(scaler[LK_SCALER_SCALE] * call->attr->unscale.growth_factor);
        if (isfinite(grown)) scaler[LK_SCALER_SCALE] = grown;
        tracker = 0;
    }
    scaler[LK_SCALER_TRACKER] = tracker;
}

static lk_status run_unscale(const lk_call *call)
{
    float *scaler = call->in[1].data;
    unscaling u = {.grad = call->in[0].data, .factor = (float)(1 / (double)scaler[LK_SCALER_SCALE])};
    lki_parallel_for(lki_cpu_of(call)->pool, lk_tensor_count(&call->in[0]), LKI_CPU_GRAIN, unscale_range, &u);
    settle(call, scaler, u.found);
    return LK_OK;
}

lk_status lki_cpu_prepare_unscale(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (lki_cpu_all_f32(call, 0)) call->run = run_unscale;
    return LK_OK;
}
