/* NumPy's .npy files: one array each.
 *
 * Reading maps the file where it can: an array in C order, of our byte order and aligned, is a view that
 * costs nothing until it is used and whose writes never reach the file; any other is copied into that form.
 * i8, i16, u16, u32 and u64 arrays, which have no dtype here, come as i32 or i64; a number that i64 cannot
 * hold is an error. Versions 1 to 3 of the format. Any thread. */
#ifndef LKI_TENSOR_NPY_H
#define LKI_TENSOR_NPY_H

#include "tensor/buffer.h"

#include <lockstep/tensor.h>

/* NULL with an error that names the file. */
lk_tensor *lki_npy_read(const char *path);
/* The same from bytes in memory; `path` is for messages. */
lk_tensor *lki_npy_from(const char *path, lk_buffer *bytes);

/* Writes atomically. bf16, which NumPy does not have, becomes f32. */
lk_status lki_npy_write(const char *path, const lk_tensor *tensor);
/* What stands before the data: padded with spaces and a newline so that the data starts at a multiple of 64.
 * Returns its length; 512 bytes are enough. */
size_t lki_npy_format_header(char *text, size_t capacity, const lk_tensor *tensor);

#endif
