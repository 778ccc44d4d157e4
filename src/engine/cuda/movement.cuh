/* The files of the ops that move elements. */
#ifndef LKI_CUDA_MOVEMENT_CUH
#define LKI_CUDA_MOVEMENT_CUH

#include "engine/cuda/kernels.cuh"

/* What is moved bit for bit is moved as units: an element, or as many neighbours as addresses and sizes
 * allow. */
struct alignas(16) lki_cuda_unit16 {
    unsigned long long half[2];
};

/* Runs the statements with U as the unit of `nbytes` bytes: 1, 2, 4, 8 or 16. */
#define LKI_CUDA_UNIT_SWITCH(nbytes, U, ...)                                                                 \
    switch (nbytes) {                                                                                        \
    case 1: {                                                                                                \
        using U = unsigned char;                                                                             \
        __VA_ARGS__;                                                                                         \
    } break;                                                                                                 \
    case 2: {                                                                                                \
        using U = unsigned short;                                                                            \
        __VA_ARGS__;                                                                                         \
    } break;                                                                                                 \
    case 4: {                                                                                                \
        using U = unsigned;                                                                                  \
        __VA_ARGS__;                                                                                         \
    } break;                                                                                                 \
    case 8: {                                                                                                \
        using U = unsigned long long;                                                                        \
        __VA_ARGS__;                                                                                         \
    } break;                                                                                                 \
    default: {                                                                                               \
        using U = lki_cuda_unit16;                                                                           \
        __VA_ARGS__;                                                                                         \
    } break;                                                                                                 \
    }

lk_status lki_cuda_prepare_pad(lki_cuda *cuda, lk_call *call); /* pad, pad_grad */

#endif
