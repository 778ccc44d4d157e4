/* What mpi.c, mpi_meet.c and mpi_host.c share. */
#ifndef LKI_COMM_MPI_MPI_INTERNAL_H
#define LKI_COMM_MPI_MPI_INTERNAL_H

#include "comm/mpi/mpi_rollcall.h"

/* Starts MPI in this process, once. */
lk_status lki_mpi_initialise(void);
bool lki_mpi_is_initialised(void);
lk_status lki_mpi_fail(int code, const char *what);

static inline lk_status lki_mpi_check(int code, const char *what)
{
    return code == MPI_SUCCESS ? LK_OK : lki_mpi_fail(code, what);
}

/* Fails if MPI does not allow this thread to call it. `what` is the call, for the sentence. */
lk_status lki_mpi_check_thread(const char *what);

typedef struct lki_mpi_wrapping {
    int64_t timeout_ms;
    bool is_guest; /* MPI belongs to the program: its thread level is respected, and it may end first */
} lki_mpi_wrapping;

/* A comm over `comm`, which it owns from here on, also when it fails. */
lk_status lki_mpi_wrap(lk_comm **out, MPI_Comm comm, const lki_mpi_wrapping *wrapping);

#endif
