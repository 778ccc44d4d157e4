/* Convolutions with channels last by cuDNN's graphs of operations: the engines behind them reach the tensor
 * cores of late GPUs, which its older functions (conv_cudnn.cu) do only going forward.
 *
 * A plan is the first of the heuristic's answers that gives the same bits each time and keeps to the
 * precision asked for, so that the same shapes get the same engine in every process. Making one takes
 * milliseconds, and networks repeat their shapes: the engine keeps every plan it made, and that it could make
 * none, until it is closed. */
#include "engine/cuda/conv.cuh"

#include <string.h>

enum { MOST_DESCRIPTORS = 64, MOST_ENGINES = 8, MOST_NOTES = 16, MOST_DIMS = 5 };
enum { ID_IN = 1, ID_WEIGHT, ID_OUT };
static const int64_t MOST_WORKSPACE = (int64_t)1 << 30;

/* What a plan is found by. */
typedef struct key {
    int role, type, rank, tensor_cores, groups;
    int64_t batch;
    int in_channels, out_channels;
    lki_cuda_axis axis[3];
} key;

struct lki_cuda_conv_plan {
    lki_cuda_conv_plan *next;
    key made_for;
    cudnnBackendDescriptor_t made[MOST_DESCRIPTORS]; /* all that the plan is made of, as long as it lives */
    int made_count;
    cudnnBackendDescriptor_t plan; /* NULL: there is none */
    int64_t workspace_nbytes;
};

/* ---- Descriptors; after the first failure nothing more is done ---- */

typedef struct maker {
    lki_cuda_conv_plan *plan;
    cudnnStatus_t status;
} maker;

static cudnnBackendDescriptor_t make(maker *m, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t descriptor = NULL;
    lki_cuda_conv_plan *plan = m->plan;
    if (m->status == CUDNN_STATUS_SUCCESS && plan->made_count == MOST_DESCRIPTORS)
        m->status = CUDNN_STATUS_INTERNAL_ERROR;
    if (m->status == CUDNN_STATUS_SUCCESS) m->status = cudnnBackendCreateDescriptor(type, &descriptor);
    if (m->status == CUDNN_STATUS_SUCCESS) plan->made[plan->made_count++] = descriptor;
    return descriptor;
}

static void set(maker *m, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (m->status == CUDNN_STATUS_SUCCESS)
        m->status = cudnnBackendSetAttribute(descriptor, name, type, count, values);
}

