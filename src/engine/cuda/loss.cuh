/* The two files of the losses. */
#ifndef LKI_CUDA_LOSS_CUH
#define LKI_CUDA_LOSS_CUH

#include "engine/cuda/cuda.cuh"

lk_status lki_cuda_prepare_pointwise_loss(lki_cuda *cuda, lk_call *call);

#endif
