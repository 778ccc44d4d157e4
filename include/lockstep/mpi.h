/* A comm over the communicator of your own MPI program, for training inside of it.
 *
 * Split a communicator off for the ranks that train, call lk_comm_from_mpi on it, and pass the
 * result as .comm of lk_step. Free the step first, then the comm.
 *
 * MPI belongs to the program: Lockstep neither initialises nor finalises it. The communicator is
 * duplicated, so messages of the two never meet, and may be any intracommunicator.
 *
 * Open MPI and MPICH are supported, each by a plug-in of its own. lk_comm_from_mpi knows which of
 * them the program was compiled with; a Fortran handle gets the one that the process has loaded.
 *
 * Life: free the comm before MPI_Finalize. Creating and freeing it are collective calls of the
 * communicator's ranks. Threads: a comm belongs to one thread. Below MPI_THREAD_SERIALIZED that
 * must be the main thread; calls on another one fail with LK_ERR_INVALID. */
#ifndef LOCKSTEP_MPI_H
#define LOCKSTEP_MPI_H

#include <lockstep/sys/comm.h>

/* Compilers of MPI find it; without them lk_comm_from_mpi_handle is all there is. */
#if defined(__has_include)
#if __has_include(<mpi.h>)
#include <mpi.h>
#define LK_HAVE_MPI_H 1
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lk_mpi_library {
    LK_MPI_LOADED, /* the one that the process has loaded */
    LK_MPI_OPEN_MPI,
    LK_MPI_MPICH, /* and those that share its ABI */
} lk_mpi_library;

/* Returns a comm over a duplicate of the communicator with this Fortran handle (MPI_Comm_c2f, or
 * comm%MPI_VAL of mpi_f08). NULL if MPI is not initialised, if the handle is MPI_COMM_NULL or an
 * intercommunicator, or if Lockstep was built without this MPI. */
lk_comm *lk_comm_from_mpi_handle(int handle, lk_mpi_library library);

#ifdef LK_HAVE_MPI_H
/* The same from C. */
static inline lk_comm *lk_comm_from_mpi(MPI_Comm comm)
{
#if defined(OPEN_MPI)
    return lk_comm_from_mpi_handle((int)MPI_Comm_c2f(comm), LK_MPI_OPEN_MPI);
#elif defined(MPICH_VERSION)
    return lk_comm_from_mpi_handle((int)MPI_Comm_c2f(comm), LK_MPI_MPICH);
#else
    return lk_comm_from_mpi_handle((int)MPI_Comm_c2f(comm), LK_MPI_LOADED);
#endif
}
#endif

#ifdef __cplusplus
}
#endif
#endif
