/* Padding by reflection, repetition or wrapping around, and its gradient: for each axis a table says which
 * element each padded place shows. Rows of the last axis are copied whole in their middle. */
#include "engine/cpu/cpu.h"

#include <string.h>

/* What call->state points to; the tables lie behind it in the same block. */
typedef struct plan {
    int rank;
    lk_shape padded, plain;
    int64_t stride[LK_MAX_DIMS]; /* of the plain tensor */
    int64_t *source[LK_MAX_DIMS];
    int64_t before, width; /* of the last axis */
} plan;

static int64_t shown_by(lk_pad_mode mode, int64_t index, int64_t size)
{
    if (index >= 0 && index < size) return index;
    if (mode == LK_PAD_REFLECT) return index < 0 ? -index : 2 * (size - 1) - index;
    if (mode == LK_PAD_CIRCULAR) return ((index % size) + size) % size;
    return index < 0 ? 0 : size - 1;
}

/* The plain row that padded row `row` (over all axes but the last) shows. */
static int64_t row_offset(const plan *p, int64_t row)
{
    int64_t offset = 0;
    for (int i = p->rank - 2; i >= 0; i--) {
        offset += p->source[i][row % p->padded.dim[i]] * p->stride[i];
        row /= p->padded.dim[i];
    }
    return offset;
}

static void pad_rows(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const lk_call *call = context;
    const plan *p = call->state;
    int64_t wide = p->padded.dim[p->rank - 1];
    const int64_t *source = p->source[p->rank - 1];
    for (int64_t row = begin; row < end; row++) {
        const float *from = lki_cpu_in(call, 0) + row_offset(p, row);
        float *to = lki_cpu_out(call, 0) + row * wide;
        for (int64_t i = 0; i < p->before; i++) to[i] = from[source[i]];
        memcpy(to + p->before, from, (size_t)p->width * sizeof(float));
        for (int64_t i = p->before + p->width; i < wide; i++) to[i] = from[source[i]];
    }
}

static lk_status run_pad(const lk_call *call)
{
    const plan *p = call->state;
    int64_t wide = p->padded.dim[p->rank - 1], rows = lki_cpu_span(p->padded, 0, p->rank - 1);
    lki_parallel_for(lki_cpu_of(call)->pool, rows, LKI_CPU_GRAIN / (wide + 1) + 1, pad_rows, (void *)call);
    return LK_OK;
}

/* Every padded element adds its gradient to the element that it showed. */
static lk_status run_pad_grad(const lk_call *call)
{
    const plan *p = call->state;
    int64_t wide = p->padded.dim[p->rank - 1], rows = lki_cpu_span(p->padded, 0, p->rank - 1);
    const int64_t *source = p->source[p->rank - 1];
    memset(call->out[0].data, 0, lk_tensor_nbytes(&call->out[0]));
    for (int64_t row = 0; row < rows; row++) {
        const float *from = lki_cpu_in(call, 0) + row * wide;
        float *to = lki_cpu_out(call, 0) + row_offset(p, row);
        for (int64_t i = 0; i < p->before; i++) to[source[i]] += from[i];
        lki_cpu_of(call)->kernels->add_to(to, from + p->before, p->width);
        for (int64_t i = p->before + p->width; i < wide; i++) to[source[i]] += from[i];
    }
    return LK_OK;
}

lk_status lki_cpu_prepare_pad_by_elements(lki_cpu *cpu, lk_call *call)
{
    bool forward = call->op == LK_OP_PAD;
    lk_shape padded = forward ? call->out[0].shape : call->in[0].shape,
             plain = forward ? call->in[0].shape : call->out[0].shape;
    int64_t places = 0;
    if (!lki_cpu_all_f32(call, 0) || !plain.rank || !lk_shape_count(plain)) return LK_OK;
    for (int i = 0; i < plain.rank; i++) {
        if (call->attr->pad.before[i] < 0 || call->attr->pad.after[i] < 0) return LK_OK;
        places += padded.dim[i];
    }
    plan *p = lki_cpu_new_state(call, sizeof *p + (size_t)places * sizeof(int64_t));
    if (!p) return LK_ERR_NOMEM;
    int64_t *table = (int64_t *)(p + 1), stride = 1;
    p->rank = plain.rank;
    p->padded = padded;
    p->plain = plain;
    p->before = call->attr->pad.before[plain.rank - 1];
    p->width = plain.dim[plain.rank - 1];
    for (int i = plain.rank - 1; i >= 0; i--) {
        p->source[i] = table;
        p->stride[i] = stride;
        for (int64_t j = 0; j < padded.dim[i]; j++)
            table[j] = shown_by(call->attr->pad.mode, j - call->attr->pad.before[i], plain.dim[i]);
        table += padded.dim[i];
        stride *= plain.dim[i];
    }
    lki_cpu_enter(cpu, LKI_CPU_PATH_PAD_ELEMENTS);
    call->run = forward ? run_pad : run_pad_grad;
    return LK_OK;
}
