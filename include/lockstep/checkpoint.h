/* Checkpoints: named tensors, and the safetensors files that hold them.
 *
 * A state dict is an ordered list of names and tensors, as in PyTorch. It can also hold numbers
 * and strings, so that everything a run must remember fits into one dict. A file is written
 * atomically: after any failure, a full disk included, the previous file is still there and
 * intact. Every tensor has a checksum, which is verified when the file is loaded. Python's
 * safetensors reads and writes the same files.
 *
 * Life: a state dict owns its tensors; the caller frees the dict. Threads: one thread at a time
 * may use a dict. */
#ifndef LOCKSTEP_CHECKPOINT_H
#define LOCKSTEP_CHECKPOINT_H

#include <lockstep/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_state_dict lk_state_dict;

/* Returns an empty dict, or NULL if memory runs out. */
lk_state_dict *lk_state_dict_create(void);
void lk_state_dict_free(lk_state_dict *dict);

/* Stores a tensor under a name and replaces what was there. The dict owns the tensor from the
 * call on, also if the call fails. If the tensor is NULL, the call fails with the error that made
 * it NULL. To keep using the memory, store a view: lk_tensor_view(tensor). */
lk_status lk_state_dict_put(lk_state_dict *dict, const char *name, lk_tensor *tensor);
/* Returns the tensor of a name, which belongs to the dict. If there is none, returns NULL, and
 * the error suggests similar names. */
lk_tensor *lk_state_dict_get(const lk_state_dict *dict, const char *name);
bool lk_state_dict_has(const lk_state_dict *dict, const char *name);
/* Copies a tensor into `destination`, which must have the same shape. Dtypes are converted. */
lk_status lk_state_dict_copy_to(const lk_state_dict *dict, const char *name, lk_tensor *destination);

/* Numbers are stored as tensors without dimensions, strings in the metadata of the file. Getting
 * a name that does not exist fails with LK_ERR_NOT_FOUND. */
lk_status lk_state_dict_put_i64(lk_state_dict *dict, const char *name, int64_t value);
lk_status lk_state_dict_put_f64(lk_state_dict *dict, const char *name, double value);
lk_status lk_state_dict_put_string(lk_state_dict *dict, const char *name, const char *value);
lk_status lk_state_dict_get_i64(const lk_state_dict *dict, const char *name, int64_t *out);
lk_status lk_state_dict_get_f64(const lk_state_dict *dict, const char *name, double *out);
/* Returns a string, which belongs to the dict, or NULL with an error if there is none. */
const char *lk_state_dict_get_string(const lk_state_dict *dict, const char *name);

/* The tensors in their order, including the numbers. */
int64_t lk_state_dict_count(const lk_state_dict *dict);
const char *lk_state_dict_name(const lk_state_dict *dict, int64_t index);
lk_tensor *lk_state_dict_tensor(const lk_state_dict *dict, int64_t index);
/* The strings in their order. */
int64_t lk_state_dict_string_count(const lk_state_dict *dict);
const char *lk_state_dict_string_name(const lk_state_dict *dict, int64_t index);

/* Writes a safetensors file. On failure the error names the file and the tensor. */
lk_status lk_save_safetensors(const char *path, const lk_state_dict *dict);
/* Reads a safetensors file and returns a dict, which the caller frees. The file is mapped:
 * writing to the tensors does not change it. Returns NULL with an error that names the file and
 * the tensor. */
lk_state_dict *lk_load_safetensors(const char *path);

/* Reads a file of weights, whoever wrote it: a safetensors file, what torch.save wrote (since 1.6
 * or before) or what numpy.savez wrote. The content tells which. Nothing in the file is run: a
 * pickle that asks for more than tensors and plain values is refused.
 *
 * Of PyTorch's files the dict has the weights: the state dict that the file is, or the one under
 * "state_dict", "model_state_dict" or "model". The prefixes "_orig_mod." and "module." of
 * torch.compile and DataParallel are taken off. The caller frees the dict. Returns NULL with an
 * error that names the file. */
lk_state_dict *lk_load_checkpoint(const char *path);
/* Writes a file that torch.load reads, also with weights_only=True: an OrderedDict of the tensors,
 * with the same names, order, dtypes and values. Strings are left out. The file appears
 * atomically. */
lk_status lk_save_pth(const char *path, const lk_state_dict *dict);
/* Writes a file that numpy.load reads. bf16, which NumPy does not have, becomes f32. Strings are
 * left out. */
lk_status lk_save_npz(const char *path, const lk_state_dict *dict);

/* How weights are rounded after the training, to make files smaller: half of f32 or a quarter. */
typedef enum lk_weight_format { LK_WEIGHTS_BF16 = 1, LK_WEIGHTS_INT8 = 2 } lk_weight_format;
/* Returns a dict whose weights are rounded, for one of the functions above to write. Only tensors
 * of two or more dimensions change; biases and statistics stay. int8 has a scale for each row, in
 * "NAME.int8_scale"; a row holds 128 plus the numbers from -127 to 127, as u8. lk_load_checkpoint
 * turns int8 weights back into f32, so models, runs and predictors read such a file like any
 * other. The caller frees the dict. */
lk_state_dict *lk_state_dict_shrink(const lk_state_dict *dict, lk_weight_format format);

enum { LK_HASH_LENGTH = 64 };
/* Computes the content hash of the tensors: SHA-256 over sorted names, dtypes, shapes and bytes,
 * as 64 hex digits. It depends neither on the order of the names nor on strings nor on the file. */
lk_status lk_weights_hash(const lk_state_dict *dict, char hash[LK_HASH_LENGTH + 1]);

#ifdef __cplusplus
}
#endif
#endif
