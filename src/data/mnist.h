/* Where MNIST's files are, what they must hash to, and what is in them. */
#ifndef LKI_DATA_MNIST_H
#define LKI_DATA_MNIST_H

#include <lockstep/data.h>

#include "data/memory_dataset.h"

typedef struct lki_mnist_file {
    const char *name;   /* without .gz */
    const char *sha256; /* of the unpacked bytes: the gzip framing differs between copies */
} lki_mnist_file;

/* Fetches those of the files that root/MNIST/raw does not have, unpacked, under a lock that other processes
 * wait for. */
lk_status lki_mnist_download(const char *root, const lki_mnist_file *files, int file_count);

/* The bytes of the files: images (samples, 28, 28) and labels (samples), the caller's. */
typedef struct lki_mnist_samples {
    lk_tensor *images, *labels;
} lki_mnist_samples;
lk_status lki_mnist_read(lki_mnist_samples *out, const char *root, const lk_mnist_options *options);

/* The field of the images, scaled as the options say. */
lki_memory_field lki_mnist_images_field(lk_tensor *images, const lk_mnist_options *options);

#endif
