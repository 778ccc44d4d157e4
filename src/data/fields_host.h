/* Fields that several processes of one host read: each array is read by one of them, and all see the same
 * memory.
 *
 * Ranks that are forked share the fields of the process they come from, which reads large ones with several
 * threads, or, where HDF5 lets only one at a time in, with short-lived processes. Ranks that were started one
 * by one (tasks of Slurm, mpirun, by hand) meet in a file of /dev/shm ($LOCKSTEP_SHM) that is named after the
 * options and the files' names, sizes and times: each takes the next array that nobody has read, until all
 * are there. The last one takes the file away; what a killed process has left is used, or taken away, by the
 * next. Where any of this cannot be, the process reads for itself. */
#ifndef LKI_DATA_FIELDS_HOST_H
#define LKI_DATA_FIELDS_HOST_H

#include <lockstep/fields.h>

/* What fields in one piece of memory look like: plain numbers, the same in every process. */
typedef struct lki_fields_layout {
    int dims;
    int64_t size[LK_MAX_SPATIAL];
    lk_shape features, targets, target_shape;
    bool same; /* the targets are the features */
    uint64_t targets_offset, nbytes;
    int64_t block_count;  /* what is read at once */
    uint64_t read_nbytes; /* of all blocks, in their files */
    bool independent;     /* several threads can read at once without waiting for each other */
} lki_fields_layout;

/* Where fields come from. `read` is called by several threads, or by a forked process. */
typedef struct lki_fields_source {
    /* Finds out what there is to read, or remembers it: called before any `read`, perhaps again. */
    lk_status (*plan)(void *context, lki_fields_layout *out);
    /* Reads one block to where it belongs in the memory of the fields (aligned to 64 bytes). */
    lk_status (*read)(void *context, int64_t block, void *memory);
    void *context;
} lki_fields_source;

/* The fields of a source that reads these files; NULL on failure, with the sentence of the first block that
 * cannot be read, the same in all processes. */
lk_fields *lki_fields_of_host(const char *path, const lk_fields_options *options,
                              const lki_fields_source *source);

/* Tensors over memory that has been read; the buffer gains views. */
lk_fields *lki_fields_over(const lki_fields_layout *layout, lk_buffer *buffer);

/* Reads together with whoever opens the same file, and with as many forked readers. *out is NULL where the
 * file cannot be used (the folder is full, or has no locks). A path of NULL is memory of this process and its
 * readers alone. */
lk_status lki_fields_share(lk_fields **out, const char *path, const lki_fields_source *source, int readers);

#endif
