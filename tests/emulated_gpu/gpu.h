/* An emulated GPU: the CUDA runtime, cuBLASLt, cuDNN and NVRTC as far as the engine uses them, on the host.
 *
 * What the emulator's own files share. A stream is a list of work. LOCKSTEP_EMULATED_ORDER says in which of
 * the orders that CUDA allows work is done: "forward" (as if it were not set) does it when it is asked for,
 * threads and blocks from the first to the last; "reverse" does it when somebody waits for it, the work
 * beside a stream as late as its events allow, threads and blocks from the last to the first. What holds in
 * both lacks neither barriers nor events nor waits. What CUDA leaves undefined ends the process with a
 * sentence.
 *
 * Thread rule: any thread; one at a time does work. */
#ifndef LKT_GPU_H
#define LKT_GPU_H

#include <cuda_runtime.h>

#include <stddef.h>
#include <stdint.h>

#include <functional>
#include <mutex>

namespace lkt_gpu
{

typedef std::function<void()> work;

/* What a kernel is launched with. */
struct config {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
    config(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = NULL)
        : grid(grid), block(block), shared(shared), stream(stream)
    {
    }
};

/* Where a thread is, and what kernels compiled at run time find of the emulator. */
struct place {
    uint3 thread, block;
    dim3 block_size, grid_size;
    float (*from_f16)(unsigned short bits);
    unsigned short (*to_f16)(float value), (*to_bf16)(float value);
};
extern place here;

/* A kernel compiled at run time: the sizes of its arguments, and a call of one thread. */
struct entry {
    int count;
    const size_t *nbytes;
    void (*call)(void **arguments);
};

extern std::recursive_mutex lock; /* over everything */
bool is_reverse(void);

/* Prints a sentence and ends the process. */
[[noreturn]] void refuse(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Remembers a failure for cudaGetLastError; returns it. */
cudaError_t remember(cudaError_t error);

/* Work on a stream, or in the graph that it is captured into. */
cudaError_t enqueue(cudaStream_t stream, const work &item);
/* Whether this thread captures: calls that wait or allocate are errors then. */
bool is_capturing(void);
/* All that was ever asked for is done. */
void finish_all(void);

/* Does a whole grid, now. */
void run_grid(const char *name, const config &launch, const work &thread);
/* A launch: checks it and enqueues the grid. */
void enqueue_grid(const char *name, const config &launch, const work &thread);

} // namespace lkt_gpu

#endif
