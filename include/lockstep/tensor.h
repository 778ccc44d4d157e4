/* Tensors: a dtype, a shape and strides over memory that may be shared.
 *
 * Life: a tensor is a view. Its memory belongs to a buffer that counts its views, or to the
 * caller (lk_tensor_borrow). The caller frees every lk_tensor * that a function returns, unless
 * the function says otherwise. Freeing the last view frees the memory.
 *
 * Threads: any number of threads may read a tensor. Views may be created and freed on any thread.
 */
#ifndef LOCKSTEP_TENSOR_H
#define LOCKSTEP_TENSOR_H

#include <lockstep/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(symbol, name, nbytes) */
#define LK_DTYPE_LIST(X)                                                                                     \
    X(LK_F32, "f32", 4)                                                                                      \
    X(LK_F64, "f64", 8)                                                                                      \
    X(LK_BF16, "bf16", 2)                                                                                    \
    X(LK_F16, "f16", 2)                                                                                      \
    X(LK_I64, "i64", 8)                                                                                      \
    X(LK_I32, "i32", 4)                                                                                      \
    X(LK_U8, "u8", 1)                                                                                        \
    X(LK_BOOL, "bool", 1)

typedef enum lk_dtype {
#define X(symbol, name, nbytes) symbol,
    LK_DTYPE_LIST(X)
#undef X
} lk_dtype;

enum { LK_MAX_DIMS = 8 };

typedef struct lk_shape {
    int rank;
    int64_t dim[LK_MAX_DIMS];
} lk_shape;

/* LK_SHAPE(32, 1, 28, 28). The shape of a scalar is lk_scalar_shape(). */
#define LK_SHAPE(...) ((lk_shape){(int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), {__VA_ARGS__}})

typedef struct lk_buffer lk_buffer;

typedef struct lk_tensor {
    lk_dtype dtype;
    lk_shape shape;
    int64_t stride[LK_MAX_DIMS]; /* in elements */
    void *data;                  /* the first element */
    lk_buffer *buffer;           /* the owner of the memory; NULL if it is borrowed */
} lk_tensor;

size_t lk_dtype_nbytes(lk_dtype dtype);
const char *lk_dtype_name(lk_dtype dtype);
bool lk_dtype_is_float(lk_dtype dtype);
/* Reads "f32" or PyTorch's "float32" and "torch.float32". Otherwise fails with LK_ERR_NOT_FOUND,
 * and the error lists the known names. */
lk_status lk_dtype_parse(lk_dtype *out, const char *name);

lk_shape lk_scalar_shape(void);
int64_t lk_shape_count(lk_shape shape);
bool lk_shape_equal(lk_shape a, lk_shape b);
/* Writes "(32, 1, 28, 28)", as PyTorch does, and returns `text`. 128 bytes are enough for any
 * shape that fits into memory. */
const char *lk_shape_format(char *text, size_t capacity, lk_shape shape);

/* Return a new tensor on the host: zeroed; copied from an array of that dtype; over memory of the
 * caller, which must outlive it; or filled with a value. NULL on failure. */
lk_tensor *lk_tensor_create(lk_dtype dtype, lk_shape shape);
lk_tensor *lk_tensor_from(lk_dtype dtype, lk_shape shape, const void *data);
lk_tensor *lk_tensor_borrow(lk_dtype dtype, lk_shape shape, void *data);
/* The same over memory of any layout: element (i, j, ...) lies at
 * data[i * stride[0] + j * stride[1] + ...]. A column-major array (Fortran's a(n, m)) is a
 * contiguous tensor (m, n), or, with the strides {1, n}, a tensor (n, m) that is not contiguous.
 * Strides may be negative or 0. */
lk_tensor *lk_tensor_borrow_strided(lk_dtype dtype, lk_shape shape, const int64_t *stride, void *data);
lk_tensor *lk_tensor_full(lk_dtype dtype, lk_shape shape, double value);
/* Frees this view. NULL is allowed. */
void lk_tensor_free(lk_tensor *tensor);

int64_t lk_tensor_count(const lk_tensor *tensor);
size_t lk_tensor_nbytes(const lk_tensor *tensor);
bool lk_tensor_is_contiguous(const lk_tensor *tensor);

/* Return a view that shares memory with `tensor`. A reshape that needs a copy makes one. NULL on
 * failure. */
lk_tensor *lk_tensor_view(const lk_tensor *tensor);
lk_tensor *lk_tensor_reshape(const lk_tensor *tensor, lk_shape shape);
lk_tensor *lk_tensor_permute(const lk_tensor *tensor, const int *order);
lk_tensor *lk_tensor_slice(const lk_tensor *tensor, int axis, int64_t begin, int64_t end);

/* Return a contiguous copy, in the same or in another dtype. NULL on failure. */
lk_tensor *lk_tensor_clone(const lk_tensor *tensor);
lk_tensor *lk_tensor_cast(const lk_tensor *tensor, lk_dtype dtype);
/* Copies the values. Shapes must be equal; dtypes are converted. */
lk_status lk_tensor_copy(lk_tensor *destination, const lk_tensor *source);

/* Read and write one element of any dtype, by its flat row-major index. */
double lk_tensor_get(const lk_tensor *tensor, int64_t index);
void lk_tensor_set(lk_tensor *tensor, int64_t index, double value);

#ifdef __cplusplus
}
#endif
#endif
