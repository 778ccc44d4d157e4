/* Convolutions of bf16 as products of bf16.h. Each sets call->run, or leaves it NULL where f32 kernels on
 * widened operands are faster. */
#ifndef LKI_CPU_BF16_CONV_H
#define LKI_CPU_BF16_CONV_H

#include "engine/cpu/conv.h"

lk_status lki_bf16_prepare_conv(lki_cpu *cpu, lk_call *call);
lk_status lki_bf16_prepare_conv_grad_input(lki_cpu *cpu, lk_call *call);
lk_status lki_bf16_prepare_conv_grad_weight(lki_cpu *cpu, lk_call *call);

/* Without columns (bf16_shift.c): whether a convolution suits, and the result, or the input's gradient as a
 * convolution of dy with the weights turned around. */
bool lki_bf16_shift_suits(const lki_conv_sizes *s);
lk_status lki_bf16_prepare_shift(lki_cpu *cpu, lk_call *call, const lki_conv_sizes *s, bool turns);

/* The weight's gradient likewise. Places that are no outputs count as zero times what lies there, so x must
 * be finite. The plan is the caller's to free; *nbytes grows to the scratch that it needs. */
lk_status lki_bf16_plan_shift_gradient(void **plan, lki_cpu *cpu, const lki_conv_sizes *s, size_t *nbytes);
void lki_bf16_run_shift_gradient(const lk_call *call, const void *plan);

/* db (outs) += the sums over the planes of dy (outs, plane). */
void lki_bf16_add_bias(const lk_call *call, const uint16_t *dy, int64_t outs, int64_t plane, float *db);

#endif
