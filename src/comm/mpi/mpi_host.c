/* A comm over a communicator of a program that has MPI itself. MPI stays that program's. */
#include "comm/mpi/mpi_internal.h"
#include "comm/comm.h"

#include "base/status.h"

static lk_status check_initialised(void)
{
    int initialised = 0, finalised = 0;
    MPI_Initialized(&initialised);
    MPI_Finalized(&finalised);
    if (!initialised)
        return lki_fail(LK_ERR_INVALID,
                        "MPI is not initialised: call MPI_Init_thread before lk_comm_from_mpi");
    if (finalised) return lki_fail(LK_ERR_INVALID, "MPI is finalised already: no comm can be made of it");
    return LK_OK;
}

lk_status lki_mpi_check_thread(const char *what)
{
    int level = MPI_THREAD_SINGLE, is_main = 0;
    LKI_TRY(lki_mpi_check(MPI_Query_thread(&level), "MPI_Query_thread"));
    if (level >= MPI_THREAD_SERIALIZED) return LK_OK;
    LKI_TRY(lki_mpi_check(MPI_Is_thread_main(&is_main), "MPI_Is_thread_main"));
    if (is_main) return LK_OK;
    return lki_fail(LK_ERR_INVALID,
                    "%s: MPI was initialised with %s, so only the main thread may use the comm: ask "
                    "MPI_Init_thread for MPI_THREAD_SERIALIZED",
                    what, level == MPI_THREAD_SINGLE ? "MPI_THREAD_SINGLE" : "MPI_THREAD_FUNNELED");
}

lk_status lki_comm_mpi_adopt(lk_comm **out, int handle)
{
    MPI_Comm ours;
    int is_between = 0;
    *out = NULL;
    LKI_TRY(check_initialised());
    MPI_Comm theirs = MPI_Comm_f2c((MPI_Fint)handle);
    if (theirs == MPI_COMM_NULL)
        return lki_fail(LK_ERR_INVALID,
                        "lk_comm_from_mpi: the communicator is MPI_COMM_NULL: only its members "
                        "make a comm of it");
    LKI_TRY(lki_mpi_check_thread("lk_comm_from_mpi"));
    LKI_TRY(lki_mpi_check(MPI_Comm_test_inter(theirs, &is_between), "MPI_Comm_test_inter"));
    if (is_between)
        return lki_fail(LK_ERR_INVALID,
                        "lk_comm_from_mpi: an intercommunicator has two groups of ranks: give "
                        "what MPI_Intercomm_merge makes of it");
    LKI_TRY(lki_mpi_check(MPI_Comm_dup(theirs, &ours), "MPI_Comm_dup"));
    return lki_mpi_wrap(out, ours, &(lki_mpi_wrapping){.is_guest = true});
}
