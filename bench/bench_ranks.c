/* The same as bench_step.c on several ranks of this machine, one thread a rank.
 *
 *     build/bench/bench_ranks WORKLOAD [SECONDS [RANKS]]     prints what bench_step does, of rank 0
 *
 * bench/also_ranks shows one and two of them beside PyTorch's DistributedDataParallel. */
#include "step_timer.h"

#include "base/status.h"
#include "launch/connect.h"

typedef struct benchmark {
    const workload *workload;
    double seconds;
} benchmark;

static int agree(lk_comm *comm, int block)
{
    int32_t said = block;
    if (lk_comm_broadcast(comm, &said, 1, LK_I32, 0)) fail();
    return said;
}

static lk_status run_rank(void *context)
{
    const benchmark *b = context;
    lk_comm *comm = NULL;
    lki_role role = *lki_process_role();
    if (lki_comm_connect(&comm, &role, NULL)) return lki_last_status();
    time_step(b->workload, (step_choice){.seconds = b->seconds}, role.rank, comm, agree);
    lk_comm_free(comm);
    return LK_OK;
}

int main(int argc, char **argv)
{
    benchmark b = {find_workload(argc, argv), argc > 2 ? atof(argv[2]) : 2};
    int ranks = argc > 3 ? atoi(argv[3]) : 1;
    if (ranks == 1)
        time_step(b.workload, (step_choice){.seconds = b.seconds}, 0, NULL, NULL);
    else if (lk_distributed_run(run_rank, &b, .nproc = ranks))
        fail();
    return 0;
}
