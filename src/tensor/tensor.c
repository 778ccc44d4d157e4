#include <lockstep/tensor.h>

#include "base/memory.h"
#include "base/status.h"
#include "tensor/buffer.h"
#include "tensor/element.h"
#include "tensor/layout.h"

#include <string.h>

void lki_tensor_set_contiguous(lk_tensor *tensor)
{
    int64_t stride = 1;
    for (int i = tensor->shape.rank - 1; i >= 0; i--) {
        tensor->stride[i] = stride;
        stride *= tensor->shape.dim[i];
    }
}

lk_status lki_shape_check(lk_dtype dtype, lk_shape shape)
{
    char text[160];
    if (shape.rank < 0 || shape.rank > LK_MAX_DIMS)
        return lki_fail(LK_ERR_SHAPE, "a tensor has 0 to %d dimensions, not %d", LK_MAX_DIMS, shape.rank);
    int64_t nbytes = (int64_t)lk_dtype_nbytes(dtype);
    /* A dimension of 0 counts as 1: the strides of the others must fit, too. */
    for (int i = 0; i < shape.rank; i++) {
        if (shape.dim[i] < 0)
            return lki_fail(LK_ERR_SHAPE, "negative dimension in shape %s",
                            lk_shape_format(text, sizeof text, shape));
        if (__builtin_mul_overflow(nbytes, shape.dim[i] ? shape.dim[i] : 1, &nbytes))
            return lki_fail(LK_ERR_NOMEM, "out of memory: a tensor of shape %s is larger than any memory",
                            lk_shape_format(text, sizeof text, shape));
    }
    return LK_OK;
}

static lk_tensor *make_view(lk_dtype dtype, lk_shape shape, void *data, lk_buffer *buffer)
{
    lk_tensor *tensor = LKI_NEW(lk_tensor);
    if (!tensor) return NULL;
    tensor->dtype = dtype;
    tensor->shape = shape;
    tensor->data = data;
    tensor->buffer = buffer;
    lki_tensor_set_contiguous(tensor);
    return tensor;
}

lk_tensor *lk_tensor_create(lk_dtype dtype, lk_shape shape)
{
    if (lki_shape_check(dtype, shape)) return NULL;
    char what[200], text[160];
    int64_t nbytes = lk_shape_count(shape) * (int64_t)lk_dtype_nbytes(dtype);
    lk_shape_format(text, sizeof text, shape);
    memcpy(what, "a tensor of shape ", 18);
    memcpy(what + 18, text, strlen(text) + 1);
    lk_buffer *buffer = lki_buffer_create((size_t)nbytes, what);
    if (!buffer) return NULL;
    lk_tensor *tensor = make_view(dtype, shape, lki_buffer_data(buffer), buffer);
    if (!tensor) lki_buffer_release(buffer);
    return tensor;
}

lk_tensor *lk_tensor_from(lk_dtype dtype, lk_shape shape, const void *data)
{
    lk_tensor *tensor = lk_tensor_create(dtype, shape);
    if (tensor) memcpy(tensor->data, data, lk_tensor_nbytes(tensor));
    return tensor;
}

lk_tensor *lk_tensor_borrow(lk_dtype dtype, lk_shape shape, void *data)
{
    if (lki_shape_check(dtype, shape)) return NULL;
    return make_view(dtype, shape, data, NULL);
}

lk_tensor *lk_tensor_borrow_strided(lk_dtype dtype, lk_shape shape, const int64_t *stride, void *data)
{
    lk_tensor *tensor = lk_tensor_borrow(dtype, shape, data);
    for (int i = 0; tensor && i < shape.rank; i++) tensor->stride[i] = stride[i];
    return tensor;
}

lk_tensor *lk_tensor_full(lk_dtype dtype, lk_shape shape, double value)
{
    lk_tensor *tensor = lk_tensor_create(dtype, shape);
    if (!tensor) return NULL;
    int64_t count = lk_tensor_count(tensor);
    for (int64_t i = 0; i < count; i++) lki_store(dtype, tensor->data, i, value);
    return tensor;
}

lk_tensor *lki_tensor_over(lk_buffer *buffer, size_t offset_nbytes, lk_dtype dtype, lk_shape shape)
{
    lk_tensor *tensor = make_view(dtype, shape, (char *)lki_buffer_data(buffer) + offset_nbytes, NULL);
    if (tensor) tensor->buffer = lki_buffer_share(buffer);
    return tensor;
}

void lk_tensor_free(lk_tensor *tensor)
{
    if (!tensor) return;
    lki_buffer_release(tensor->buffer);
    lki_free(tensor);
}

int64_t lk_tensor_count(const lk_tensor *tensor)
{
    return lk_shape_count(tensor->shape);
}

size_t lk_tensor_nbytes(const lk_tensor *tensor)
{
    return (size_t)lk_tensor_count(tensor) * lk_dtype_nbytes(tensor->dtype);
}

bool lk_tensor_is_contiguous(const lk_tensor *tensor)
{
    return lki_tensor_is_contiguous(tensor);
}

