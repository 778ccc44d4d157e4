/* A file's bytes as a buffer that tensors can share: mapped, so nothing is read before it is used, and
 * private, so writing to such a tensor never reaches the file. */
#ifndef LKI_TENSOR_MAPPED_H
#define LKI_TENSOR_MAPPED_H

#include "tensor/buffer.h"

/* *out has one view, the caller's: lki_buffer_release it. An empty file gives an empty buffer. */
lk_status lki_map_file(lk_buffer **out, const char *path);

/* LK_ERR_IO that names a mapped file which was cut since: what was read of it may be zeros. Costs one load
 * when all is well. Any thread. */
lk_status lki_mapped_check(void);

#endif
