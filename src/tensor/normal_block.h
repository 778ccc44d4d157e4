/* Box-Muller over blocks of 16 uniform f32 numbers, with the bits of PyTorch's AVX2 kernel. */
#ifndef LKI_TENSOR_NORMAL_BLOCK_H
#define LKI_TENSOR_NORMAL_BLOCK_H

/* In place: d[j] and d[j + 8] for j < 8 are a pair. */
void lki_normal_block_f32(float *d, float mean, float std);

#endif
