/* Where MNIST's files are and what they must hash to. */
#ifndef LKI_DATA_MNIST_H
#define LKI_DATA_MNIST_H

#include <lockstep/status.h>

typedef struct lki_mnist_file {
    const char *name;   /* without .gz */
    const char *sha256; /* of the unpacked bytes: the gzip framing differs between copies */
} lki_mnist_file;

/* Fetches those of the files that root/MNIST/raw does not have, unpacked, under a lock that other processes
 * wait for. */
lk_status lki_mnist_download(const char *root, const lki_mnist_file *files, int file_count);

#endif
