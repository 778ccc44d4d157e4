/* Ops that only move elements, of any dtype: each is one or more copies between two strided boxes, done in
 * runs of memory where both sides have them. */
#include "engine/cpu/cpu.h"

#include "base/status.h"

#include <string.h>

/* `dim` elements along each axis; strides in elements. The axes that both sides walk as one are merged. */
typedef struct box {
    int rank;
    int64_t dim[LK_MAX_DIMS], to[LK_MAX_DIMS], from[LK_MAX_DIMS];
    int64_t to_offset, from_offset;
    size_t nbytes; /* of an element */
} box;

static void dense_strides(int64_t *stride, lk_shape shape)
{
    int64_t step = 1;
    for (int i = shape.rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= shape.dim[i];
    }
}

static void merge_axes(box *b)
{
    int kept = 0;
    for (int i = 0; i < b->rank; i++) {
        if (b->dim[i] == 1) continue;
        bool merges = kept > 0 && b->to[kept - 1] == b->to[i] * b->dim[i] &&
                      b->from[kept - 1] == b->from[i] * b->dim[i];
        int at = merges ? kept - 1 : kept++;
        b->dim[at] = merges ? b->dim[at] * b->dim[i] : b->dim[i];
        b->to[at] = b->to[i];
        b->from[at] = b->from[i];
    }
    b->rank = kept;
}

static void copy_strided(char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t n,
                         size_t nbytes)
{
    int64_t i;
    switch (nbytes) {
    case 4:
        for (i = 0; i < n; i++) ((uint32_t *)to)[i * to_stride] = ((const uint32_t *)from)[i * from_stride];
        break;
    case 8:
        for (i = 0; i < n; i++) ((uint64_t *)to)[i * to_stride] = ((const uint64_t *)from)[i * from_stride];
        break;
    case 2:
        for (i = 0; i < n; i++) ((uint16_t *)to)[i * to_stride] = ((const uint16_t *)from)[i * from_stride];
        break;
    default:
        for (i = 0; i < n; i++) to[i * to_stride] = from[i * from_stride];
        break;
    }
}

static void copy_row(const box *b, char *to, const char *from)
{
    int last = b->rank - 1;
    if (b->to[last] == 1 && b->from[last] == 1)
        memcpy(to, from, (size_t)b->dim[last] * b->nbytes);
    else
        copy_strided(to, b->to[last], from, b->from[last], b->dim[last], b->nbytes);
}

/* The last two axes, where the source runs along the first of them: square tiles keep both sides in the
 * cache. */
static void copy_transposed(const box *b, char *to, const char *from)
{
    int i = b->rank - 2, j = b->rank - 1;
    int64_t n = (int64_t)b->nbytes;
    enum { SIDE = 16 };
    for (int64_t r = 0; r < b->dim[i]; r += SIDE)
        for (int64_t c = 0; c < b->dim[j]; c += SIDE) {
            int64_t rows = b->dim[i] - r < SIDE ? b->dim[i] - r : SIDE,
                    columns = b->dim[j] - c < SIDE ? b->dim[j] - c : SIDE;
            for (int64_t k = 0; k < rows; k++)
                copy_strided(to + ((r + k) * b->to[i] + c * b->to[j]) * n, b->to[j],
                             from + ((r + k) * b->from[i] + c * b->from[j]) * n, b->from[j], columns,
                             b->nbytes);
        }
}

/* Whether the source runs along the last axis but one. */
static bool is_transposed(const box *b)
{
    return b->rank >= 2 && b->from[b->rank - 1] != 1 && b->from[b->rank - 2] == 1;
}

static void copy_box(const box *b, void *to_data, const void *from_data)
{
    char *to = (char *)to_data + b->to_offset * (int64_t)b->nbytes;
    const char *from = (const char *)from_data + b->from_offset * (int64_t)b->nbytes;
    for (int i = 0; i < b->rank; i++)
        if (b->dim[i] == 0) return;
    if (b->rank == 0) {
        memcpy(to, from, b->nbytes);
        return;
    }
    bool transposed = is_transposed(b);
    int outer = b->rank - (transposed ? 2 : 1);
    int64_t at[LK_MAX_DIMS] = {0};
    for (;;) {
        if (transposed)
            copy_transposed(b, to, from);
        else
            copy_row(b, to, from);
        int i = outer - 1;
        for (; i >= 0; i--) {
            to += b->to[i] * (int64_t)b->nbytes;
            from += b->from[i] * (int64_t)b->nbytes;
            if (++at[i] < b->dim[i]) break;
            to -= b->to[i] * b->dim[i] * (int64_t)b->nbytes;
            from -= b->from[i] * b->dim[i] * (int64_t)b->nbytes;
            at[i] = 0;
        }
        if (i < 0) return;
    }
}

static lk_status run_box(const lk_call *call)
{
    const box *b = call->state;
    copy_box(b, call->out[0].data, call->in[0].data);
    return LK_OK;
}

