/* The archives in which CIFAR-10 and CIFAR-100 are published: as binary files, and as pickles of Python. */
#ifndef LKI_DATA_CIFAR_H
#define LKI_DATA_CIFAR_H

#include <lockstep/tensor.h>

#define LKI_CIFAR_MIRROR "https://www.cs.toronto.edu/~kriz/"

typedef struct lki_cifar_archive {
    const char *name;   /* for messages */
    const char *folder; /* in the archive */
    const char *file;   /* at the mirror */
    const char *md5;    /* as published */
} lki_cifar_archive;

/* Downloads the archive and unpacks its folder in `root`, under a lock that other processes wait for, unless
 * all of `files`, ended by NULL, are there by then. */
lk_status lki_cifar_download(const lki_cifar_archive *archive, const char *root, const char *const *files);

enum { LKI_CIFAR_PIXELS = 3 * 32 * 32 };

/* Reads a file of the Python version and writes it as the binary version has it: records of a label for each
 * of `keys`, ended by NULL, and of the pixels. */
lk_status lki_cifar_unpickle(lk_buffer **out, const char *path, const char *const *keys);

/* The names of the classes in a file of the Python version, a line each; the caller frees the text. */
lk_status lki_cifar_unpickle_names(char **out, const char *path, const char *key);

#endif
