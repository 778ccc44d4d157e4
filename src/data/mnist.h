/* Where MNIST's files are, what they must hash to, and what is in them. */
#ifndef LKI_DATA_MNIST_H
#define LKI_DATA_MNIST_H

#include <lockstep/data.h>

#include "data/fetch.h"
#include "data/memory_dataset.h"

/* A data set in MNIST's files: MNIST itself, and others with other pictures. */
typedef struct lki_mnist_kind {
    const char *name;    /* for messages, and of the folder in the root */
    const char *mirrors; /* separated by spaces */
    bool is_mnist;       /* LOCKSTEP_MNIST_MIRRORS replaces the mirrors, of others LOCKSTEP_DATASET_MIRRORS */
    lki_published files[4]; /* images and labels for testing, then for training */
    const char *classes[10];
} lki_mnist_kind;
extern const lki_mnist_kind lki_mnist_itself;

/* The path of a file of this folder without its .gz; the caller frees it. */
char *lki_mnist_unpacked(const char *folder, const lki_published *file);

/* Fetches a file that root/NAME/raw does not have, unpacked, under a lock that other processes wait for. */
lk_status lki_mnist_download(const char *root, const lki_mnist_kind *kind, const lki_published *file);

/* The bytes of the files: images (samples, 28, 28) and labels (samples), the caller's. */
typedef struct lki_mnist_samples {
    lk_tensor *images, *labels;
} lki_mnist_samples;
lk_status lki_mnist_read(lki_mnist_samples *out, const lki_mnist_kind *kind, const char *root,
                         const lk_mnist_options *options);

/* The field of the images, scaled as the options say. */
lki_memory_field lki_mnist_images_field(lk_tensor *images, const lk_mnist_options *options);

#endif
