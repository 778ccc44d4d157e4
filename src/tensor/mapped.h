/* A file's bytes as a buffer that tensors can share: mapped, so nothing is read before it is used, and
 * private, so writing to such a tensor never reaches the file. */
#ifndef LKI_TENSOR_MAPPED_H
#define LKI_TENSOR_MAPPED_H

#include "tensor/buffer.h"

#include <stdatomic.h>

/* *out has one view, the caller's: lki_buffer_release it. An empty file gives an empty buffer. */
lk_status lki_map_file(lk_buffer **out, const char *path);

/* The same for a file that is read once and put elsewhere, such as a checkpoint: up to 64 MiB are read into
 * memory, so that the process gets no signal handler. */
lk_status lki_load_file(lk_buffer **out, const char *path);

extern atomic_int lki_mapped_cut_count; /* of mapped files that were cut */
lk_status lki_mapped_name_cut(void);    /* LK_ERR_IO with the name of one */

/* LK_ERR_IO that names a mapped file which was cut since: what was read of it may be zeros. Costs one load
 * when all is well. Any thread. */
static inline lk_status lki_mapped_check(void)
{
    return atomic_load_explicit(&lki_mapped_cut_count, memory_order_relaxed) ? lki_mapped_name_cut() : LK_OK;
}

#endif
