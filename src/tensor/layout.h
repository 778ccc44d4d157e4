/* Sizes and shapes, for code that asks for them at every batch: the public functions of the same names
 * without a call. */
#ifndef LKI_TENSOR_LAYOUT_H
#define LKI_TENSOR_LAYOUT_H

#include <lockstep/tensor.h>

static inline size_t lki_dtype_nbytes(lk_dtype dtype)
{
    static const size_t sizes[] = {
#define X(symbol, name, nbytes) nbytes,
        LK_DTYPE_LIST(X)
#undef X
    };
    return (unsigned)dtype < sizeof sizes / sizeof *sizes ? sizes[dtype] : 0; /* 0: there is no such dtype */
}

static inline bool lki_dtype_is_float(lk_dtype dtype)
{
    return dtype == LK_F32 || dtype == LK_F64 || dtype == LK_BF16 || dtype == LK_F16;
}

static inline int64_t lki_shape_count(const lk_shape *shape)
{
    int64_t count = 1;
    for (int i = 0; i < shape->rank; i++) count *= shape->dim[i];
    return count;
}

static inline bool lki_shape_equal(const lk_shape *a, const lk_shape *b)
{
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

/* Whether the elements lie one after the other, the last axis fastest. */
static inline bool lki_tensor_is_contiguous(const lk_tensor *tensor)
{
    int64_t expected = 1;
    for (int i = tensor->shape.rank - 1; i >= 0; i--) {
        if (tensor->shape.dim[i] != 1 && tensor->stride[i] != expected) return false;
        expected *= tensor->shape.dim[i];
    }
    return true;
}

#endif
