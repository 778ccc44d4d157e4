/* The tensors of a file that torch.save wrote.
 *
 * Tensors, dicts and lists of them are read; their names are the keys, joined with dots ("model.0.weight"); a
 * tensor that is the whole file has the name "". Numbers and texts beside them are left out. Nothing in the
 * file is run. */
#ifndef LKI_CHECKPOINT_TORCH_LOAD_H
#define LKI_CHECKPOINT_TORCH_LOAD_H

#include <lockstep/checkpoint.h>

/* NULL with an error that names the file. */
lk_state_dict *lki_torch_load(const char *path);

#endif
