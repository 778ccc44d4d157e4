/* IDX, MNIST's file format: a big-endian magic number (dtype and rank), the dimensions, then the bytes. */
#ifndef LKI_DATA_IDX_H
#define LKI_DATA_IDX_H

#include <lockstep/tensor.h>

/* A u8 tensor of `rank` dimensions over the file's memory (mapped, or unpacked from gzip). Errors name the
 * file and the offset. */
lk_status lki_idx_read(lk_tensor **out, const char *path, int rank);

#endif
