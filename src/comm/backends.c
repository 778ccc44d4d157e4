/* The registry of the optional backends: what is not built says so. */
#include "comm/comm.h"

#include "base/status.h"

bool lki_comm_has_gloo(void)
{
#ifdef LOCKSTEP_HAVE_GLOO
    return true;
#else
    return false;
#endif
}

bool lki_comm_has_mpi(void)
{
#ifdef LOCKSTEP_HAVE_MPI
    return true;
#else
    return false;
#endif
}

#ifndef LOCKSTEP_HAVE_GLOO
lk_status lki_comm_gloo_create(lk_comm **out, const lki_gloo_options *options)
{
    (void)options;
    *out = NULL;
    return lki_fail(LK_ERR_UNSUPPORTED, "comm gloo: this lockstep was built without Gloo (libgloo-dev)");
}
#endif

#ifndef LOCKSTEP_HAVE_MPI
lk_status lki_comm_mpi_meet(lk_comm **out, const lki_mpi_meet_options *options)
{
    (void)options;
    return lki_comm_mpi_create(out, NULL);
}

lk_status lki_comm_mpi_create(lk_comm **out, const lki_mpi_options *options)
{
    (void)options;
    *out = NULL;
    return lki_fail(LK_ERR_UNSUPPORTED,
                    "comm mpi: this lockstep was built without MPI (libopenmpi-dev or libmpich-dev)");
}
#endif
