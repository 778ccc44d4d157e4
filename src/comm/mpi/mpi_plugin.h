/* liblockstep_mpi.so, over the MPI that CMake finds, and liblockstep_mpich.so, over MPICH beside it:
 * base/plugin.h. Their services are comm/comm_services.h. */
#ifndef LKI_COMM_MPI_MPI_PLUGIN_H
#define LKI_COMM_MPI_MPI_PLUGIN_H

#include "base/plugin.h"
#include "comm/comm.h"

typedef struct lki_mpi_functions {
    __typeof__(&lki_comm_mpi_create) create;
    __typeof__(&lki_comm_mpi_meet) meet;
    __typeof__(&lki_comm_mpi_adopt) adopt;
} lki_mpi_functions;

extern lki_plugin lki_mpi, lki_mpich; /* the library's side; a process opens one of them */

#endif
