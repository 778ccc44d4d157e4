/* Weights that were made smaller after the training, in files: how they are read again. */
#ifndef LKI_CHECKPOINT_SMALL_WEIGHTS_H
#define LKI_CHECKPOINT_SMALL_WEIGHTS_H

#include <lockstep/checkpoint.h>

/* Turns int8 weights back to f32 and leaves out their scales. Takes the dict, and returns it or another one,
 * or NULL; `path` names the file in errors. */
lk_state_dict *lki_widen_weights(lk_state_dict *dict, const char *path);

#endif
