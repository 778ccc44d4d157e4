#include "engine/cpu/dnnl.h"

#include "base/memory.h"
#include "base/status.h"

enum { MAX_ARGUMENTS = 4 };

typedef struct argument {
    int arg, operand;
    bool is_output;
    void *data;               /* what `user` points to now */
    dnnl_memory_t user;       /* the call's tensor */
    dnnl_memory_t inner;      /* what the primitive works on: the same object, or memory in the scratch */
    dnnl_primitive_t reorder; /* between them; NULL where they are the same */
    size_t offset, nbytes;    /* of inner, in the scratch */
} argument;

struct lki_dnnl {
    lki_dnnl_device *device;
    int thread_count;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    argument arguments[MAX_ARGUMENTS];
    int argument_count;
    dnnl_memory_t scratchpad;
    size_t scratchpad_offset, scratch_nbytes;
    void *scratch; /* where the inner memories were last put */
};

lki_dnnl_device *lki_dnnl_open(void)
{
    if (!lki_onednn_load()) return NULL;
    if (lki_onednn.get_effective_cpu_isa() < dnnl_cpu_isa_avx512_core_bf16) return NULL;
    lki_dnnl_device *device = LKI_NEW(lki_dnnl_device);
    if (!device) return NULL;
    bool started =
        lki_onednn.engine_create(&device->engine, dnnl_cpu, 0) == dnnl_success &&
        lki_onednn.stream_create(&device->stream, device->engine, dnnl_stream_default_flags) == dnnl_success;
    if (!started) {
        lki_dnnl_close(device);
        return NULL;
    }
    device->set_threads = lki_onednn.omp_set_num_threads;
    return device;
}

void lki_dnnl_close(lki_dnnl_device *device)
{
    if (!device) return;
    if (device->stream) lki_onednn.stream_destroy(device->stream);
    if (device->engine) lki_onednn.engine_destroy(device->engine);
    lki_free(device);
}

static dnnl_data_type_t data_type(lk_dtype dtype)
{
    return dtype == LK_BF16 ? dnnl_bf16 : dnnl_f32;
}

dnnl_memory_desc_t lki_dnnl_strided(lk_dtype dtype, int rank, const int64_t *dims, const int64_t *strides)
{
    dnnl_memory_desc_t desc;
    lki_onednn.memory_desc_init_by_strides(&desc, rank, dims, data_type(dtype), strides);
    return desc;
}

dnnl_memory_desc_t lki_dnnl_dense(lk_dtype dtype, int rank, const int64_t *dims)
{
    return lki_dnnl_strided(dtype, rank, dims, NULL);
}

dnnl_memory_desc_t lki_dnnl_any(lk_dtype dtype, int rank, const int64_t *dims)
{
    dnnl_memory_desc_t desc;
    lki_onednn.memory_desc_init_by_tag(&desc, rank, dims, data_type(dtype), dnnl_format_tag_any);
    return desc;
}

static lk_status check(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success) return LK_OK;
    return lki_fail(status == dnnl_out_of_memory ? LK_ERR_NOMEM : LK_ERR_UNSUPPORTED,
                    "oneDNN could not %s (status %d)", what, (int)status);
}

static void free_kernel(void *state)
{
    lki_dnnl *kernel = state;
    for (int i = 0; i < kernel->argument_count; i++) {
        argument *a = &kernel->arguments[i];
        if (a->reorder) {
            lki_onednn.primitive_destroy(a->reorder);
            lki_onednn.memory_destroy(a->inner);
        }
        if (a->user) lki_onednn.memory_destroy(a->user);
    }
    if (kernel->scratchpad) lki_onednn.memory_destroy(kernel->scratchpad);
    if (kernel->primitive) lki_onednn.primitive_destroy(kernel->primitive);
    if (kernel->desc) lki_onednn.primitive_desc_destroy(kernel->desc);
    lki_free(kernel);
}

static lk_status make_attributes(dnnl_primitive_attr_t *attr, bool relu)
{
    dnnl_post_ops_t post_ops = NULL;
    LKI_TRY(check(lki_onednn.primitive_attr_create(attr), "make attributes"));
    lk_status status = check(lki_onednn.primitive_attr_set_scratchpad_mode(*attr, dnnl_scratchpad_mode_user),
                             "set its scratchpad");
    if (status || !relu) return status;
    LKI_TRY(check(lki_onednn.post_ops_create(&post_ops), "make post-ops"));
    status = check(lki_onednn.post_ops_append_eltwise(post_ops, 1, dnnl_eltwise_relu, 0, 0), "append a ReLU");
    if (!status) status = check(lki_onednn.primitive_attr_set_post_ops(*attr, post_ops), "set post-ops");
    lki_onednn.post_ops_destroy(post_ops);
    return status;
}

/* Primitives divide their sums by the number of threads at hand when they are made, and run with those at
 * hand then: both times the engine's, whatever OpenMP would take or another engine has taken. */
static void use_own_threads(const lki_dnnl *kernel)
{
    if (kernel->device->set_threads) kernel->device->set_threads(kernel->thread_count);
}

lk_status lki_dnnl_begin(lki_dnnl **out, lki_cpu *cpu, lk_call *call, const_dnnl_op_desc_t op_desc, bool relu)
{
    lki_dnnl *kernel = LKI_NEW(lki_dnnl);
    if (!kernel) return LK_ERR_NOMEM;
    call->state = *out = kernel;
    call->free_state = free_kernel;
    kernel->device = cpu->dnnl;
    kernel->thread_count = cpu->thread_count;
    use_own_threads(kernel);
    dnnl_primitive_attr_t attr = NULL;
    lk_status status = make_attributes(&attr, relu);
    if (!status)
        status =
            check(lki_onednn.primitive_desc_create(&kernel->desc, op_desc, attr, cpu->dnnl->engine, NULL),
                  "describe a primitive");
    if (!status)
        status = check(lki_onednn.primitive_create(&kernel->primitive, kernel->desc), "create a primitive");
    if (attr) lki_onednn.primitive_attr_destroy(attr);
    return status;
}

