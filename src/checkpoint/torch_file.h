/* A file of torch.save, opened: the values it describes and the storages that its tensors lie in.
 *
 * Since 1.6 PyTorch writes a zip archive with a pickle and an entry per storage; before, and with
 * _use_new_zipfile_serialization=False, it wrote five pickles and the storages behind them. Both are read.
 * The file is mapped, and storages are views of it. One thread. */
#ifndef LKI_CHECKPOINT_TORCH_FILE_H
#define LKI_CHECKPOINT_TORCH_FILE_H

#include "base/arena.h"
#include "checkpoint/pickle.h"
#include "checkpoint/torch_zip.h"
#include "tensor/buffer.h"

#include <lockstep/tensor.h>

/* A storage of a file before 1.6. */
typedef struct lki_torch_storage {
    const char *key;
    size_t begin, nbytes, element_nbytes;
} lki_torch_storage;

typedef struct lki_torch_file {
    const char *path; /* borrowed */
    lk_buffer *bytes;
    lki_arena arena;
    const lki_pickle *root;
    lki_zip zip;
    int instructions_left; /* that its pickles may have */
    bool is_legacy;
    lki_torch_storage *storages; /* by key */
    int storage_count;
} lki_torch_file;

/* Whether bytes begin as a file of torch.save before 1.6 does. */
bool lki_torch_is_legacy(const uint8_t *bytes, size_t nbytes);

/* In any case followed by lki_torch_file_close. */
lk_status lki_torch_file_open(lki_torch_file *file, const char *path);
void lki_torch_file_close(lki_torch_file *file);

/* Where the bytes of a storage begin in file->bytes, and how many there are. */
lk_status lki_torch_file_storage(lki_torch_file *file, const char *key, size_t *begin, size_t *nbytes);

/* The items[index] of a value if it is of this kind; NULL if not. */
const lki_pickle *lki_pickle_item(const lki_pickle *list, int index, lki_pickle_kind kind);
/* The dtype of "torch FloatStorage"; LK_ERR_UNSUPPORTED if there is none for it. */
lk_status lki_torch_dtype(const lki_torch_file *file, const char *storage, lk_dtype *out);

#endif
