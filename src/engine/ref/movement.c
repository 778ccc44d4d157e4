/* Ops that move elements and compute nothing, with their gradients. What only moves is moved bit for bit, in
 * any dtype. */
#include "engine/ref/ref.h"

#include "base/status.h"
#include "tensor/buffer.h"

/* Copies every element of a strided view, in row-major order, to the dense `out`. */
static void gather_view(const lk_tensor *out, const lk_tensor *view)
{
    int64_t count = lk_tensor_count(out);
    for (int64_t i = 0; i < count; i++) lki_ref_move(out, i, view, lki_ref_offset(view, i));
}

static lk_tensor dense(const lk_tensor *tensor)
{
    lk_tensor view = *tensor;
    lki_tensor_set_contiguous(&view);
    return view;
}

lk_status lki_ref_expand(const lk_call *call)
{
    lk_tensor view = lki_ref_broadcast(&call->in[0], call->out[0].shape);
    gather_view(&call->out[0], &view);
    return LK_OK;
}

lk_status lki_ref_permute(const lk_call *call)
{
    lk_tensor x = dense(&call->in[0]), view = x;
    for (int i = 0; i < x.shape.rank; i++) {
        view.shape.dim[i] = x.shape.dim[call->attr->permute.order[i]];
        view.stride[i] = x.stride[call->attr->permute.order[i]];
    }
    gather_view(&call->out[0], &view);
    return LK_OK;
}

/* The slice as a view of the dense tensor that it is a slice of. */
static lk_tensor slice_of(const lk_tensor *whole, const lk_slice_attr *attr, lk_shape shape)
{
    lk_tensor view = dense(whole);
    int64_t first = 0;
    for (int i = 0; i < shape.rank; i++) {
        first += attr->begin[i] * view.stride[i];
        view.stride[i] *= attr->step[i];
    }
    view.shape = shape;
    view.data = (char *)view.data + first * (int64_t)lk_dtype_nbytes(view.dtype);
    return view;
}

lk_status lki_ref_slice(const lk_call *call)
{
    if (!lk_tensor_count(&call->out[0])) return LK_OK;
    lk_tensor view = slice_of(&call->in[0], &call->attr->slice, call->out[0].shape);
    gather_view(&call->out[0], &view);
    return LK_OK;
}

lk_status lki_ref_slice_grad(const lk_call *call)
{
    const lk_tensor *dy = &call->in[0];
    lki_ref_fill(&call->out[0], 0);
    int64_t count = lk_tensor_count(dy);
    if (!count) return LK_OK;
    lk_tensor view = slice_of(&call->out[0], &call->attr->slice, dy->shape);
    for (int64_t i = 0; i < count; i++) lki_ref_move(&view, lki_ref_offset(&view, i), dy, i);
    return LK_OK;
}

lk_status lki_ref_concat(const lk_call *call)
{
    const lk_tensor *out = &call->out[0];
    int axis = call->attr->axis.axis;
    int64_t outer = lki_ref_span(out->shape, 0, axis),
            inner = lki_ref_span(out->shape, axis + 1, out->shape.rank);
    int64_t out_row = out->shape.dim[axis] * inner, before = 0;
    for (int k = 0; k < call->input_count; k++) {
        int64_t row = call->in[k].shape.dim[axis] * inner;
        for (int64_t i = 0; i < outer; i++)
            for (int64_t j = 0; j < row; j++)
                lki_ref_move(out, i * out_row + before + j, &call->in[k], i * row + j);
        before += row;
    }
    return LK_OK;
}

/* Which element of an axis of `size` is seen at `index`, which may lie outside; -1 for the constant. */
static int64_t padded_index(lk_pad_mode mode, int64_t index, int64_t size)
{
    if (index >= 0 && index < size) return index;
    switch (mode) {
    case LK_PAD_CONSTANT: return -1;
    case LK_PAD_REFLECT: return index < 0 ? -index : 2 * (size - 1) - index;
    case LK_PAD_CIRCULAR: return ((index % size) + size) % size;
    case LK_PAD_REPLICATE: return index < 0 ? 0 : size - 1;
    }
    return -1;
}

/* Where element `index` of the padded shape comes from in the dense x, or -1 for the constant. */
static int64_t pad_source(const lk_pad_attr *attr, const lk_tensor *x, lk_shape padded, int64_t index)
{
    int64_t offset = 0;
    for (int i = padded.rank - 1; i >= 0; i--) {
        int64_t at = index % padded.dim[i] - attr->before[i];
        index /= padded.dim[i];
        at = padded_index(attr->mode, at, x->shape.dim[i]);
        if (at < 0) return -1;
        offset += at * x->stride[i];
    }
    return offset;
}