static lk_status make_reorder(lki_dnnl *kernel, argument *a, const dnnl_memory_desc_t *user,
                              const dnnl_memory_desc_t *inner)
{
    dnnl_primitive_desc_t desc = NULL;
    const dnnl_memory_desc_t *from = a->is_output ? inner : user, *to = a->is_output ? user : inner;
    dnnl_engine_t engine = kernel->device->engine;
    LKI_TRY(check(lki_onednn.reorder_primitive_desc_create(&desc, from, engine, to, engine, NULL),
                  "describe a reorder"));
    lk_status status = check(lki_onednn.primitive_create(&a->reorder, desc), "create a reorder");
    lki_onednn.primitive_desc_destroy(desc);
    if (status) return status;
    status =
        check(lki_onednn.memory_create(&a->inner, inner, engine, DNNL_MEMORY_NONE), "create a memory object");
    if (status) {
        lki_onednn.primitive_destroy(a->reorder);
        a->reorder = NULL;
        return status;
    }
    a->nbytes = lki_onednn.memory_desc_get_size(inner);
    a->offset = kernel->scratch_nbytes;
    kernel->scratch_nbytes += (a->nbytes + 63) / 64 * 64;
    return LK_OK;
}

lk_status lki_dnnl_add(lki_dnnl *kernel, int arg, bool is_output, int operand, const dnnl_memory_desc_t *user)
{
    argument *a = &kernel->arguments[kernel->argument_count++];
    *a = (argument){.arg = arg, .is_output = is_output, .operand = operand};
    const dnnl_memory_desc_t *inner =
        lki_onednn.primitive_desc_query_md(kernel->desc, dnnl_query_exec_arg_md, arg);
    LKI_TRY(check(lki_onednn.memory_create(&a->user, user, kernel->device->engine, DNNL_MEMORY_NONE),
                  "create a memory object"));
    if (!inner || lki_onednn.memory_desc_equal(user, inner)) {
        a->inner = a->user;
        return LK_OK;
    }
    return make_reorder(kernel, a, user, inner);
}

/* Points the memory objects at where things lie now. */
static void place(lki_dnnl *kernel, const lk_call *call)
{
    for (int i = 0; i < kernel->argument_count; i++) {
        argument *a = &kernel->arguments[i];
        void *data = a->is_output ? call->out[a->operand].data : call->in[a->operand].data;
        if (data != a->data) lki_onednn.memory_set_data_handle_v2(a->user, data, kernel->device->stream);
        a->data = data;
    }
    if (kernel->scratch == call->scratch) return;
    kernel->scratch = call->scratch;
    for (int i = 0; i < kernel->argument_count; i++) {
        argument *a = &kernel->arguments[i];
        if (a->reorder)
            lki_onednn.memory_set_data_handle_v2(a->inner, (char *)call->scratch + a->offset,
                                                 kernel->device->stream);
    }
    if (kernel->scratchpad)
        lki_onednn.memory_set_data_handle_v2(
            kernel->scratchpad, (char *)call->scratch + kernel->scratchpad_offset, kernel->device->stream);
}

static dnnl_status_t reorder(const lki_dnnl *kernel, const argument *a)
{
    dnnl_exec_arg_t arguments[2] = {{DNNL_ARG_FROM, a->is_output ? a->inner : a->user},
                                    {DNNL_ARG_TO, a->is_output ? a->user : a->inner}};
    return lki_onednn.primitive_execute(a->reorder, kernel->device->stream, 2, arguments);
}

lk_status lki_dnnl_run(const lk_call *call)
{
    lki_dnnl *kernel = call->state;
    dnnl_exec_arg_t arguments[MAX_ARGUMENTS + 1];
    int count = 0;
    use_own_threads(kernel);
    place(kernel, call);
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < kernel->argument_count; i++) {
        const argument *a = &kernel->arguments[i];
        arguments[count++] = (dnnl_exec_arg_t){a->arg, a->inner};
        if (a->reorder && !a->is_output && !status) status = reorder(kernel, a);
    }
    if (kernel->scratchpad) arguments[count++] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, kernel->scratchpad};
    if (!status)
        status = lki_onednn.primitive_execute(kernel->primitive, kernel->device->stream, count, arguments);
    for (int i = 0; i < kernel->argument_count && !status; i++)
        if (kernel->arguments[i].reorder && kernel->arguments[i].is_output)
            status = reorder(kernel, &kernel->arguments[i]);
    if (!status) status = lki_onednn.stream_wait(kernel->device->stream);
    return check(status, "run a primitive");
}

lk_status lki_dnnl_finish(lki_dnnl *kernel, lk_call *call)
{
    const dnnl_memory_desc_t *scratchpad =
        lki_onednn.primitive_desc_query_md(kernel->desc, dnnl_query_scratchpad_md, 0);
    size_t nbytes = scratchpad ? lki_onednn.memory_desc_get_size(scratchpad) : 0;
    if (nbytes) {
        LKI_TRY(check(lki_onednn.memory_create(&kernel->scratchpad, scratchpad, kernel->device->engine,
                                               DNNL_MEMORY_NONE),
                      "create a memory object"));
        kernel->scratchpad_offset = kernel->scratch_nbytes;
        kernel->scratch_nbytes += (nbytes + 63) / 64 * 64;
    }
    call->scratch_nbytes = kernel->scratch_nbytes;
    call->run = lki_dnnl_run;
    return LK_OK;
}
