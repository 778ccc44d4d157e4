/* Memory that all ranks of a host reach: the part that lk_comm_share's backends fill. */
#ifndef LKI_COMM_SHM_SHARED_WINDOW_H
#define LKI_COMM_SHM_SHARED_WINDOW_H

#include <lockstep/sys/comm.h>

#include <stdatomic.h>

struct lk_comm_window {
    unsigned char *memory; /* the common block, then one a rank */
    size_t mapped_nbytes;
    size_t common_stride, stride; /* whole pages */
    size_t nbytes;                /* of a rank's block */
    atomic_int user_count;
};

/* Whether [data, data + nbytes) lies in `rank`'s block. */
static inline bool lki_window_holds(const lk_comm_window *window, int rank, const void *data, size_t nbytes)
{
    const unsigned char *block = lk_comm_window_block(window, rank), *begin = data;
    return begin >= block && (size_t)(begin - block) <= window->nbytes &&
           nbytes <= window->nbytes - (size_t)(begin - block);
}

/* What a rank must at least ask for to get any, for tests that have little; 0 is the usual. Below that the
 * copies through slots are as fast, and take one exchange less. */
void lki_set_window_least(size_t nbytes);

/* The shm backend's: see lk_comm_share. */
lk_status lki_shm_share(lk_comm *comm, size_t nbytes, size_t common_nbytes, lk_comm_window **out);

#endif
