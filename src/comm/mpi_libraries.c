/* MPI has no common ABI: a handle of Open MPI is a pointer, one of MPICH a number. So there is a plug-in per
 * library, and a process must get the one whose library it has loaded: the other one would bring a second MPI
 * into it. */
#define _GNU_SOURCE /* RTLD_DEFAULT, dl_iterate_phdr */
#include "comm/comm.h"

#include "base/plugin.h"
#include "base/status.h"
#include "comm/comm_services.h"
#include "comm/mpi/mpi_plugin.h"

#include <lockstep/mpi.h>

#include <dlfcn.h>
#include <link.h>
#include <string.h>

/* Over the MPI that CMake has found. */
lki_plugin lki_mpi = {
    .name = "mpi",
    .library = "MPI",
    .package = "libopenmpi-dev",
    .functions_nbytes = sizeof(lki_mpi_functions),
    .services = &lki_comm_services_here,
    .services_nbytes = sizeof lki_comm_services_here,
    .shows_symbols = true,
};

/* Over MPICH, if that was another one. */
lki_plugin lki_mpich = {
    .name = "mpich",
    .library = "MPICH",
    .package = "libmpich-dev",
    .functions_nbytes = sizeof(lki_mpi_functions),
    .services = &lki_comm_services_here,
    .services_nbytes = sizeof lki_comm_services_here,
    .shows_symbols = true,
};

#ifdef LOCKSTEP_MPI_IS_MPICH
static const lk_mpi_library first_choice = LK_MPI_MPICH;
#else
static const lk_mpi_library first_choice = LK_MPI_OPEN_MPI;
#endif

/* Of an object that the process has loaded for itself alone, as Python's modules are. */
static int note_library(struct dl_phdr_info *info, size_t nbytes, void *context)
{
    lk_mpi_library *found = context;
    const char *slash = strrchr(info->dlpi_name, '/'), *name = slash ? slash + 1 : info->dlpi_name;
    (void)nbytes;
    if (strncmp(name, "libmpich.so", 11) == 0 || strncmp(name, "libmpi.so.12", 12) == 0)
        *found = LK_MPI_MPICH;
    else if (strncmp(name, "libmpi.so", 9) == 0)
        *found = LK_MPI_OPEN_MPI;
    return *found != LK_MPI_LOADED;
}

/* LK_MPI_LOADED: none is. */
static lk_mpi_library loaded_library(void)
{
    lk_mpi_library found = LK_MPI_LOADED;
    if (dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world")) return LK_MPI_OPEN_MPI;
    if (dlsym(RTLD_DEFAULT, "MPIR_C_MPI_UNWEIGHTED")) return LK_MPI_MPICH;
    dl_iterate_phdr(note_library, &found);
    return found;
}

static const lki_mpi_functions *open_library(lk_mpi_library library)
{
    if (library == LK_MPI_LOADED) library = first_choice;
    return lki_plugin_open(library == first_choice ? &lki_mpi : &lki_mpich);
}

bool lki_comm_has_mpi(void)
{
    return open_library(loaded_library()) != NULL;
}

lk_status lki_comm_mpi_create(lk_comm **out, const lki_mpi_options *options)
{
    const lki_mpi_functions *mpi = open_library(loaded_library());
    *out = NULL;
    return mpi ? mpi->create(out, options) : lki_fail_prefix(LK_ERR_UNSUPPORTED, "comm mpi");
}

lk_status lki_comm_mpi_meet(lk_comm **out, const lki_mpi_meet_options *options)
{
    const lki_mpi_functions *mpi = open_library(loaded_library());
    *out = NULL;
    return mpi ? mpi->meet(out, options) : lki_fail_prefix(LK_ERR_UNSUPPORTED, "comm mpi");
}

static lk_comm *fail_to_adopt(void)
{
    lki_fail_prefix(LK_ERR_UNSUPPORTED, "lk_comm_from_mpi");
    return NULL;
}

lk_comm *lk_comm_from_mpi_handle(int handle, lk_mpi_library library)
{
    lk_comm *comm = NULL;
    lk_mpi_library loaded = loaded_library();
    if ((int)library < LK_MPI_LOADED || library > LK_MPI_MPICH)
        return lki_fail_null(LK_ERR_INVALID, "lk_comm_from_mpi: there is no MPI library number %d",
                             (int)library);
    if (library == LK_MPI_LOADED) library = loaded;
    if (library == LK_MPI_LOADED)
        return lki_fail_null(
            LK_ERR_INVALID,
            "lk_comm_from_mpi: this process has loaded no MPI that Lockstep knows (Open MPI, MPICH)");
    const lki_mpi_functions *mpi = open_library(library);
    if (!mpi) return fail_to_adopt();
    return mpi->adopt(&comm, handle) ? NULL : comm;
}
