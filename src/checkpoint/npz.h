/* NumPy's .npz files: a zip archive of .npy files. */
#ifndef LKI_CHECKPOINT_NPZ_H
#define LKI_CHECKPOINT_NPZ_H

#include "tensor/buffer.h"

#include <lockstep/checkpoint.h>

/* The arrays of an archive in memory, which they keep; `path` is for messages. NULL with an error. What
 * savez_compressed wrote is refused. */
lk_state_dict *lki_npz_load(const char *path, lk_buffer *bytes);

#endif