/* A box as large as `shape`, dense on both sides for now. */
static box *new_box(lk_call *call, lk_shape shape)
{
    box *b = lki_cpu_new_state(call, sizeof *b);
    if (!b) return NULL;
    b->rank = shape.rank;
    memcpy(b->dim, shape.dim, sizeof b->dim);
    dense_strides(b->to, shape);
    dense_strides(b->from, shape);
    b->nbytes = lk_dtype_nbytes(call->out[0].dtype);
    return b;
}

lk_status lki_cpu_prepare_permute(lki_cpu *cpu, lk_call *call)
{
    box *b = new_box(call, call->out[0].shape);
    if (!b) return LK_ERR_NOMEM;
    int64_t stride[LK_MAX_DIMS];
    dense_strides(stride, call->in[0].shape);
    for (int i = 0; i < b->rank; i++) b->from[i] = stride[call->attr->permute.order[i]];
    merge_axes(b);
    lki_cpu_enter(cpu, is_transposed(b) ? LKI_CPU_PATH_COPY_TRANSPOSED : LKI_CPU_PATH_COPY_RUNS);
    call->run = run_box;
    return LK_OK;
}

/* slice: the box lies in the input; slice_grad: in the output, which is zero elsewhere. */
static void place_slice(int64_t *stride, int64_t *offset, const lk_slice_attr *attr, lk_shape whole)
{
    dense_strides(stride, whole);
    for (int i = 0; i < whole.rank; i++) {
        *offset += attr->begin[i] * stride[i];
        stride[i] *= attr->step[i];
    }
}

lk_status lki_cpu_prepare_slice(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    box *b = new_box(call, call->out[0].shape);
    if (!b) return LK_ERR_NOMEM;
    place_slice(b->from, &b->from_offset, &call->attr->slice, call->in[0].shape);
    merge_axes(b);
    call->run = run_box;
    return LK_OK;
}

static lk_status run_zero_and_box(const lk_call *call)
{
    memset(call->out[0].data, 0, lk_tensor_nbytes(&call->out[0]));
    return run_box(call);
}

lk_status lki_cpu_prepare_slice_grad(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    box *b = new_box(call, call->in[0].shape);
    if (!b) return LK_ERR_NOMEM;
    place_slice(b->to, &b->to_offset, &call->attr->slice, call->out[0].shape);
    merge_axes(b);
    call->run = run_zero_and_box;
    return LK_OK;
}

/* Slices that share no place: each is a copy. */
typedef struct parts {
    bool cover; /* together they are the whole result */
    box part[];
} parts;

static lk_status run_parts(const lk_call *call)
{
    const parts *p = call->state;
    if (!p->cover) memset(call->out[0].data, 0, lk_tensor_nbytes(&call->out[0]));
    for (int k = 0; k < call->input_count; k++) copy_box(&p->part[k], call->out[0].data, call->in[k].data);
    return LK_OK;
}

static bool are_apart(const lk_slice_attr *a, const lk_slice_attr *b, int rank)
{
    for (int i = 0; i < rank; i++)
        if (a->end[i] <= b->begin[i] || b->end[i] <= a->begin[i]) return true;
    return false;
}

/* Others are added up by the reference engine. */
static bool all_apart(const lk_call *call)
{
    const lk_slice_attr *slices = call->attr->slices.parts;
    for (int k = 0; k < call->input_count; k++)
        for (int j = 0; j < k; j++)
            if (!are_apart(&slices[j], &slices[k], call->out[0].shape.rank)) return false;
    return true;
}

lk_status lki_cpu_prepare_slices_grad(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    lk_shape whole = call->out[0].shape;
    int64_t count = 0;
    for (int k = 0; k < call->input_count; k++)
        if (call->in[k].dtype != call->out[0].dtype) return LK_OK;
    if (!all_apart(call)) return LK_OK;
    parts *p = lki_cpu_new_state(call, sizeof *p + sizeof *p->part * (size_t)call->input_count);
    if (!p) return LK_ERR_NOMEM;
    for (int k = 0; k < call->input_count; k++) {
        box *b = &p->part[k];
        lk_shape shape = call->in[k].shape;
        b->rank = shape.rank;
        memcpy(b->dim, shape.dim, sizeof b->dim);
        dense_strides(b->from, shape);
        b->nbytes = lk_dtype_nbytes(call->out[0].dtype);
        place_slice(b->to, &b->to_offset, &call->attr->slices.parts[k], whole);
        merge_axes(b);
        count += lk_shape_count(shape);
    }
    p->cover = count == lk_shape_count(whole);
    call->run = run_parts;
    return LK_OK;
}

