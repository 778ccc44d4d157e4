/* Convolutions as both halves of the emulated cuDNN describe them. */
#ifndef LKT_GPU_CONVOLUTION_H
#define LKT_GPU_CONVOLUTION_H

#include "gpu.h"
#include "numbers.h"

#include <cudnn.h>

struct cudnnContext {
    cudaStream_t stream;
    void *memory; /* of the device */
};

namespace lkt_gpu
{

enum { AXES = 3, RANK = AXES + 2 };
constexpr size_t CONVOLUTION_WORKSPACE_NBYTES = 3000;

/* Three spatial axes, the first ones of size 1 where there are less. */
struct sides {
    number type;
    int64_t dim[RANK], stride[RANK];
};

struct window {
    int64_t padding[AXES], stride[AXES], dilation[AXES];
    int groups;
};

struct convolution {
    sides in, out, weight;
    window how;
};

/* Which of the three is computed. */
enum role { OUT, IN, WEIGHT };

number number_of(cudnnDataType_t type);

/* Enqueues a convolution. left and right are the two others in the order input side, output side, weight,
 * but for role IN: output side, weight. The workspace is spoilt. */
void convolve(cudnnHandle_t handle, const convolution &c, role computed, const void *left, const void *right,
              void *to, void *workspace);

} // namespace lkt_gpu

#endif