lk_status lki_ref_pad(const lk_call *call)
{
    lk_tensor x = dense(&call->in[0]);
    const lk_tensor *out = &call->out[0];
    int64_t count = lk_tensor_count(out);
    for (int64_t i = 0; i < count; i++) {
        int64_t from = pad_source(&call->attr->pad, &x, out->shape, i);
        if (from < 0)
            lki_ref_set(out, i, call->attr->pad.value);
        else
            lki_ref_move(out, i, &x, from);
    }
    return LK_OK;
}

/* Every padded element adds its gradient to the element that it showed. */
lk_status lki_ref_pad_grad(const lk_call *call)
{
    const lk_tensor *dy = &call->in[0];
    lk_tensor dx = dense(&call->out[0]);
    lki_ref_fill(&dx, 0);
    int64_t count = lk_tensor_count(dy);
    for (int64_t i = 0; i < count; i++) {
        int64_t to = pad_source(&call->attr->pad, &dx, dy->shape, i);
        if (to >= 0) lki_ref_add(&dx, to, lki_ref_get(dy, i));
    }
    return LK_OK;
}

/* Where gather's element `i` comes from: its own place in x with the coordinate of `axis` replaced by
 * index[i]. */
static lk_status gather_source(const lk_tensor *x, const lk_tensor *index, int axis, int64_t i,
                               int64_t *offset)
{
    int64_t chosen = lki_ref_get_i64(index, i), rest = i;
    if (chosen < 0 || chosen >= x->shape.dim[axis])
        return lki_fail(LK_ERR_RANGE, "index %lld at position %lld is outside of 0..%lld", (long long)chosen,
                        (long long)i, (long long)x->shape.dim[axis] - 1);
    *offset = 0;
    for (int k = index->shape.rank - 1; k >= 0; k--) {
        int64_t at = rest % index->shape.dim[k];
        rest /= index->shape.dim[k];
        *offset += (k == axis ? chosen : at) * x->stride[k];
    }
    return LK_OK;
}

lk_status lki_ref_gather(const lk_call *call)
{
    lk_tensor x = dense(&call->in[0]);
    const lk_tensor *index = &call->in[1];
    int64_t count = lk_tensor_count(index), from;
    for (int64_t i = 0; i < count; i++) {
        LKI_TRY(gather_source(&x, index, call->attr->gather.axis, i, &from));
        lki_ref_move(&call->out[0], i, &x, from);
    }
    return LK_OK;
}

lk_status lki_ref_gather_grad(const lk_call *call)
{
    const lk_tensor *dy = &call->in[0], *index = &call->in[1];
    lk_tensor dx = dense(&call->out[0]);
    lki_ref_fill(&dx, 0);
    int64_t count = lk_tensor_count(index), to;
    for (int64_t i = 0; i < count; i++) {
        LKI_TRY(gather_source(&dx, index, call->attr->gather.axis, i, &to));
        lki_ref_add(&dx, to, lki_ref_get(dy, i));
    }
    return LK_OK;
}

/* x, and then the source at its places, one after another. x may be narrower than the result
 * (`adds_up` in ref.c). */
lk_status lki_ref_scatter(const lk_call *call)
{
    const lk_tensor *x = &call->in[0], *index = &call->in[1], *source = &call->in[2];
    lk_tensor out = dense(&call->out[0]);
    int64_t count = lk_tensor_count(index), to;
    for (int64_t i = 0; i < lk_tensor_count(&out); i++) lki_ref_set(&out, i, lki_ref_get(x, i));
    for (int64_t i = 0; i < count; i++) {
        LKI_TRY(gather_source(&out, index, call->attr->gather.axis, i, &to));
        if (call->op == LK_OP_SCATTER_ADD)
            lki_ref_add(&out, to, lki_ref_get(source, i));
        else
            lki_ref_set(&out, to, lki_ref_get(source, i));
    }
    return LK_OK;
}

/* dx = 0, then each dy is added where its slice lies. */
lk_status lki_ref_slices_grad(const lk_call *call)
{
    const lk_tensor *dx = &call->out[0];
    lki_ref_fill(dx, 0);
    for (int k = 0; k < call->input_count; k++) {
        const lk_tensor *dy = &call->in[k];
        lk_tensor view = slice_of(dx, &call->attr->slices.parts[k], dy->shape);
        int64_t count = lk_tensor_count(dy), first = (char *)view.data - (char *)dx->data;
        first /= (int64_t)lk_dtype_nbytes(dx->dtype);
        for (int64_t i = 0; i < count; i++)
            lki_ref_add(dx, first + lki_ref_offset(&view, i), lki_ref_get(dy, i));
    }
    return LK_OK;
}
