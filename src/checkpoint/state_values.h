/* Values in a state dict besides tensors, numbers and strings. */
#ifndef LKI_CHECKPOINT_STATE_VALUES_H
#define LKI_CHECKPOINT_STATE_VALUES_H

#include <lockstep/checkpoint.h>

/* Plain bytes, under one name; bytes of another size are refused. */
lk_status lki_state_dict_put_bytes(lk_state_dict *state, const char *name, const void *data, size_t nbytes);
lk_status lki_state_dict_get_bytes(const lk_state_dict *state, const char *name, void *data, size_t nbytes);
/* A number that cannot be negative. */
lk_status lki_state_dict_get_counter(const lk_state_dict *state, const char *name, int64_t *out);

#endif
