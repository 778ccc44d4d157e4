/* batch_norm, layer_norm, group_norm and their gradients: what each one reduces over. */
#include "engine/cuda/norm.cuh"

typedef struct state {
    lki_cuda_norm norm;
    lki_cuda_norm_dtypes dtypes;
    bool by_last; /* norm_last.cu's */
    /* The call before, whose work this one does: which of its inputs dy is the sum of (the second may be -1),
     * and which one is a ReLU's result. NULL: there is none. */
    const lk_call *taken;
    int first, second, gate;
} state;

static bool is_gradient(lk_op op)
{
    return op == LK_OP_BATCH_NORM_GRAD || op == LK_OP_BATCH_NORM_RELU_GRAD || op == LK_OP_LAYER_NORM_GRAD ||
           op == LK_OP_GROUP_NORM_GRAD;
}

static bool has_relu(lk_op op)
{
    return op == LK_OP_BATCH_NORM_RELU || op == LK_OP_BATCH_NORM_RELU_GRAD;
}

static bool is_group_norm(lk_op op)
{
    return op == LK_OP_GROUP_NORM || op == LK_OP_GROUP_NORM_GRAD;
}

static lki_cuda_norm describe(const lk_call *call)
{
    lk_shape shape = call->in[is_gradient(call->op) ? 1 : 0].shape;
    lki_cuda_norm v = {};
    v.eps = call->attr->norm.eps;
    v.momentum = call->attr->norm.momentum;
    v.training = call->attr->norm.training;
    v.relu = has_relu(call->op);
    v.groups = 1;
    if (call->op == LK_OP_LAYER_NORM || call->op == LK_OP_LAYER_NORM_GRAD) {
        int axis = shape.rank - call->attr->norm.axis_count;
        v.kind = LKI_CUDA_LAYER;
        v.outer = v.set_count = lki_cuda_span(shape, 0, axis);
        v.set_size = lki_cuda_span(shape, axis, shape.rank);
        v.channels = (int)v.set_size;
        v.inner = 1;
        return v;
    }
    v.outer = shape.dim[0];
    v.channels = (int)shape.dim[1];
    v.inner = (int)lki_cuda_span(shape, 2, shape.rank);
    v.kind = is_group_norm(call->op) ? LKI_CUDA_GROUP : LKI_CUDA_BATCH;
    if (v.kind == LKI_CUDA_GROUP) {
        v.groups = (int)call->attr->norm.group_count;
        v.set_count = v.outer * v.groups;
        v.set_size = (int64_t)(v.channels / v.groups) * v.inner;
    } else if (lki_cuda_is_last(call)) {
        /* Channels last are (n s, c, 1). */
        v.outer *= v.inner;
        v.inner = 1;
    }
    return v;
}

static lki_cuda_norm_operands forward_operands(const lk_call *call)
{
    lki_cuda_norm_operands o = {};
    o.x = call->in[0].data;
    o.weight = lki_cuda_in<void>(call, 1);
    o.bias = lki_cuda_in<void>(call, 2);
    o.running_mean = (void *)lki_cuda_in<void>(call, 3);
    o.running_var = (void *)lki_cuda_in<void>(call, 4);
    o.addend = lki_cuda_in<void>(call, 5);
    o.out = lki_cuda_out<void>(call, 0);
    o.mean = lki_cuda_out<void>(call, 1);
    o.istd = lki_cuda_out<void>(call, 2);
    o.addend_mean = lki_cuda_in<void>(call, 6);
    o.addend_istd = lki_cuda_in<void>(call, 7);
    o.addend_weight = lki_cuda_in<void>(call, 8);
    o.addend_bias = lki_cuda_in<void>(call, 9);
    return o;
}

