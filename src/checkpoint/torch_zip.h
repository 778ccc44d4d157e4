/* The container of PyTorch's files: a zip archive whose entries are stored, not packed.
 *
 * The archive is mapped; entries are views of it. Every length and offset in it is checked, and an entry's
 * checksum when it is asked for. One thread. */
#ifndef LKI_CHECKPOINT_TORCH_ZIP_H
#define LKI_CHECKPOINT_TORCH_ZIP_H

#include <lockstep/status.h>

#include <stddef.h>
#include <stdint.h>

typedef struct lki_zip {
    const char *path; /* for messages; borrowed */
    const uint8_t *data;
    size_t nbytes;
    size_t directory, directory_end; /* where the list of entries lies */
} lki_zip;

/* Opens an archive that lies in memory, which must outlive it. */
lk_status lki_zip_open(lki_zip *zip, const char *path, const void *data, size_t nbytes);

/* The entry whose name is `name` below the archive's one folder ("data.pkl", "data/0"); LK_ERR_FORMAT where
 * there is none or it is damaged. */
lk_status lki_zip_entry(const lki_zip *zip, const char *name, const uint8_t **data, size_t *nbytes);

#endif
