#include "comm/mpi/mpi_plugin.h"

#include "base/plugin.h"
#include "comm/comm_services.h"

#ifdef LOCKSTEP_PLUGIN_MPICH
LKI_PLUGIN_EXPORT(mpich, lki_mpi_functions, lki_comm_services, .create = lki_comm_mpi_create,
                  .meet = lki_comm_mpi_meet, .adopt = lki_comm_mpi_adopt);
#else
LKI_PLUGIN_EXPORT(mpi, lki_mpi_functions, lki_comm_services, .create = lki_comm_mpi_create,
                  .meet = lki_comm_mpi_meet, .adopt = lki_comm_mpi_adopt);
#endif