static lki_cuda_norm_operands backward_operands(const lk_call *call)
{
    lki_cuda_norm_operands o = {};
    o.dy = call->in[0].data;
    o.x = call->in[1].data;
    o.weight = lki_cuda_in<void>(call, 2);
    o.mean = call->in[3].data;
    o.istd = call->in[4].data;
    o.bias = lki_cuda_in<void>(call, 5);
    o.out = lki_cuda_out<void>(call, 0);
    o.dweight = lki_cuda_out<void>(call, 1);
    o.dbias = lki_cuda_out<void>(call, 2);
    const state *s = (const state *)call->state;
    if (s->taken) {
        o.first = s->taken->in[s->first].data;
        o.second = s->second >= 0 ? s->taken->in[s->second].data : NULL;
        o.gate = s->taken->in[s->gate].data;
    }
    return o;
}

static lk_status run_nothing(const lk_call *call)
{
    (void)call;
    return LK_OK;
}

/* dy = relu_grad(first, gate), or relu_grad(first + second, gate). */
static bool find_gate(const lk_call *before, state *s)
{
    s->first = 0;
    s->second = -1;
    s->gate = 1;
    if (before->op == LK_OP_RELU_GRAD) return true;
    if (before->op != LK_OP_FUSED) return false;
    const lk_fused *f = before->attr->fused.chain;
    if (f->step_count != 2 || f->step[0].op != LK_OP_ADD || f->step[1].op != LK_OP_RELU_GRAD) return false;
    s->first = f->step[0].operand[0];
    s->second = f->step[0].operand[1];
    s->gate = f->step[1].operand[1];
    return f->step[1].operand[0] == f->input_count && s->first < f->input_count &&
           s->second < f->input_count && s->gate < f->input_count;
}

static bool is_alike(const lk_tensor *a, const lk_tensor *b)
{
    if (a->dtype != b->dtype || a->shape.rank != b->shape.rank) return false;
    for (int i = 0; i < a->shape.rank; i++)
        if (a->shape.dim[i] != b->shape.dim[i]) return false;
    return true;
}

/* The sum of two gradients behind a ReLU comes right before the norm that the ReLU follows: it is read here
 * while it is computed. What it read may be written over by now, but not before the sums are there. */
static void take_over(lk_call *call, state *s)
{
    lk_call *before = call->previous;
    if (!before || before->aside || before->out[0].data != call->in[0].data || !find_gate(before, s)) return;
    for (int i = 0; i < before->input_count; i++)
        if (!before->in[i].data || !is_alike(&before->in[i], &call->in[0]) ||
            before->in_layout[i] != call->in_layout[0])
            return;
    if (!is_alike(&before->out[0], &call->in[0]) || before->out_layout[0] != call->in_layout[0]) return;
    s->taken = before;
    before->run = run_nothing;
}

static lk_status run_forward(const lk_call *call)
{
    lki_cuda *cuda = lki_cuda_of(call);
    const state *s = (const state *)call->state;
    lki_cuda_norm_operands o = forward_operands(call);
    if (s->norm.kind != LKI_CUDA_BATCH) return lki_cuda_run_sets(cuda, &s->norm, s->dtypes, &o, false);
    lki_cuda_norm v = s->norm;
    v.has_moments = !v.training && o.running_mean && o.running_var;
    if (s->by_last) return lki_cuda_run_last(cuda, &v, s->dtypes.x, &o, false, call->scratch);
    return lki_cuda_run_channels(cuda, &v, s->dtypes, &o, false, call->scratch);
}

/* The weights' gradients first: dx may lie over dy. */
static lk_status run_backward(const lk_call *call)
{
    lki_cuda *cuda = lki_cuda_of(call);
    const state *s = (const state *)call->state;
    lki_cuda_norm_operands o = backward_operands(call), weights = o;
    if (s->norm.kind == LKI_CUDA_BATCH) {
        lki_cuda_norm v = s->norm;
        v.constant = !v.training;
        if (s->by_last) return lki_cuda_run_last(cuda, &v, s->dtypes.x, &o, true, call->scratch);
        return lki_cuda_run_channels(cuda, &v, s->dtypes, &o, true, call->scratch);
    }
    weights.out = NULL;
    if (o.dweight || o.dbias)
        LKI_TRY(lki_cuda_run_channels(cuda, &s->norm, s->dtypes, &weights, true, call->scratch));
    return o.out ? lki_cuda_run_sets(cuda, &s->norm, s->dtypes, &o, true) : LK_OK;
}

