#include "base/job.h"

#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

static atomic_bool others_expected;

void lki_job_expect_others(void)
{
    atomic_store(&others_expected, true);
}

static int number_of(const char *name)
{
    const char *text = name ? getenv(name) : NULL;
    return text ? atoi(text) : 0;
}

bool lki_job_has_others(void)
{
    /* How many processes the job has, and how many of them this host has. Slurm's text is "2(x3),1": it
     * begins with the largest. */
    static const struct {
        const char *all, *here, *also_here;
    } counts[] = {{"WORLD_SIZE", "LOCAL_WORLD_SIZE", NULL},
                  {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL},
                  {"PMI_SIZE", "MPI_LOCALNRANKS", NULL},
                  {"SLURM_NTASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}};
    if (atomic_load(&others_expected)) return true;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (number_of(counts[i].all) <= 1) continue;
        int here = number_of(counts[i].here);
        if (here == 0) here = number_of(counts[i].also_here);
        return here != 1;
    }
    return false;
}
