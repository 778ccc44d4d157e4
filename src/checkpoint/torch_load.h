/* The tensors of a file that torch.save wrote. Nothing in the file is run. */
#ifndef LKI_CHECKPOINT_TORCH_LOAD_H
#define LKI_CHECKPOINT_TORCH_LOAD_H

#include <lockstep/checkpoint.h>

/* Tensors, and dicts and lists of them; their names are the keys, joined with dots ("model.0.weight"); a
 * tensor that is the whole file has the name "". Numbers and texts beside them are left out. NULL with an
 * error that names the file. */
lk_state_dict *lki_torch_load(const char *path);

/* The weights of a model: the file itself or the dict under "state_dict", "model_state_dict" or "model" in
 * it.
 * "_orig_mod." (torch.compile) is taken out of the names, and "module." (DataParallel) from their beginning,
 * if all have it. Values that are no tensors are left out. The string LKI_TORCH_ORIGIN marks the dict. NULL
 * with an error that names the file. */
lk_state_dict *lki_torch_load_weights(const char *path);

#define LKI_TORCH_ORIGIN "torch.save"

#endif
