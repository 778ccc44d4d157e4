/* Files of published data sets: downloaded from the first mirror that has the right bytes. */
#ifndef LKI_DATA_FETCH_H
#define LKI_DATA_FETCH_H

#include <lockstep/status.h>
#include <lockstep/tensor.h>

#include <stdbool.h>

typedef struct lki_published {
    const char *name;   /* at the mirror: "train-images-idx3-ubyte.gz" */
    const char *digest; /* hexadecimal; of 64 digits it is the SHA-256, of 32 the MD5 */
    bool of_unpacked; /* the digest is that of the unpacked bytes: the gzip framing differs between copies */
} lki_published;

/* Waits until no other process downloads into `folder`, which it makes. Closing *out ends the turn. */
lk_status lki_fetch_lock(int *out, const char *data_set, const char *folder);

/* Downloads a gzipped file from one of the mirrors, addresses separated by spaces, and unpacks it into
 * memory. `folder` takes it while it arrives. `data_set` is for messages. */
lk_status lki_fetch(lk_buffer **out, const char *data_set, const char *mirrors, const char *folder,
                    const lki_published *file);

#endif
