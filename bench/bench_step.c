/* Times one training step of the models of docs/performance.md, data in memory, one thread.
 *
 *     build/bench/bench_step WORKLOAD [SECONDS]     prints "WORKLOAD microseconds peak-memory-in-MB
 * last-loss"
 *
 * It uses the public interface alone, as a user's program of one process does. bench/peer_step.py does the
 * same with PyTorch; bench/run shows them side by side. */
#include "step_timer.h"

int main(int argc, char **argv)
{
    const workload *chosen = find_workload(argc, argv);
    time_step(chosen, argc > 2 ? atof(argv[2]) : 2, 0, NULL, NULL);
    return 0;
}