lk_tensor *lk_tensor_view(const lk_tensor *tensor)
{
    if (!tensor) return NULL;
    lk_tensor *view = LKI_NEW(lk_tensor);
    if (!view) return NULL;
    *view = *tensor;
    lki_buffer_share(view->buffer);
    return view;
}

lk_tensor *lk_tensor_reshape(const lk_tensor *tensor, lk_shape shape)
{
    if (!tensor || lki_shape_check(tensor->dtype, shape)) return NULL;
    if (lk_shape_count(shape) != lk_tensor_count(tensor)) {
        char from[160], to[160];
        return lki_fail_null(LK_ERR_SHAPE, "reshape: cannot view shape %s as %s",
                             lk_shape_format(from, sizeof from, tensor->shape),
                             lk_shape_format(to, sizeof to, shape));
    }
    lk_tensor *view = lk_tensor_is_contiguous(tensor) ? lk_tensor_view(tensor) : lk_tensor_clone(tensor);
    if (!view) return NULL;
    view->shape = shape;
    lki_tensor_set_contiguous(view);
    return view;
}

lk_tensor *lk_tensor_permute(const lk_tensor *tensor, const int *order)
{
    if (!tensor) return NULL;
    unsigned seen = 0;
    for (int i = 0; i < tensor->shape.rank; i++) {
        if (order[i] < 0 || order[i] >= tensor->shape.rank || (seen & (1u << order[i])))
            return lki_fail_null(LK_ERR_INVALID, "permute: the order is no permutation of %d axes",
                                 tensor->shape.rank);
        seen |= 1u << order[i];
    }
    lk_tensor *view = lk_tensor_view(tensor);
    if (!view) return NULL;
    for (int i = 0; i < tensor->shape.rank; i++) {
        view->shape.dim[i] = tensor->shape.dim[order[i]];
        view->stride[i] = tensor->stride[order[i]];
    }
    return view;
}

lk_tensor *lk_tensor_slice(const lk_tensor *tensor, int axis, int64_t begin, int64_t end)
{
    if (!tensor) return NULL;
    if (axis < 0 || axis >= tensor->shape.rank || begin < 0 || begin > end || end > tensor->shape.dim[axis]) {
        char text[160];
        return lki_fail_null(LK_ERR_RANGE, "slice [%lld, %lld) of axis %d is outside of shape %s",
                             (long long)begin, (long long)end, axis,
                             lk_shape_format(text, sizeof text, tensor->shape));
    }
    lk_tensor *view = lk_tensor_view(tensor);
    if (!view) return NULL;
    view->data = (char *)view->data + begin * view->stride[axis] * (int64_t)lk_dtype_nbytes(view->dtype);
    view->shape.dim[axis] = end - begin;
    return view;
}

/* Where the element with flat row-major index `index` lies, in elements from the first. */
static int64_t element_offset(const lk_tensor *tensor, int64_t index)
{
    int64_t offset = 0;
    for (int i = tensor->shape.rank - 1; i >= 0; i--) {
        offset += index % tensor->shape.dim[i] * tensor->stride[i];
        index /= tensor->shape.dim[i];
    }
    return offset;
}

double lk_tensor_get(const lk_tensor *tensor, int64_t index)
{
    return lki_load(tensor->dtype, tensor->data, element_offset(tensor, index));
}

void lk_tensor_set(lk_tensor *tensor, int64_t index, double value)
{
    lki_store(tensor->dtype, tensor->data, element_offset(tensor, index), value);
}

static void copy_elements(lk_tensor *destination, const lk_tensor *source)
{
    int64_t count = lk_tensor_count(source);
    size_t nbytes = lk_dtype_nbytes(source->dtype);
    bool same_dtype = destination->dtype == source->dtype;
    if (same_dtype && lk_tensor_is_contiguous(destination) && lk_tensor_is_contiguous(source)) {
        memmove(destination->data, source->data, (size_t)count * nbytes);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t from = element_offset(source, i), to = element_offset(destination, i);
        if (same_dtype) /* bit for bit: an i64 need not fit in a double */
            memcpy((char *)destination->data + to * (int64_t)nbytes,
                   (const char *)source->data + from * (int64_t)nbytes, nbytes);
        else
            lki_store(destination->dtype, destination->data, to, lki_load(source->dtype, source->data, from));
    }
}

lk_status lk_tensor_copy(lk_tensor *destination, const lk_tensor *source)
{
    if (!lk_shape_equal(destination->shape, source->shape)) {
        char from[160], to[160];
        return lki_fail(LK_ERR_SHAPE, "copy: shape %s does not fit into %s",
                        lk_shape_format(from, sizeof from, source->shape),
                        lk_shape_format(to, sizeof to, destination->shape));
    }
    copy_elements(destination, source);
    return LK_OK;
}

lk_tensor *lk_tensor_clone(const lk_tensor *tensor)
{
    return tensor ? lk_tensor_cast(tensor, tensor->dtype) : NULL;
}

lk_tensor *lk_tensor_cast(const lk_tensor *tensor, lk_dtype dtype)
{
    if (!tensor) return NULL;
    lk_tensor *copy = lk_tensor_create(dtype, tensor->shape);
    if (copy) copy_elements(copy, tensor);
    return copy;
}
