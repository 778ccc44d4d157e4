/* Which of the emulated GPUs a thread and a stream have. Work goes to a stream of the thread's GPU alone. */
#ifndef LKT_DEVICES_H
#define LKT_DEVICES_H

#include <cuda_runtime.h>

namespace lkt_gpu
{

int current_device(void);
int device_of(cudaStream_t stream);

} // namespace lkt_gpu

#endif
