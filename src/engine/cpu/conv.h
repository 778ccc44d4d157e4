/* The sizes of one convolution, whichever of its three tensors is being computed, with always three spatial
 * axes. */
#ifndef LKI_CPU_CONV_H
#define LKI_CPU_CONV_H

#include "engine/cpu/cpu.h"

typedef struct lki_conv_sizes {
    int64_t batch, groups;
    int64_t group_in, group_out; /* channels of a group */
    int64_t taps, in_plane, out_plane;
    lki_conv one; /* a group of a sample */
} lki_conv_sizes;

/* in: (n, c, s...), out: (n, o, p...); the transposed convolution calls its output "in" here. */
lki_conv_sizes lki_conv_sizes_of(const lk_window *window, lk_shape in, lk_shape out);

/* By products with columns, for any shape: always sets call->run. */
lk_status lki_cpu_prepare_direct(lki_cpu *cpu, lk_call *call);

/* Whether Winograd's algorithm pays. */
bool lki_winograd_suits(const lki_cpu *cpu, const lki_conv_sizes *s);
/* Where it does: sets call->run, or leaves it NULL. */
lk_status lki_cpu_prepare_winograd(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_winograd_grad_input(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_winograd_grad_weight(lki_cpu *cpu, lk_call *call);

#endif
