/* oneDNN primitives as kernels: a primitive, its memory objects and the reorders between our row-major
 * tensors and the layouts that the primitive asks for, made once when a call is prepared.
 *
 * Life: lki_dnnl_begin makes the kernel the call's state, lki_dnnl_add binds its arguments, lki_dnnl_finish
 * sets the scratch size and run. Whatever fails, the call's free_state frees it all. Running allocates
 * nothing; addresses are set anew only when they have changed. */
#ifndef LKI_CPU_DNNL_H
#define LKI_CPU_DNNL_H

#include "engine/cpu/cpu.h"
#include "engine/cpu/dnnl_library.h"

typedef struct lki_dnnl lki_dnnl;

/* One for all kernels of an engine. */
typedef struct lki_dnnl_device {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    void (*set_threads)(
        int count); /* of the OpenMP runtime that oneDNN was built with; NULL where there is none */
} lki_dnnl_device;

/* NULL where oneDNN cannot start, or where this machine has no instructions for bf16. */
lki_dnnl_device *lki_dnnl_open(void);
void lki_dnnl_close(lki_dnnl_device *device);

/* A kernel for the primitive that `op_desc` describes (a dnnl_*_desc_t), with ReLU behind it where asked.
 * LK_ERR_UNSUPPORTED where oneDNN has none. */
lk_status lki_dnnl_begin(lki_dnnl **out, lki_cpu *cpu, lk_call *call, const_dnnl_op_desc_t op_desc,
                         bool relu);

/* Argument `arg` (DNNL_ARG_*) is an operand of the call that lies row-major as `user` says. */
lk_status lki_dnnl_add(lki_dnnl *kernel, int arg, bool is_output, int operand,
                       const dnnl_memory_desc_t *user);
lk_status lki_dnnl_finish(lki_dnnl *kernel, lk_call *call);
/* What finish sets as call->run. */
lk_status lki_dnnl_run(const lk_call *call);

/* The descriptor of a row-major tensor, or of one with the given strides. */
dnnl_memory_desc_t lki_dnnl_dense(lk_dtype dtype, int rank, const int64_t *dims);
dnnl_memory_desc_t lki_dnnl_strided(lk_dtype dtype, int rank, const int64_t *dims, const int64_t *strides);
/* The layout is the primitive's choice. */
dnnl_memory_desc_t lki_dnnl_any(lk_dtype dtype, int rank, const int64_t *dims);

#endif
