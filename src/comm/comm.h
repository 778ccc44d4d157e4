/* The backends of <lockstep/sys/comm.h>, and how each one is made. All are freed with lk_comm_free. */
#ifndef LKI_COMM_COMM_H
#define LKI_COMM_COMM_H

#include <lockstep/sys/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A job of one rank. */
lk_status lki_comm_self_create(lk_comm **out);

/* Ranks of one host through shared memory. */
typedef struct lki_shm_options {
    int rank, size;
    int fd;           /* of lki_shm_memory_create, inherited over fork; below 0: by name */
    const char *name; /* where fd is below 0: the same on every rank, different for every comm of the host */
    size_t slot_nbytes; /* of a chunk, 0: chosen from the size; tests make it small. The same on all ranks */
    int64_t join_timeout_ms; /* 0: 60 s */
    int64_t timeout_ms;      /* of a collective; 0: the default */
} lki_shm_options;

/* Memory for ranks that are forked from this process: an fd to hand to lki_comm_shm_create in each of them,
 * closed by the caller when all are. */
lk_status lki_shm_memory_create(int *fd, int size, size_t slot_nbytes);

/* Joins the others; returns when all of them are there. Errors name the ranks that did not come. */
lk_status lki_comm_shm_create(lk_comm **out, const lki_shm_options *options);

#ifdef __cplusplus
}
#endif
#endif
