/* liblockstep_mpi.so: base/plugin.h. Its services are comm/comm_services.h. */
#ifndef LKI_COMM_MPI_MPI_PLUGIN_H
#define LKI_COMM_MPI_MPI_PLUGIN_H

#include "base/plugin.h"
#include "comm/comm.h"

typedef struct lki_mpi_functions {
    __typeof__(&lki_comm_mpi_create) create;
    __typeof__(&lki_comm_mpi_meet) meet;
} lki_mpi_functions;

extern lki_plugin lki_mpi; /* the library's side */

#endif