/* Each input is one run of memory for each place of the axes before the axis. */
static lk_status run_concat(const lk_call *call)
{
    lk_shape shape = call->out[0].shape;
    int axis = call->attr->axis.axis;
    size_t nbytes = lk_dtype_nbytes(call->out[0].dtype),
           row = (size_t)lki_cpu_span(shape, axis, shape.rank) * nbytes;
    char *to = call->out[0].data;
    for (int i = 0; i < call->input_count; i++) {
        lk_shape part = call->in[i].shape;
        size_t run = (size_t)lki_cpu_span(part, axis, part.rank) * nbytes;
        for (int64_t o = 0; o < lki_cpu_span(part, 0, axis) && run; o++)
            memcpy(to + (size_t)o * row, (const char *)call->in[i].data + (size_t)o * run, run);
        to += run;
    }
    return LK_OK;
}

lk_status lki_cpu_prepare_concat(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (call->out[0].shape.rank) call->run = run_concat;
    return LK_OK;
}

static lk_status run_pad(const lk_call *call)
{
    int64_t count = lk_tensor_count(&call->out[0]);
    lki_cpu_of(call)->kernels->tile_fill(call->out[0].data, (float)call->attr->pad.value, count);
    return run_box(call);
}

static bool pads_by_constant(const lk_call *call)
{
    for (int i = 0; i < call->in[0].shape.rank; i++)
        if (call->attr->pad.before[i] < 0 || call->attr->pad.after[i] < 0) return false;
    return call->attr->pad.mode == LK_PAD_CONSTANT && call->out[0].dtype == LK_F32 &&
           call->in[0].dtype == LK_F32;
}

static int64_t pad_offset(const lk_pad_attr *attr, lk_shape padded)
{
    int64_t stride[LK_MAX_DIMS], offset = 0;
    dense_strides(stride, padded);
    for (int i = 0; i < padded.rank; i++) offset += attr->before[i] * stride[i];
    return offset;
}

lk_status lki_cpu_prepare_pad(lki_cpu *cpu, lk_call *call)
{
    if (call->attr->pad.mode != LK_PAD_CONSTANT) return lki_cpu_prepare_pad_by_elements(cpu, call);
    if (!pads_by_constant(call)) return LK_OK;
    bool forward = call->op == LK_OP_PAD;
    lk_shape padded = forward ? call->out[0].shape : call->in[0].shape;
    box *b = new_box(call, forward ? call->in[0].shape : call->out[0].shape);
    if (!b) return LK_ERR_NOMEM;
    dense_strides(forward ? b->to : b->from, padded);
    *(forward ? &b->to_offset : &b->from_offset) = pad_offset(&call->attr->pad, padded);
    merge_axes(b);
    lki_cpu_enter(cpu, LKI_CPU_PATH_PAD_CONSTANT);
    call->run = forward ? run_pad : run_box;
    return LK_OK;
}

static lk_status check_index(int64_t row, int64_t at, int64_t rows)
{
    if (row >= 0 && row < rows) return LK_OK;
    return lki_fail(LK_ERR_RANGE, "index %lld at position %lld is outside of 0..%lld", (long long)row,
                    (long long)at, (long long)rows - 1);
}

static lk_status run_embedding(const lk_call *call)
{
    const lk_tensor *weight = &call->in[0];
    const int64_t *index = call->in[1].data;
    int64_t count = lk_tensor_count(&call->in[1]), rows = weight->shape.dim[0];
    size_t row = (size_t)weight->shape.dim[1] * lk_dtype_nbytes(weight->dtype);
    for (int64_t i = 0; i < count; i++) {
        LKI_TRY(check_index(index[i], i, rows));
        memcpy((char *)call->out[0].data + (size_t)i * row,
               (const char *)weight->data + (size_t)index[i] * row, row);
    }
    return LK_OK;
}

lk_status lki_cpu_prepare_embedding(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (call->in[1].dtype == LK_I64 && call->in[0].dtype == call->out[0].dtype) call->run = run_embedding;
    return LK_OK;
}

/* In the order of the indices, so that equal ones are always added alike. */
static lk_status run_embedding_grad(const lk_call *call)
{
    const lki_cpu_kernels *kernels = lki_cpu_of(call)->kernels;
    const int64_t *index = call->in[1].data;
    int64_t count = lk_tensor_count(&call->in[1]), rows = call->out[0].shape.dim[0],
            width = call->out[0].shape.dim[1];
    memset(call->out[0].data, 0, lk_tensor_nbytes(&call->out[0]));
    for (int64_t i = 0; i < count; i++) {
        LKI_TRY(check_index(index[i], i, rows));
        if (index[i] != call->attr->embedding.padding_index)
            kernels->add_to(lki_cpu_out(call, 0) + index[i] * width, lki_cpu_in(call, 0) + i * width, width);
    }
    return LK_OK;
}

lk_status lki_cpu_prepare_embedding_grad(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (call->in[1].dtype == LK_I64 && lki_cpu_all_f32(call, 2)) call->run = run_embedding_grad;
    return LK_OK;
}
