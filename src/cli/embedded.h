/* Files that the command carries in itself: templates of projects, the training backend, the examples. The
 * build makes them into one table. */
#ifndef LKI_CLI_EMBEDDED_H
#define LKI_CLI_EMBEDDED_H

typedef struct lki_embedded_file {
    const char *name; /* "Makefile.in", "backend.c", "examples/01_mnist.c" */
    const char *text;
} lki_embedded_file;

/* Ends with a NULL name. */
extern const lki_embedded_file lki_embedded[];

#endif
