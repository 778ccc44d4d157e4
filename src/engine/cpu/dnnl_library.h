/* oneDNN's functions, from the library that is loaded when bf16 is first multiplied: f32 never needs it, and
 * it takes 5 MB and a few milliseconds to load. */
#ifndef LKI_CPU_DNNL_LIBRARY_H
#define LKI_CPU_DNNL_LIBRARY_H

#include <dnnl.h>
#include <stdbool.h>

/* clang-format off */
#define LKI_ONEDNN_FUNCTIONS(X)                                                                              \
    X(dilated_convolution_backward_data_desc_init)                                                           \
    X(dilated_convolution_backward_weights_desc_init)                                                        \
    X(dilated_convolution_forward_desc_init)                                                                 \
    X(engine_create)                                                                                         \
    X(engine_destroy)                                                                                        \
    X(get_effective_cpu_isa)                                                                                 \
    X(matmul_desc_init)                                                                                      \
    X(memory_create)                                                                                         \
    X(memory_desc_equal)                                                                                     \
    X(memory_desc_get_size)                                                                                  \
    X(memory_desc_init_by_strides)                                                                           \
    X(memory_desc_init_by_tag)                                                                               \
    X(memory_destroy)                                                                                        \
    X(memory_set_data_handle_v2)                                                                             \
    X(post_ops_append_eltwise)                                                                               \
    X(post_ops_create)                                                                                       \
    X(post_ops_destroy)                                                                                      \
    X(primitive_attr_create)                                                                                 \
    X(primitive_attr_destroy)                                                                                \
    X(primitive_attr_set_post_ops)                                                                           \
    X(primitive_attr_set_scratchpad_mode)                                                                    \
    X(primitive_create)                                                                                      \
    X(primitive_desc_create)                                                                                 \
    X(primitive_desc_destroy)                                                                                \
    X(primitive_desc_query_md)                                                                               \
    X(primitive_destroy)                                                                                     \
    X(primitive_execute)                                                                                     \
    X(reorder_primitive_desc_create)                                                                         \
    X(stream_create)                                                                                         \
    X(stream_destroy)                                                                                        \
    X(stream_wait)
/* clang-format on */

typedef struct lki_onednn_functions {
#define LKI_ONEDNN_FIELD(name) __typeof__(&dnnl_##name) name;
    LKI_ONEDNN_FUNCTIONS(LKI_ONEDNN_FIELD)
#undef LKI_ONEDNN_FIELD
    void (*omp_set_num_threads)(int count); /* of the OpenMP runtime it was built with; may be NULL */
} lki_onednn_functions;

/* Filled by lki_onednn_load. */
extern lki_onednn_functions lki_onednn;

/* False where the library is not there, or is another than the header was. Thread-safe. */
bool lki_onednn_load(void);

#endif
