/* The archives in which CIFAR-10 and CIFAR-100 are published. */
#ifndef LKI_DATA_CIFAR_H
#define LKI_DATA_CIFAR_H

#include <lockstep/status.h>

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

#endif