static void set_descriptor(maker *m, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                           cudnnBackendDescriptor_t value)
{
    set(m, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static int64_t get(maker *m, cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type, int64_t most, void *values)
{
    int64_t count = 0;
    if (m->status == CUDNN_STATUS_SUCCESS)
        m->status = cudnnBackendGetAttribute(descriptor, name, type, most, &count, values);
    return count < most ? count : most;
}

static void finish(maker *m, cudnnBackendDescriptor_t descriptor)
{
    if (m->status == CUDNN_STATUS_SUCCESS) m->status = cudnnBackendFinalize(descriptor);
}

/* ---- The convolution ---- */

static int axes_of(const key *k)
{
    return k->rank < 3 ? 2 : 3;
}

static cudnnBackendDescriptor_t make_tensor(maker *m, int64_t id, const key *k, int64_t first,
                                            int64_t channels, const int64_t *size)
{
    int axes = axes_of(k);
    int64_t dim[MOST_DIMS] = {first, channels}, stride[MOST_DIMS] = {0, 1}, step = channels, alignment = 16;
    cudnnDataType_t type = (cudnnDataType_t)k->type;
    for (int i = axes - 1; i >= 0; i--) {
        dim[2 + i] = size[i];
        stride[2 + i] = step;
        step *= size[i];
    }
    stride[0] = step;
    cudnnBackendDescriptor_t d = make(m, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(m, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(m, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, axes + 2, dim);
    set(m, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, axes + 2, stride);
    set(m, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(m, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    finish(m, d);
    return d;
}

static cudnnBackendDescriptor_t make_window(maker *m, const key *k)
{
    int64_t axes = axes_of(k), padding[3], stride[3], dilation[3];
    cudnnDataType_t compute = k->type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    for (int i = 0; i < axes; i++) {
        const lki_cuda_axis &axis = k->axis[3 - axes + i];
        padding[i] = axis.padding;
        stride[i] = axis.stride;
        dilation[i] = axis.dilation;
    }
    cudnnBackendDescriptor_t d = make(m, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set(m, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    set(m, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(m, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &axes);
    set(m, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, axes, padding);
    set(m, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, axes, padding);
    set(m, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, axes, dilation);
    set(m, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, axes, stride);
    finish(m, d);
    return d;
}

/* The names of one operation's attributes. */
typedef struct operation {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t window, in, weight, out, alpha, beta;
} operation;

static const operation operations[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static cudnnBackendDescriptor_t make_operation(maker *m, const key *k)
{
    const operation &o = operations[k->role];
    int64_t in[3], weight[3], out[3];
    int axes = axes_of(k);
    for (int i = 0; i < axes; i++) {
        const lki_cuda_axis &axis = k->axis[3 - axes + i];
        in[i] = axis.in;
        weight[i] = axis.kernel;
        out[i] = axis.out;
    }
    bool f64 = k->type == CUDNN_DATA_DOUBLE;
    double one = 1, zero = 0;
    float short_one = 1, short_zero = 0;
    cudnnBackendAttributeType_t number = f64 ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
    cudnnBackendDescriptor_t window = make_window(m, k),
                             x = make_tensor(m, ID_IN, k, k->batch, k->in_channels, in),
                             w = make_tensor(m, ID_WEIGHT, k, k->out_channels, k->in_channels / k->groups,
                                             weight),
                             y = make_tensor(m, ID_OUT, k, k->batch, k->out_channels, out);
    cudnnBackendDescriptor_t d = make(m, o.type);
    set_descriptor(m, d, o.window, window);
    set_descriptor(m, d, o.in, x);
    set_descriptor(m, d, o.weight, w);
    set_descriptor(m, d, o.out, y);
    set(m, d, o.alpha, number, 1, f64 ? (const void *)&one : &short_one);
    set(m, d, o.beta, number, 1, f64 ? (const void *)&zero : &short_zero);
    finish(m, d);
    return d;
}

/* ---- Engines ---- */

/* The same bits each time, no sums in 16 bits, no transforms that lose digits. */
static bool is_welcome(maker *m, const key *k, cudnnBackendDescriptor_t engine)
{
    cudnnBackendNumericalNote_t notes[MOST_NOTES];
    cudnnBackendBehaviorNote_t behavior[MOST_NOTES];
    int64_t count =
        get(m, engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, MOST_NOTES, notes);
    for (int i = 0; i < count; i++) {
        bool harmless = notes[i] == CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP ||
                        (notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && k->tensor_cores);
        if (!harmless) return false;
    }
    count = get(m, engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, MOST_NOTES, behavior);
    for (int i = 0; i < count; i++)
        if (behavior[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) return false;
    return m->status == CUDNN_STATUS_SUCCESS;
}

/* A configuration that cannot be had is no failure: the next one may be. */
static bool try_engine(lki_cuda_conv_plan *plan, cudnnHandle_t handle, cudnnBackendDescriptor_t config)
{
    maker m = {plan, CUDNN_STATUS_SUCCESS};
    int64_t nbytes = 0;
    cudnnBackendDescriptor_t engine = make(&m, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    get(&m, config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &engine);
    if (!is_welcome(&m, &plan->made_for, engine)) return false;
    cudnnBackendDescriptor_t d = make(&m, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(&m, d, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set_descriptor(&m, d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    finish(&m, d);
    get(&m, d, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &nbytes);
    if (m.status != CUDNN_STATUS_SUCCESS || nbytes > MOST_WORKSPACE) return false;
    plan->plan = d;
    plan->workspace_nbytes = nbytes;
    return true;
}

/* The first engine of a heuristic's list that will do. */
static bool try_heuristic(lki_cuda_conv_plan *plan, cudnnHandle_t handle, cudnnBackendDescriptor_t graph,
                          cudnnBackendHeurMode_t mode)
{
    maker m = {plan, CUDNN_STATUS_SUCCESS};
    cudnnBackendDescriptor_t configs[MOST_ENGINES];
    cudnnBackendDescriptor_t heuristic = make(&m, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_descriptor(&m, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(&m, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finish(&m, heuristic);
    for (int i = 0; i < MOST_ENGINES; i++) configs[i] = make(&m, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    int64_t count = get(&m, heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                        MOST_ENGINES, configs);
    for (int i = 0; i < count && m.status == CUDNN_STATUS_SUCCESS; i++)
        if (try_engine(plan, handle, configs[i])) return true;
    return false;
}

/* Mode B knows better where a weight's gradient has few channels; elsewhere both say the same. */
static void find_engine(lki_cuda_conv_plan *plan, cudnnHandle_t handle)
{
    maker m = {plan, CUDNN_STATUS_SUCCESS};
    cudnnBackendDescriptor_t convolution = make_operation(&m, &plan->made_for);
    cudnnBackendDescriptor_t graph = make(&m, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set_descriptor(&m, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, convolution);
    set(&m, graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    finish(&m, graph);
    if (m.status != CUDNN_STATUS_SUCCESS) return;
    bool to_weight = plan->made_for.role == LKI_CUDA_CONV_WEIGHT;
    if (to_weight && try_heuristic(plan, handle, graph, CUDNN_HEUR_MODE_B)) return;
    try_heuristic(plan, handle, graph, CUDNN_HEUR_MODE_A);
}

/* ---- Plans ---- */

static key key_of(const lki_cuda_conv_shape *s, cudnnDataType_t type, bool tensor_cores)
{
    key k;
    memset(&k, 0, sizeof k);
    k.role = s->role;
    k.type = (int)type;
    k.rank = s->rank;
    k.tensor_cores = tensor_cores;
    k.groups = s->groups;
    k.batch = s->batch;
    k.in_channels = s->in_channels;
    k.out_channels = s->out_channels;
    memcpy(k.axis, s->window.axis, sizeof k.axis);
    return k;
}

static void free_plan(lki_cuda_conv_plan *plan)
{
    while (plan->made_count > 0) cudnnBackendDestroyDescriptor(plan->made[--plan->made_count]);
    lki_host->free(plan);
}

lk_status lki_cuda_find_conv_plan(lki_cuda *cuda, const lki_cuda_conv_shape *shape, cudnnDataType_t type,
                                  bool tensor_cores, const lki_cuda_conv_plan **out, size_t *workspace_nbytes)
{
    cudnnHandle_t handle;
    LKI_TRY(lki_cuda_cudnn(cuda, &handle));
    key k = key_of(shape, type, tensor_cores);
    lki_cuda_conv_plan *plan = cuda->conv_plans;
    while (plan && memcmp(&plan->made_for, &k, sizeof k) != 0) plan = plan->next;
    if (!plan) {
        plan = (lki_cuda_conv_plan *)lki_host->alloc(sizeof *plan, "a convolution's plan");
        if (!plan) return LK_ERR_NOMEM;
        plan->made_for = k;
        find_engine(plan, handle);
        plan->next = cuda->conv_plans;
        cuda->conv_plans = plan;
    }
    *out = plan->plan ? plan : NULL;
    *workspace_nbytes = plan->plan ? (size_t)plan->workspace_nbytes : 0;
    return LK_OK;
}

lk_status lki_cuda_run_conv_plan(lki_cuda *cuda, const lki_cuda_conv_plan *plan, const void *in,
                                 const void *weight, const void *out, void *workspace)
{
    const void *data[] = {in, weight, out};
    int64_t ids[] = {ID_IN, ID_WEIGHT, ID_OUT};
    cudnnBackendDescriptor_t pack = NULL;
    LKI_CUDNN(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    cudnnStatus_t status =
        cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, data);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, ids);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                                          &workspace);
    if (status == CUDNN_STATUS_SUCCESS) status = cudnnBackendFinalize(pack);
    if (status == CUDNN_STATUS_SUCCESS) status = cudnnBackendExecute(cuda->cudnn, plan->plan, pack);
    cudnnBackendDestroyDescriptor(pack);
    return status == CUDNN_STATUS_SUCCESS ? LK_OK : lki_cudnn_error(status, "a planned convolution");
}

void lki_cuda_free_conv_plans(lki_cuda *cuda)
{
    while (cuda->conv_plans) {
        lki_cuda_conv_plan *plan = cuda->conv_plans;
        cuda->conv_plans = plan->next;
        free_plan(plan);
    }
}