/* x, dy, y and dx have one dtype; all others another one, that or the wide one. */
static lk_status find_dtypes(const lk_call *call, lki_cuda_norm_dtypes *dtypes)
{
    bool gradient = is_gradient(call->op), fits = call->in[0].dtype <= LK_F16, known = false;
    dtypes->x = dtypes->other = call->in[0].dtype;
    for (int i = 0; i < call->input_count + call->output_count; i++) {
        const lk_tensor *t = i < call->input_count ? &call->in[i] : &call->out[i - call->input_count];
        bool like_x =
            i == 0 || i == call->input_count || (gradient ? i == 1 : i == 5 && i < call->input_count);
        if (!t->data) continue;
        if (!like_x && !known) dtypes->other = t->dtype, known = true;
        fits = fits && t->dtype == (like_x ? dtypes->x : dtypes->other);
    }
    bool is_short = dtypes->x == LK_BF16 || dtypes->x == LK_F16;
    fits = fits && (dtypes->other == dtypes->x || (is_short && dtypes->other == LK_F32));
    if (fits) return LK_OK;
    return lki_cuda_fail(LK_ERR_UNSUPPORTED,
                         "the cuda engine has no kernel for a normalisation of %s with %s",
                         lki_cuda_dtype_name(dtypes->x), lki_cuda_dtype_name(dtypes->other));
}

/* A thread of norm_last.cu adds in f32, which is enough for 16 bits and for what tensor cores made. Vectors
 * of f32 are left to those who add in f64. */
static bool is_for_last(const lk_call *call, const lki_cuda_norm *norm, const lki_cuda_norm_dtypes *dtypes)
{
    bool is_short = dtypes->x == LK_BF16 || dtypes->x == LK_F16;
    return norm->kind == LKI_CUDA_BATCH && norm->inner == 1 && dtypes->other == LK_F32 &&
           (is_short || lki_cuda_is_last(call));
}

/* A batch norm takes the ReLU along in norm_last.cu alone. */
lk_preference lki_cuda_norm_preference(const lk_call *call)
{
    bool wanted =
        has_relu(call->op) && call->in[0].dtype != LK_F64 && call->in_layout[0] == LK_LAYOUT_CHANNELS_LAST;
    return wanted ? LK_PREFERRED : LK_IMPOSSIBLE;
}

lk_status lki_cuda_prepare_norm(lki_cuda *cuda, lk_call *call)
{
    lki_cuda_norm_dtypes dtypes;
    LKI_TRY(find_dtypes(call, &dtypes));
    state *s = (state *)lki_cuda_new_state(call, sizeof *s);
    if (!s) return LK_ERR_NOMEM;
    s->norm = describe(call);
    s->dtypes = dtypes;
    s->by_last = is_for_last(call, &s->norm, &dtypes);
    if (!s->by_last && s->norm.relu)
        return lki_cuda_fail(LK_ERR_UNSUPPORTED,
                             "the cuda engine has no kernel for a %s of %s that is not channels last",
                             lki_cuda_op_name(call->op), lki_cuda_dtype_name(dtypes.x));
    call->scratch_nbytes =
        s->by_last ? lki_cuda_plan_last(cuda, &s->norm) : lki_cuda_plan_channels(cuda, &s->norm);
    call->run = is_gradient(call->op) ? run_backward : run_forward;
    if (s->norm.kind != LKI_CUDA_BATCH)
        cuda->paths[s->norm.set_size <= 1024 ? LKI_CUDA_PATH_NORM_WARP : LKI_CUDA_PATH_NORM_BLOCK].entered++;
    else if (s->by_last)
        cuda->paths[s->norm.relu ? LKI_CUDA_PATH_NORM_RELU : LKI_CUDA_PATH_NORM_LAST].entered++;
    else
        cuda->paths[s->norm.parts > 1 ? LKI_CUDA_PATH_NORM_PARTS : LKI_CUDA_PATH_NORM_CHANNELS].entered++;
    if (s->by_last && is_gradient(call->op) && !s->norm.relu) take_over(call, s);
    return LK_OK;
}
