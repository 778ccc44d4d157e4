/* Checkpoints: named tensors, and the safetensors files that hold them.
 *
 * A state dict is an ordered list of names and tensors, as PyTorch's, with single numbers and strings beside
 * them, so that everything a run must remember fits in one. It owns its tensors. A file is written
 * atomically: after any failure, a full disk included, the previous file is still there and whole. Every
 * tensor carries a checksum that is verified on load. Python's safetensors reads and writes the same files. A
 * state dict belongs to one thread at a time. */
#ifndef LOCKSTEP_CHECKPOINT_H
#define LOCKSTEP_CHECKPOINT_H

#include <lockstep/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_state_dict lk_state_dict;

lk_state_dict *lk_state_dict_create(void);
void lk_state_dict_free(lk_state_dict *dict);

/* Puts a tensor under a name, replacing what was there. The dict owns it from here on, also when the call
 * fails; NULL is passed through as the failure that made it. To keep using the memory, put a view:
 * lk_tensor_view(tensor). */
lk_status lk_state_dict_put(lk_state_dict *dict, const char *name, lk_tensor *tensor);
/* The tensor under a name, the dict's own; NULL with an error that names the nearest names where there is
 * none. */
lk_tensor *lk_state_dict_get(const lk_state_dict *dict, const char *name);
bool lk_state_dict_has(const lk_state_dict *dict, const char *name);
/* Copies the tensor under `name` into `destination`, whose shape must be the same; dtypes are converted. */
lk_status lk_state_dict_copy_to(const lk_state_dict *dict, const char *name, lk_tensor *destination);

/* Single numbers, kept as tensors without dimensions, and strings, kept in the file's metadata. */
lk_status lk_state_dict_put_i64(lk_state_dict *dict, const char *name, int64_t value);
lk_status lk_state_dict_put_f64(lk_state_dict *dict, const char *name, double value);
lk_status lk_state_dict_put_string(lk_state_dict *dict, const char *name, const char *value);
lk_status lk_state_dict_get_i64(const lk_state_dict *dict, const char *name, int64_t *out);
lk_status lk_state_dict_get_f64(const lk_state_dict *dict, const char *name, double *out);
/* The dict's own text; NULL with an error where there is none. */
const char *lk_state_dict_get_string(const lk_state_dict *dict, const char *name);

/* The tensors in order, the single numbers among them. */
int64_t lk_state_dict_count(const lk_state_dict *dict);
const char *lk_state_dict_name(const lk_state_dict *dict, int64_t index);
lk_tensor *lk_state_dict_tensor(const lk_state_dict *dict, int64_t index);
/* The strings in order. */
int64_t lk_state_dict_string_count(const lk_state_dict *dict);
const char *lk_state_dict_string_name(const lk_state_dict *dict, int64_t index);

/* Writes and reads a safetensors file. Reading maps the file: tensors are views of it that can be written to
 * without touching it. Returns NULL with an error that names the file and the tensor. */
lk_status lk_save_safetensors(const char *path, const lk_state_dict *dict);
lk_state_dict *lk_load_safetensors(const char *path);

/* The content hash of the tensors: SHA-256 over names (sorted), dtypes, shapes and bytes, as 64 hex digits.
 * It does not depend on the order of the names, nor on strings, nor on the file they came from. */
enum { LK_HASH_LENGTH = 64 };
lk_status lk_weights_hash(const lk_state_dict *dict, char hash[LK_HASH_LENGTH + 1]);

#ifdef __cplusplus
}
#endif
#endif
