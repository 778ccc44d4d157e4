/* Times one training step of the models of docs/performance.md, data in memory.
 *
 *     build/bench/bench_step WORKLOAD [SECONDS [fp32|bf16|fp16 [THREADS]]]
 *
 * prints "WORKLOAD microseconds peak-memory-in-MB last-loss". Without more words: float32 and one thread.
 *
 * It uses the public interface alone, as a user's program of one process does. bench/peer_step.py does the
 * same with PyTorch; bench/run shows them side by side. */
#include "step_timer.h"

static lk_dtype read_precision(const char *name)
{
    return strcmp(name, "bf16") == 0 ? LK_BF16 : strcmp(name, "fp16") == 0 ? LK_F16 : LK_F32;
}

int main(int argc, char **argv)
{
    const workload *chosen = find_workload(argc, argv);
    step_choice choice = {.seconds = argc > 2 ? atof(argv[2]) : 2};
    if (argc > 3) choice.precision = read_precision(argv[3]);
    if (argc > 4) choice.thread_count = atoi(argv[4]);
    time_step(chosen, choice, 0, NULL, NULL);
    return 0;
}
