/* cuDNN's graphs of operations, as far as they are one convolution: descriptors are lists of attributes, and
 * the heuristic knows two engines, of which nobody may take the first. */
#include "convolution.h"

#include <string.h>

#include <map>
#include <vector>

using namespace lkt_gpu;

namespace
{

enum { FIRST_ENGINE, SECOND_ENGINE, ENGINES };

struct attribute {
    cudnnBackendAttributeType_t type;
    int64_t count;
    std::vector<char> data;
};

size_t nbytes_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return 8;
    default: return 4;
    }
}

} // namespace

/* cudnnBackendDescriptor_t is a pointer to nothing in particular. */
struct lkt_descriptor {
    cudnnBackendDescriptorType_t type;
    bool finalized;
    int engine;                  /* of an engine or its configuration */
    const lkt_descriptor *graph; /* of a configuration */
    std::map<int, attribute> attributes;
};

namespace
{

lkt_descriptor *of(cudnnBackendDescriptor_t descriptor)
{
    return (lkt_descriptor *)descriptor;
}

const attribute &need(const lkt_descriptor *d, cudnnBackendAttributeName_t name)
{
    auto found = d->attributes.find(name);
    if (found == d->attributes.end())
        refuse("cuDNN: a descriptor of type %d has no attribute %d", (int)d->type, (int)name);
    return found->second;
}

template <typename T> T one(const lkt_descriptor *d, cudnnBackendAttributeName_t name)
{
    T value;
    memcpy(&value, need(d, name).data.data(), sizeof value);
    return value;
}

const lkt_descriptor *part(const lkt_descriptor *d, cudnnBackendAttributeName_t name)
{
    const lkt_descriptor *found = one<const lkt_descriptor *>(d, name);
    if (!found || !found->finalized)
        refuse("cuDNN: attribute %d is a descriptor that is not final", (int)name);
    return found;
}

const int64_t *numbers(const lkt_descriptor *d, cudnnBackendAttributeName_t name)
{
    return (const int64_t *)need(d, name).data.data();
}

sides sides_of(const lkt_descriptor *d)
{
    sides s = {};
    int rank = (int)need(d, CUDNN_ATTR_TENSOR_DIMENSIONS).count;
    const int64_t *dim = numbers(d, CUDNN_ATTR_TENSOR_DIMENSIONS),
                  *stride = numbers(d, CUDNN_ATTR_TENSOR_STRIDES);
    for (int i = 0; i < RANK; i++) {
        bool is_there = i < 2 || i >= 2 + RANK - rank;
        int from = i < 2 ? i : i - (RANK - rank);
        s.dim[i] = is_there ? dim[from] : 1;
        s.stride[i] = is_there ? stride[from] : 0;
    }
    s.type = number_of(one<cudnnDataType_t>(d, CUDNN_ATTR_TENSOR_DATA_TYPE));
    return s;
}

window window_of(const lkt_descriptor *d)
{
    window w = {};
    int axes = (int)one<int64_t>(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
    for (int i = 0; i < AXES; i++) {
        int from = i - (AXES - axes);
        w.padding[i] = from < 0 ? 0 : numbers(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)[from];
        w.stride[i] = from < 0 ? 1 : numbers(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)[from];
        w.dilation[i] = from < 0 ? 1 : numbers(d, CUDNN_ATTR_CONVOLUTION_DILATIONS)[from];
    }
    return w;
}

/* The names of an operation's tensors. */
struct operation {
    role computed;
    cudnnBackendAttributeName_t window, in, weight, out, alpha, beta;
};

operation operation_of(cudnnBackendDescriptorType_t type)
{
    switch (type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        return {OUT,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        return {IN,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        return {WEIGHT,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
    default: refuse("cuDNN: operation %d is not emulated", (int)type);
    }
}

double factor(const lkt_descriptor *d, cudnnBackendAttributeName_t name)
{
    return need(d, name).type == CUDNN_TYPE_DOUBLE ? one<double>(d, name) : one<float>(d, name);
}

/* The address of a tensor, aligned as was promised. */
void *pointer(const lkt_descriptor *pack, const lkt_descriptor *tensor)
{
    int64_t id = one<int64_t>(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID),
            alignment = one<int64_t>(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    const attribute &ids = need(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    for (int64_t i = 0; i < ids.count; i++) {
        if (((const int64_t *)ids.data.data())[i] != id) continue;
        void *found = ((void **)need(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).data.data())[i];
        if ((uintptr_t)found % (uintptr_t)alignment)
            refuse("cuDNN: an operand is not aligned as was promised");
        return found;
    }
    refuse("cuDNN: no address for the tensor %lld", (long long)id);
}

/* What a heuristic answers goes into the descriptors that were brought. */
cudnnStatus_t answer(const lkt_descriptor *heuristic, int64_t most, int64_t *count, void *out)
{
    *count = most < ENGINES ? most : (int64_t)ENGINES;
    for (int64_t i = 0; i < *count; i++) {
        lkt_descriptor *config = of(((cudnnBackendDescriptor_t *)out)[i]);
        if (config->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR) return CUDNN_STATUS_BAD_PARAM;
        config->engine = (int)i;
        config->graph = part(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
        config->finalized = true;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t get_note(const lkt_descriptor *engine, int64_t most, int64_t *count, void *out)
{
    cudnnBackendNumericalNote_t note = engine->engine == FIRST_ENGINE ? CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
                                                                      : CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP;
    if (most < 1) return CUDNN_STATUS_BAD_PARAM;
    *count = 1;
    memcpy(out, &note, sizeof note);
    return CUDNN_STATUS_SUCCESS;
}

} // namespace

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out)
{
    lkt_descriptor *made = new lkt_descriptor();
    made->type = type;
    *out = (cudnnBackendDescriptor_t)made;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    delete of(descriptor);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *values)
{
    if (of(descriptor)->finalized) return CUDNN_STATUS_NOT_INITIALIZED;
    const char *from = (const char *)values;
    of(descriptor)->attributes[name] = {type, count, {from, from + (size_t)count * nbytes_of(type)}};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    of(descriptor)->finalized = true;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t,
                                       int64_t most, int64_t *count, void *out)
{
    const lkt_descriptor *d = of(descriptor);
    if (!d->finalized) return CUDNN_STATUS_BAD_PARAM;
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: return answer(d, most, count, out);
    case CUDNN_ATTR_ENGINECFG_ENGINE: {
        lkt_descriptor *engine = of(*(cudnnBackendDescriptor_t *)out);
        engine->engine = d->engine;
        engine->finalized = true;
        *count = 1;
        return CUDNN_STATUS_SUCCESS;
    }
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: return get_note(d, most, count, out);
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE: *count = 0; return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
        *(int64_t *)out = (int64_t)CONVOLUTION_WORKSPACE_NBYTES;
        *count = 1;
        return CUDNN_STATUS_SUCCESS;
    default: refuse("cuDNN: attribute %d is not emulated", (int)name);
    }
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t variant_pack)
{
    const lkt_descriptor *pack = of(variant_pack),
                         *config = part(of(plan), CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    if (config->engine != SECOND_ENGINE) refuse("cuDNN: the engine's results are not the same each time");
    const lkt_descriptor *convolves = part(config->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    operation o = operation_of(convolves->type);
    if (factor(convolves, o.alpha) != 1 || factor(convolves, o.beta) != 0)
        refuse("cuDNN with factors is not emulated");
    const lkt_descriptor *x = part(convolves, o.in), *w = part(convolves, o.weight),
                         *y = part(convolves, o.out);
    convolution c = {sides_of(x), sides_of(y), sides_of(w), window_of(part(convolves, o.window))};
    c.how.groups = (int)(c.in.dim[1] / c.weight.dim[1]);
    void *in = pointer(pack, x), *weight = pointer(pack, w), *out = pointer(pack, y),
         *workspace = one<void *>(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    if (!workspace) return CUDNN_STATUS_BAD_PARAM;
    switch (o.computed) {
    case OUT: convolve(handle, c, OUT, in, weight, out, workspace); break;
    case IN: convolve(handle, c, IN, out, weight, in, workspace); break;
    case WEIGHT: convolve(handle, c, WEIGHT, in, out, weight, workspace); break;
    }
    return CUDNN_STATUS_SUCCESS;
}
