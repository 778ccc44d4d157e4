/* Memory that several tensors share, freed with the last of them. The count is atomic. */
#ifndef LKI_TENSOR_BUFFER_H
#define LKI_TENSOR_BUFFER_H

#include <lockstep/tensor.h>

#include <stddef.h>

/* `release` frees `data` when the last view goes; NULL means it came from lki_calloc_aligned. */
lk_buffer *lki_buffer_create(size_t nbytes, const char *what);
lk_buffer *lki_buffer_adopt(void *data, size_t nbytes, void (*release)(void *data, void *context),
                            void *context);
lk_buffer *lki_buffer_share(lk_buffer *buffer);
void lki_buffer_release(lk_buffer *buffer);
void *lki_buffer_data(const lk_buffer *buffer);
size_t lki_buffer_nbytes(const lk_buffer *buffer);

/* A contiguous tensor over part of a buffer, which gains a view. */
lk_tensor *lki_tensor_over(lk_buffer *buffer, size_t offset_nbytes, lk_dtype dtype, lk_shape shape);

/* Fills in row-major strides for the tensor's shape. */
void lki_tensor_set_contiguous(lk_tensor *tensor);

/* LK_OK for a shape whose dimensions are not negative and whose bytes fit in memory's address range. */
lk_status lki_shape_check(lk_dtype dtype, lk_shape shape);

#endif
