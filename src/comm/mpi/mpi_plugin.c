#include "comm/mpi/mpi_plugin.h"

#include "base/plugin.h"
#include "comm/comm_services.h"

LKI_PLUGIN_EXPORT(mpi, lki_mpi_functions, lki_comm_services, .create = lki_comm_mpi_create,
                  .meet = lki_comm_mpi_meet);
