/* Convolutions of bf16 as products of low.h. Each sets call->run, or leaves it NULL where f32 kernels on
 * widened operands are faster. */
#ifndef LKI_CPU_LOW_CONV_H
#define LKI_CPU_LOW_CONV_H

#include "engine/cpu/cpu.h"

lk_status lki_low_prepare_conv(lki_cpu *cpu, lk_call *call);
lk_status lki_low_prepare_conv_grad_input(lki_cpu *cpu, lk_call *call);
lk_status lki_low_prepare_conv_grad_weight(lki_cpu *cpu, lk_call *call);

#endif
