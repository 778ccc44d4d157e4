/* The container of PyTorch's files and of NumPy's .npz: a zip archive whose entries are stored, not packed.
 *
 * The archive is mapped; entries are views of it. Every length and offset in it is checked when it is opened,
 * and an entry's checksum when it is first asked for. Entries that overlap are refused, so that a small file
 * cannot ask for endless work. One thread. */
#ifndef LKI_CHECKPOINT_TORCH_ZIP_H
#define LKI_CHECKPOINT_TORCH_ZIP_H

#include <lockstep/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct lki_zip_item {
    const char *name; /* not terminated */
    size_t name_length;
    uint64_t offset, begin, nbytes; /* of its header, of its bytes */
    uint32_t crc;
    bool is_packed, is_verified;
} lki_zip_item;

typedef struct lki_zip {
    const char *path; /* for messages; borrowed */
    const uint8_t *data;
    size_t nbytes;
    size_t directory, directory_end; /* where the list of entries lies */
    lki_zip_item *items;             /* by name */
    int count;
} lki_zip;

/* Opens an archive that lies in memory, which must outlive it. After a failure there is nothing to close. */
lk_status lki_zip_open(lki_zip *zip, const char *path, const void *data, size_t nbytes);

/* Leaves the first folder out of all names. PyTorch puts what it writes into one folder, of any name. */
lk_status lki_zip_enter_folder(lki_zip *zip);
/* Whether an entry has this name, in any first folder or in none. */
bool lki_zip_has_in_folder(const lki_zip *zip, const char *name);

/* The entry of this name; LK_ERR_FORMAT where there is none or it is damaged. */
lk_status lki_zip_entry(lki_zip *zip, const char *name, const uint8_t **data, size_t *nbytes);
bool lki_zip_has(const lki_zip *zip, const char *name);
void lki_zip_close(lki_zip *zip);

#endif
