/* Layers, losses and initialisers, with PyTorch's names and numbers.
 *
 *     lk_manual_seed(0);
 *     lk_module *model = lk_sequential(lk_flatten(), lk_linear(28 * 28, 10));
 *
 * A module has a type name, parameters, named children and one forward function over values. It
 * is not bound to a graph: the same module can be recorded into a training graph, an evaluation
 * graph, and graphs for other batch sizes. Constructors draw the initial weights from
 * lk_default_generator() exactly as PyTorch's do, in the order in which they run, so the same
 * seed and the same constructors give the same bits. (C leaves the order inside one initialiser
 * list to the compiler; GCC and Clang evaluate it from left to right.)
 *
 * Life: a module belongs to its creator until it becomes the child of another module.
 * lk_module_free frees the whole tree. A constructor that fails returns NULL and sets lk_error().
 * A constructor that gets a NULL part frees the other parts and returns NULL, so a model can be
 * written as one expression and checked once.
 *
 * Threads: a module belongs to one thread.
 *
 * Named arguments: each layer is a macro over an options struct in which zero means PyTorch's
 * default. A plain function, lk_<layer>_with, takes the struct, for C++ and for bindings. For a
 * number whose default is not zero, LK_ZERO means zero: `.momentum = LK_ZERO`. */
#ifndef LOCKSTEP_NN_H
#define LOCKSTEP_NN_H

#include <lockstep/arguments.h>
#include <lockstep/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- modules ---- */

typedef struct lk_module lk_module;

/* Computes the output of a module. An op of NULL returns NULL, so the function needs no checks. */
typedef lk_value *(*lk_module_function)(lk_module *module, lk_value *x);
/* The shortest kind of module: a function over values, with its context. */
typedef lk_value *(*lk_value_function)(lk_value *x, void *context);

typedef struct lk_named_module {
    const char *name;
    lk_module *module;
} lk_named_module;

typedef struct lk_named_module_list {
    const lk_named_module *items;
    int count;
} lk_named_module_list;

/* Records the module in the graph of x, in a scope with its name and type, and returns its
 * output. Returns NULL if x is NULL or an op fails. */
lk_value *lk_module_forward(lk_module *module, lk_value *x);
/* The same for a module of several values: lk_module_call(net, LK_VALUES(x, mask), y, 2). It fills
 * in `outputs`, with NULL if it fails. Recurrent layers take x, h_0 and c_0, of which the later
 * ones may be left out, and give y, h_n and c_n. Attention and transformers take the arguments of
 * PyTorch's forward in its order; a NULL, or the end of the list, leaves out those that are
 * optional. Any other module takes and gives one. */
lk_status lk_module_call(lk_module *module, lk_value *const *inputs, int input_count, lk_value **outputs,
                         int output_count);
#define LK_VALUES(...)                                                                                       \
    (lk_value *const[]){__VA_ARGS__}, (int)(sizeof((lk_value *const[]){__VA_ARGS__}) / sizeof(lk_value *))
/* Computes the outputs of a module of several values from its inputs. Returns what it returned if
 * an op fails; a NULL among the outputs is a failure, too. */
typedef lk_status (*lk_module_call_function)(lk_module *module, lk_value *const *inputs, int input_count,
                                             lk_value **outputs, int output_count);

/* Frees the module and all its children. NULL is allowed. */
void lk_module_free(lk_module *module);
/* Returns the same module to hand over once more. Used at several places, it has one set of
 * parameters, which are trained once and which a checkpoint has under the name of each place, as
 * in PyTorch: lk_sequential(lk_module_share(tied), lk_relu(), tied). NULL passes through. */
lk_module *lk_module_share(lk_module *module);
/* Marks the module for activation checkpointing, and returns it. What it computes between its
 * inputs and its outputs is then not kept for the backward pass but computed again there, as
 * torch.utils.checkpoint does: a training step needs less memory and more time, and gives the same
 * bits. Dropout is not drawn again, and batch norms move their running values once. A module inside
 * of another one may be marked, too. Do it before a step or a run uses the module. NULL passes
 * through: lk_sequential(lk_module_checkpoint(block), lk_linear(64, 10)). */
lk_module *lk_module_checkpoint(lk_module *module);
/* Returns a copy with its own memory and the same weights, which the caller owns, or NULL on
 * failure. What is shared inside the module is shared inside the copy. */
lk_module *lk_module_clone(const lk_module *module);

/* Return the type name, and the context that a custom module was created with. Both belong to the
 * module. */
const char *lk_module_type(const lk_module *module);
void *lk_module_context(const lk_module *module);

/* Add a child or a parameter. It belongs to the module from the call on and is freed if the call
 * fails, so a NULL whose error is already set may be passed unchecked. */
lk_status lk_module_add_child(lk_module *module, const char *name, lk_module *child_owned);
lk_status lk_module_add_param(lk_module *module, lk_param *param_owned);
/* Adds a parameter that checkpoints keep and the optimizer ignores. */
lk_status lk_module_add_buffer(lk_module *module, lk_param *buffer_owned);

/* Puts another parameter of the same shape where `path` is. It ties two weights as
 * `head.weight = embedding.weight` does in PyTorch:
 *
 *     lk_param *shared = lk_param_share(lk_module_param(model, "wte.weight"));
 *     lk_module_set_param(model, "lm_head.weight", shared);
 *
 * The parameter belongs to the module from the call on and is freed if the call fails. Do it before
 * a step or a run uses the module. */
lk_status lk_module_set_param(lk_module *module, const char *path, lk_param *param_owned);

/* Return a part by name ("weight") or by path ("layers.0.linear1"). It belongs to the module.
 * NULL with LK_ERR_NOT_FOUND if there is none. */
lk_module *lk_module_child(const lk_module *module, const char *path);
lk_param *lk_module_param(const lk_module *module, const char *path);

/* A parameter or buffer with PyTorch's full name. A list of them is in the order of PyTorch's
 * state_dict, borrows the parameters and owns the paths. */
typedef struct lk_named_param {
    char *path; /* "layers.0.self_attn.in_proj_weight" */
    lk_param *param;
} lk_named_param;

typedef struct lk_param_list {
    lk_named_param *items;
    int count;
} lk_param_list;

/* Lists every parameter and buffer of the tree, a shared one once, by the name of its first place.
 * Free the list with lk_param_list_free. */
lk_status lk_module_params(const lk_module *module, lk_param_list *out);
void lk_param_list_free(lk_param_list *list);
/* Returns the number of elements of all trainable parameters. */
int64_t lk_module_param_count(const lk_module *module);

/* Hooks: functions that are called whenever the module is recorded, in the order in which they
 * were registered. A model is recorded once per shape of batch and then replayed, so a hook sees
 * values, not numbers: it may name one with lk_graph_output, and lk_step_output then gives its
 * numbers for each batch. It may also replace values: a pre-hook the inputs, a hook the outputs.
 * What fails in a hook fails the recording. Register hooks before a step or a run uses the
 * module. `context` is borrowed. Removing takes the same function and context. */
typedef lk_status (*lk_module_pre_hook)(lk_module *module, lk_value **inputs, int input_count, void *context);
typedef lk_status (*lk_module_hook)(lk_module *module, lk_value *const *inputs, int input_count,
                                    lk_value **outputs, int output_count, void *context);
lk_status lk_module_register_forward_pre_hook(lk_module *module, lk_module_pre_hook hook, void *context);
lk_status lk_module_register_forward_hook(lk_module *module, lk_module_hook hook, void *context);
void lk_module_remove_forward_pre_hook(lk_module *module, lk_module_pre_hook hook, void *context);
void lk_module_remove_forward_hook(lk_module *module, lk_module_hook hook, void *context);

/* Freezes or unfreezes the parameters of the tree. A runner obeys it from the next training batch
 * on, also in the middle of a run; the optimizer state of frozen parameters is kept. All ranks of
 * a run must set the same. A resumed run starts with the parameters frozen that were frozen in
 * the checkpoint, whatever the program has set before; callbacks may then change it. A step of
 * your own (step.h) trains the parameters that were trainable when it was created. */
void lk_module_set_trainable(lk_module *module, bool trainable);

/* Converts all floating-point parameters and buffers of the tree to f32 or f64, as module.float()
 * and module.double() do in PyTorch. Integer buffers stay as they are. Inputs must then have that
 * dtype, and so has the optimizer state. The cpu engine computes f64 with the reference kernels.
 * Call it before a step or a run uses the module. It fails with LK_ERR_INVALID if a step trains
 * the module and with LK_ERR_DTYPE for other dtypes (16-bit formats are the precision of a run),
 * and then changes nothing. */
lk_status lk_module_to(lk_module *module, lk_dtype dtype);

/* Makes a table of the tree: layer, output shape, parameters, and the total. `shape` is that of a
 * whole batch. Free the text with lk_text_free. */
lk_status lk_module_summary(lk_module *module, lk_dtype dtype, lk_shape shape, char **text);

/* ---- containers and your own modules ---- */

LK_LIST_TO_END_(lk_named_module_list, lk_named_module)
#define LK_NAMED_MODULES_(...)                                                                               \
    lk_named_module_list_to_end((const lk_named_module[]){__VA_ARGS__, {.name = LK_END}})

/* Runs modules one after the other. The names of the children are "0", "1", ... */
lk_module *lk_sequential_with(lk_module *const *modules_owned, int count);
LK_CALL_TO_END_(lk_module *, lk_sequential, lk_module *)
#define lk_sequential(...) lk_sequential_to_end((lk_module *const[]){__VA_ARGS__, LK_END})
/* The same with your names: lk_named_sequential({"net1", lk_linear(4, 8)}, {"relu", lk_relu()}). */
#define lk_named_sequential(...) lk_named_sequential_with(LK_NAMED_MODULES_(__VA_ARGS__))
lk_module *lk_named_sequential_with(lk_named_module_list modules_owned);
/* x + f(x), where f runs the given modules one after the other. */
lk_module *lk_residual_with(lk_module *const *modules_owned, int count);
LK_CALL_TO_END_(lk_module *, lk_residual, lk_module *)
#define lk_residual(...) lk_residual_to_end((lk_module *const[]){__VA_ARGS__, LK_END})
/* Children without a forward function, for modules that call them one by one. */
lk_module *lk_module_list_with(lk_module *const *modules_owned, int count);
LK_CALL_TO_END_(lk_module *, lk_module_list, lk_module *)
#define lk_module_list(...) lk_module_list_to_end((lk_module *const[]){__VA_ARGS__, LK_END})

/* The same with names, for lk_module_child: lk_module_dict({"encoder", encoder}, {"head",
 * head}). */
#define lk_module_dict(...) lk_module_dict_with(LK_NAMED_MODULES_(__VA_ARGS__))
lk_module *lk_module_dict_with(lk_named_module_list modules_owned);

/* A module from one function. `context` is borrowed and must outlive the module. */
lk_module *lk_function(lk_value_function function, void *context);

/* A module of your own. */
typedef struct lk_custom_module_options {
    size_t struct_size;
    const char *type; /* "Custom" */
    lk_module_function forward;
    void *context;                       /* lk_module_context() returns it */
    void (*free_context)(void *context); /* optional; also called if the constructor fails */
    lk_named_module_list children;       /* lk_children({"conv", lk_conv2d(1, 8, 3)}, ...); owned */
    /* Instead of `forward`, for several values; how many it takes and gives, 0 for any number. */
    lk_module_call_function call;
    int inputs, outputs;
} lk_custom_module_options;
#define lk_children(...)      LK_NAMED_MODULES_(__VA_ARGS__)
#define lk_custom_module(...) LK_CALL0_(lk_custom_module_with, lk_custom_module_options, __VA_ARGS__)
lk_module *lk_custom_module_with(const lk_custom_module_options *options);

/* ---- products ---- */

typedef struct lk_linear_options {
    size_t struct_size;
    bool no_bias;
} lk_linear_options;
#define lk_linear(...) LK_CALL2_(lk_linear_with, lk_linear_options, __VA_ARGS__, )
lk_module *lk_linear_with(int64_t in_features, int64_t out_features, const lk_linear_options *options);

/* A plain number applies to all axes. The array beside it applies per axis; it is used if any of
 * its elements is not zero. */
typedef struct lk_conv_options {
    size_t struct_size;
    int64_t stride, strides[3];                 /* 1 */
    int64_t padding, paddings[3];               /* 0 */
    int64_t dilation, dilations[3];             /* 1 */
    int64_t groups;                             /* 1 */
    int64_t kernels[3];                         /* instead of `kernel` */
    int64_t output_padding, output_paddings[3]; /* of transposed convolutions */
    lk_pad_mode padding_mode;
    bool same_padding; /* PyTorch's padding="same": keeps the size; stride 1 only */
    bool no_bias;
} lk_conv_options;

#define lk_conv1d(...) LK_CALL3_(lk_conv1d_with, lk_conv_options, __VA_ARGS__, )
#define lk_conv2d(...) LK_CALL3_(lk_conv2d_with, lk_conv_options, __VA_ARGS__, )
#define lk_conv3d(...) LK_CALL3_(lk_conv3d_with, lk_conv_options, __VA_ARGS__, )
lk_module *lk_conv1d_with(int64_t in_channels, int64_t out_channels, int64_t kernel,
                          const lk_conv_options *options);
lk_module *lk_conv2d_with(int64_t in_channels, int64_t out_channels, int64_t kernel,
                          const lk_conv_options *options);
lk_module *lk_conv3d_with(int64_t in_channels, int64_t out_channels, int64_t kernel,
                          const lk_conv_options *options);

#define lk_conv_transpose1d(...) LK_CALL3_(lk_conv_transpose1d_with, lk_conv_options, __VA_ARGS__, )
#define lk_conv_transpose2d(...) LK_CALL3_(lk_conv_transpose2d_with, lk_conv_options, __VA_ARGS__, )
#define lk_conv_transpose3d(...) LK_CALL3_(lk_conv_transpose3d_with, lk_conv_options, __VA_ARGS__, )
lk_module *lk_conv_transpose1d_with(int64_t in_channels, int64_t out_channels, int64_t kernel,
                                    const lk_conv_options *options);
lk_module *lk_conv_transpose2d_with(int64_t in_channels, int64_t out_channels, int64_t kernel,
                                    const lk_conv_options *options);
lk_module *lk_conv_transpose3d_with(int64_t in_channels, int64_t out_channels, int64_t kernel,
                                    const lk_conv_options *options);

/* ---- pooling and resizing ---- */

typedef struct lk_pool_options {
    size_t struct_size;
    int64_t stride, strides[3]; /* the kernel size */
    int64_t padding, paddings[3];
    int64_t dilation, dilations[3]; /* max pooling only */
    int64_t kernels[3];             /* instead of `kernel` */
    bool ceil_mode;
    bool no_count_include_pad; /* average pooling leaves padding out of the mean */
    int64_t divisor_override;  /* average pooling in two and three dimensions */
} lk_pool_options;

#define lk_max_pool1d(...) LK_CALL1_(lk_max_pool1d_with, lk_pool_options, __VA_ARGS__, )
#define lk_max_pool2d(...) LK_CALL1_(lk_max_pool2d_with, lk_pool_options, __VA_ARGS__, )
#define lk_max_pool3d(...) LK_CALL1_(lk_max_pool3d_with, lk_pool_options, __VA_ARGS__, )
#define lk_avg_pool1d(...) LK_CALL1_(lk_avg_pool1d_with, lk_pool_options, __VA_ARGS__, )
#define lk_avg_pool2d(...) LK_CALL1_(lk_avg_pool2d_with, lk_pool_options, __VA_ARGS__, )
#define lk_avg_pool3d(...) LK_CALL1_(lk_avg_pool3d_with, lk_pool_options, __VA_ARGS__, )
lk_module *lk_max_pool1d_with(int64_t kernel, const lk_pool_options *options);
lk_module *lk_max_pool2d_with(int64_t kernel, const lk_pool_options *options);
lk_module *lk_max_pool3d_with(int64_t kernel, const lk_pool_options *options);
lk_module *lk_avg_pool1d_with(int64_t kernel, const lk_pool_options *options);
lk_module *lk_avg_pool2d_with(int64_t kernel, const lk_pool_options *options);
lk_module *lk_avg_pool3d_with(int64_t kernel, const lk_pool_options *options);

/* An `output_size` of 0, or a 0 in `output_sizes`, keeps the size of the input, as None does in
 * PyTorch. */
typedef struct lk_adaptive_pool_options {
    size_t struct_size;
    int64_t output_sizes[3]; /* instead of `output_size` */
} lk_adaptive_pool_options;
#define lk_adaptive_avg_pool1d(...)                                                                          \
    LK_CALL1_(lk_adaptive_avg_pool1d_with, lk_adaptive_pool_options, __VA_ARGS__, )
#define lk_adaptive_avg_pool2d(...)                                                                          \
    LK_CALL1_(lk_adaptive_avg_pool2d_with, lk_adaptive_pool_options, __VA_ARGS__, )
#define lk_adaptive_avg_pool3d(...)                                                                          \
    LK_CALL1_(lk_adaptive_avg_pool3d_with, lk_adaptive_pool_options, __VA_ARGS__, )
lk_module *lk_adaptive_avg_pool1d_with(int64_t output_size, const lk_adaptive_pool_options *options);
lk_module *lk_adaptive_avg_pool2d_with(int64_t output_size, const lk_adaptive_pool_options *options);
lk_module *lk_adaptive_avg_pool3d_with(int64_t output_size, const lk_adaptive_pool_options *options);

/* Give either a size or a scale factor. Works on 1 to 3 spatial axes. */
typedef struct lk_upsample_options {
    size_t struct_size;
    double scale_factor, scale_factors[3];
    int64_t size, sizes[3];
    lk_upsample_mode mode; /* nearest */
    bool align_corners;    /* linear mode and bicubic */
    /* Number of spatial axes that the input must have: 2 is PyTorch's bilinear. 0: any. */
    int axes;
} lk_upsample_options;
#define lk_upsample(...) LK_CALL0_(lk_upsample_with, lk_upsample_options, __VA_ARGS__)
lk_module *lk_upsample_with(const lk_upsample_options *options);

/* ---- normalisation ---- */

typedef struct lk_batch_norm_options {
    size_t struct_size;
    double eps;      /* 1e-5 */
    double momentum; /* 0.1 */
    bool no_affine;
    bool no_track_running_stats; /* PyTorch's track_running_stats=False */
    /* PyTorch's momentum=None: the running values are the mean of those of all batches. Not with
     * sync_batch_norm. */
    bool cumulative;
} lk_batch_norm_options;
#define lk_batch_norm1d(...) LK_CALL1_(lk_batch_norm1d_with, lk_batch_norm_options, __VA_ARGS__, )
#define lk_batch_norm2d(...) LK_CALL1_(lk_batch_norm2d_with, lk_batch_norm_options, __VA_ARGS__, )
#define lk_batch_norm3d(...) LK_CALL1_(lk_batch_norm3d_with, lk_batch_norm_options, __VA_ARGS__, )
lk_module *lk_batch_norm1d_with(int64_t features, const lk_batch_norm_options *options);
lk_module *lk_batch_norm2d_with(int64_t features, const lk_batch_norm_options *options);
lk_module *lk_batch_norm3d_with(int64_t features, const lk_batch_norm_options *options);

typedef struct lk_norm_options {
    size_t struct_size;
    double eps; /* 1e-5 */
    bool no_affine;
} lk_norm_options;
/* Normalises over the last axes, which must have this shape: lk_layer_norm(64) or
 * lk_layer_norm(LK_SHAPE(8, 64)). */
#define lk_layer_norm(...) LK_LAYER_NORM_(__VA_ARGS__, )
#define LK_LAYER_NORM_(normalized_shape, ...)                                                                \
    _Generic((normalized_shape), lk_shape                                                                    \
             : lk_layer_norm_with, default                                                                   \
             : lk_layer_norm_last_with)((normalized_shape), LK_OPTIONS(lk_norm_options, __VA_ARGS__))
lk_module *lk_layer_norm_with(lk_shape normalized_shape, const lk_norm_options *options);
lk_module *lk_layer_norm_last_with(int64_t features, const lk_norm_options *options);
#define lk_group_norm(...) LK_CALL2_(lk_group_norm_with, lk_norm_options, __VA_ARGS__, )
lk_module *lk_group_norm_with(int64_t groups, int64_t channels, const lk_norm_options *options);

/* x / sqrt(mean(x^2) + eps) weight over the last axes. An eps of 0 is the dtype's epsilon. */
#define lk_rms_norm(...) LK_RMS_NORM_(__VA_ARGS__, )
#define LK_RMS_NORM_(normalized_shape, ...)                                                                  \
    _Generic((normalized_shape), lk_shape                                                                    \
             : lk_rms_norm_with, default                                                                     \
             : lk_rms_norm_last_with)((normalized_shape), LK_OPTIONS(lk_norm_options, __VA_ARGS__))
lk_module *lk_rms_norm_with(lk_shape normalized_shape, const lk_norm_options *options);
lk_module *lk_rms_norm_last_with(int64_t features, const lk_norm_options *options);

/* ---- activations ---- */

lk_module *lk_relu(void);
lk_module *lk_silu(void);
lk_module *lk_tanh(void);
lk_module *lk_sigmoid(void);
lk_module *lk_identity(void);
lk_module *lk_softmax(int dim);
lk_module *lk_log_softmax(int dim);

typedef struct lk_leaky_relu_options {
    size_t struct_size;
    double negative_slope; /* 0.01 */
} lk_leaky_relu_options;
#define lk_leaky_relu(...) LK_CALL0_(lk_leaky_relu_with, lk_leaky_relu_options, __VA_ARGS__)
lk_module *lk_leaky_relu_with(const lk_leaky_relu_options *options);

typedef struct lk_elu_options {
    size_t struct_size;
    double alpha; /* 1 */
} lk_elu_options;
#define lk_elu(...) LK_CALL0_(lk_elu_with, lk_elu_options, __VA_ARGS__)
lk_module *lk_elu_with(const lk_elu_options *options);

typedef struct lk_gelu_options {
    size_t struct_size;
    bool approximate_tanh;
} lk_gelu_options;
#define lk_gelu(...) LK_CALL0_(lk_gelu_with, lk_gelu_options, __VA_ARGS__)
lk_module *lk_gelu_with(const lk_gelu_options *options);

typedef struct lk_softplus_options {
    size_t struct_size;
    double beta;      /* 1 */
    double threshold; /* 20 */
} lk_softplus_options;
#define lk_softplus(...) LK_CALL0_(lk_softplus_with, lk_softplus_options, __VA_ARGS__)
lk_module *lk_softplus_with(const lk_softplus_options *options);

/* ---- the rest ---- */

typedef struct lk_dropout_options {
    size_t struct_size;
    double p; /* 0.5 */
} lk_dropout_options;
#define lk_dropout(...) LK_CALL0_(lk_dropout_with, lk_dropout_options, __VA_ARGS__)
lk_module *lk_dropout_with(const lk_dropout_options *options);

typedef struct lk_embedding_options {
    size_t struct_size;
    /* A row that is zero and is not trained; none. A whole number; negative ones count from the
     * end. */
    double padding_idx;
    bool scale_grad_by_freq; /* divides a row's gradient by how often the batch has it */
} lk_embedding_options;
/* Maps i64 indices of any shape to rows of `dim` numbers, which are a new last axis. */
#define lk_embedding(...) LK_CALL2_(lk_embedding_with, lk_embedding_options, __VA_ARGS__, )
lk_module *lk_embedding_with(int64_t count, int64_t dim, const lk_embedding_options *options);

typedef struct lk_flatten_options {
    size_t struct_size;
    double start_dim; /* 1; whole numbers, and negative ones count from the end */
    double end_dim;   /* -1 */
} lk_flatten_options;
#define lk_flatten(...) LK_CALL0_(lk_flatten_with, lk_flatten_options, __VA_ARGS__)
lk_module *lk_flatten_with(const lk_flatten_options *options);
/* Divides one axis: lk_unflatten(1, LK_SHAPE(2, -1)). One of the sizes may be -1. */
lk_module *lk_unflatten(int dim, lk_shape sizes);

/* ---- more activations ---- */

lk_module *lk_relu6(void);
lk_module *lk_hardsigmoid(void);
lk_module *lk_hardswish(void);
lk_module *lk_mish(void);
lk_module *lk_selu(void);
lk_module *lk_log_sigmoid(void);
lk_module *lk_softsign(void);
lk_module *lk_tanhshrink(void);
lk_module *lk_softmin(int dim);
/* `value` where x is not above `threshold`. */
lk_module *lk_threshold(double threshold, double value);

typedef struct lk_glu_options {
    size_t struct_size;
    double dim; /* -1; a whole number: the axis that is halved */
} lk_glu_options;
#define lk_glu(...) LK_CALL0_(lk_glu_with, lk_glu_options, __VA_ARGS__)
lk_module *lk_glu_with(const lk_glu_options *options);

typedef struct lk_hardtanh_options {
    size_t struct_size;
    double min_val, max_val; /* -1, 1 */
} lk_hardtanh_options;
#define lk_hardtanh(...) LK_CALL0_(lk_hardtanh_with, lk_hardtanh_options, __VA_ARGS__)
lk_module *lk_hardtanh_with(const lk_hardtanh_options *options);

typedef struct lk_celu_options {
    size_t struct_size;
    double alpha; /* 1 */
} lk_celu_options;
#define lk_celu(...) LK_CALL0_(lk_celu_with, lk_celu_options, __VA_ARGS__)
lk_module *lk_celu_with(const lk_celu_options *options);

typedef struct lk_shrink_options {
    size_t struct_size;
    double lambd; /* 0.5 */
} lk_shrink_options;
#define lk_hardshrink(...) LK_CALL0_(lk_hardshrink_with, lk_shrink_options, __VA_ARGS__)
#define lk_softshrink(...) LK_CALL0_(lk_softshrink_with, lk_shrink_options, __VA_ARGS__)
lk_module *lk_hardshrink_with(const lk_shrink_options *options);
lk_module *lk_softshrink_with(const lk_shrink_options *options);

typedef struct lk_prelu_options {
    size_t struct_size;
    int64_t num_parameters; /* 1, or the number of channels on axis 1 */
    double init;            /* 0.25 */
} lk_prelu_options;
#define lk_prelu(...) LK_CALL0_(lk_prelu_with, lk_prelu_options, __VA_ARGS__)
lk_module *lk_prelu_with(const lk_prelu_options *options);

/* ---- channels and places ---- */

typedef struct lk_instance_norm_options {
    size_t struct_size;
    double eps; /* 1e-5 */
    bool affine;
    bool track_running_stats; /* evaluate by running values, which are means over the samples */
    double momentum;          /* of the running values; 0.1 */
} lk_instance_norm_options;
/* By the statistics of each sample, in evaluation too unless it tracks running ones. */
#define lk_instance_norm1d(...) LK_CALL1_(lk_instance_norm1d_with, lk_instance_norm_options, __VA_ARGS__, )
#define lk_instance_norm2d(...) LK_CALL1_(lk_instance_norm2d_with, lk_instance_norm_options, __VA_ARGS__, )
#define lk_instance_norm3d(...) LK_CALL1_(lk_instance_norm3d_with, lk_instance_norm_options, __VA_ARGS__, )
lk_module *lk_instance_norm1d_with(int64_t features, const lk_instance_norm_options *options);
lk_module *lk_instance_norm2d_with(int64_t features, const lk_instance_norm_options *options);
lk_module *lk_instance_norm3d_with(int64_t features, const lk_instance_norm_options *options);

/* Drop whole channels of samples. */
#define lk_dropout1d(...) LK_CALL0_(lk_dropout1d_with, lk_dropout_options, __VA_ARGS__)
#define lk_dropout2d(...) LK_CALL0_(lk_dropout2d_with, lk_dropout_options, __VA_ARGS__)
#define lk_dropout3d(...) LK_CALL0_(lk_dropout3d_with, lk_dropout_options, __VA_ARGS__)
lk_module *lk_dropout1d_with(const lk_dropout_options *options);
lk_module *lk_dropout2d_with(const lk_dropout_options *options);
lk_module *lk_dropout3d_with(const lk_dropout_options *options);

#define lk_adaptive_max_pool1d(...)                                                                          \
    LK_CALL1_(lk_adaptive_max_pool1d_with, lk_adaptive_pool_options, __VA_ARGS__, )
#define lk_adaptive_max_pool2d(...)                                                                          \
    LK_CALL1_(lk_adaptive_max_pool2d_with, lk_adaptive_pool_options, __VA_ARGS__, )
#define lk_adaptive_max_pool3d(...)                                                                          \
    LK_CALL1_(lk_adaptive_max_pool3d_with, lk_adaptive_pool_options, __VA_ARGS__, )
lk_module *lk_adaptive_max_pool1d_with(int64_t output_size, const lk_adaptive_pool_options *options);
lk_module *lk_adaptive_max_pool2d_with(int64_t output_size, const lk_adaptive_pool_options *options);
lk_module *lk_adaptive_max_pool3d_with(int64_t output_size, const lk_adaptive_pool_options *options);

/* Adds places around the spatial axes: `padding` on all sides, or PyTorch's order in `paddings`
 * (left, right, top, bottom, front, back), which is used if any of it is not zero. */
typedef struct lk_pad_options {
    size_t struct_size;
    int64_t paddings[6];
    double value; /* 0; of constant pads */
} lk_pad_options;
#define lk_zero_pad2d(...)        LK_CALL1_(lk_zero_pad2d_with, lk_pad_options, __VA_ARGS__, )
#define lk_constant_pad1d(...)    LK_CALL1_(lk_constant_pad1d_with, lk_pad_options, __VA_ARGS__, )
#define lk_constant_pad2d(...)    LK_CALL1_(lk_constant_pad2d_with, lk_pad_options, __VA_ARGS__, )
#define lk_constant_pad3d(...)    LK_CALL1_(lk_constant_pad3d_with, lk_pad_options, __VA_ARGS__, )
#define lk_reflection_pad1d(...)  LK_CALL1_(lk_reflection_pad1d_with, lk_pad_options, __VA_ARGS__, )
#define lk_reflection_pad2d(...)  LK_CALL1_(lk_reflection_pad2d_with, lk_pad_options, __VA_ARGS__, )
#define lk_reflection_pad3d(...)  LK_CALL1_(lk_reflection_pad3d_with, lk_pad_options, __VA_ARGS__, )
#define lk_replication_pad1d(...) LK_CALL1_(lk_replication_pad1d_with, lk_pad_options, __VA_ARGS__, )
#define lk_replication_pad2d(...) LK_CALL1_(lk_replication_pad2d_with, lk_pad_options, __VA_ARGS__, )
#define lk_replication_pad3d(...) LK_CALL1_(lk_replication_pad3d_with, lk_pad_options, __VA_ARGS__, )
lk_module *lk_zero_pad2d_with(int64_t padding, const lk_pad_options *options);
lk_module *lk_constant_pad1d_with(int64_t padding, const lk_pad_options *options);
lk_module *lk_constant_pad2d_with(int64_t padding, const lk_pad_options *options);
lk_module *lk_constant_pad3d_with(int64_t padding, const lk_pad_options *options);
lk_module *lk_reflection_pad1d_with(int64_t padding, const lk_pad_options *options);
lk_module *lk_reflection_pad2d_with(int64_t padding, const lk_pad_options *options);
lk_module *lk_reflection_pad3d_with(int64_t padding, const lk_pad_options *options);
lk_module *lk_replication_pad1d_with(int64_t padding, const lk_pad_options *options);
lk_module *lk_replication_pad2d_with(int64_t padding, const lk_pad_options *options);
lk_module *lk_replication_pad3d_with(int64_t padding, const lk_pad_options *options);

/* (..., C r r, H, W) to (..., C, H r, W r), and back. */
lk_module *lk_pixel_shuffle(int64_t upscale_factor);
lk_module *lk_pixel_unshuffle(int64_t downscale_factor);

/* ---- attention ---- */

typedef struct lk_multihead_attention_options {
    size_t struct_size;
    double dropout;     /* 0 */
    int64_t kdim, vdim; /* widths of key and value; embed_dim */
    bool no_bias;
    /* (batch, sequence, feature); PyTorch's default is (sequence, batch, feature). */
    bool batch_first;
    bool is_causal; /* query i sees keys 0 to i */
} lk_multihead_attention_options;
/* Takes query, key, value, key_padding_mask and attn_mask: see
 * lk_multihead_attention_forward_options. As a module of one input it is self-attention, query =
 * key = value = x; without a value, the key is the value too. */
#define lk_multihead_attention(...)                                                                          \
    LK_CALL2_(lk_multihead_attention_with, lk_multihead_attention_options, __VA_ARGS__, )
lk_module *lk_multihead_attention_with(int64_t embed_dim, int64_t heads,
                                       const lk_multihead_attention_options *options);

typedef struct lk_multihead_attention_forward_options {
    size_t struct_size;
    /* (N, S): bool, true for keys to ignore; or floats to add to the scores. */
    lk_value *key_padding_mask;
    /* (L, S) or (N * heads, L, S): bool, true for positions to ignore; or floats to add to the
     * scores. */
    lk_value *attn_mask;
    /* If not NULL, receives the attention weights, averaged over the heads: (N, L, S). */
    lk_value **weights;
    bool is_causal; /* query i sees keys 0 to i, whatever the module says */
} lk_multihead_attention_forward_options;
/* Attention with separate query, key and value. Returns NULL on failure. */
#define lk_multihead_attention_forward(...)                                                                  \
    LK_CALL4_(lk_multihead_attention_forward_with, lk_multihead_attention_forward_options, __VA_ARGS__, )
lk_value *lk_multihead_attention_forward_with(lk_module *module, lk_value *query, lk_value *key,
                                              lk_value *value,
                                              const lk_multihead_attention_forward_options *options);

typedef enum lk_transformer_activation { LK_TRANSFORMER_RELU, LK_TRANSFORMER_GELU } lk_transformer_activation;

typedef struct lk_transformer_encoder_layer_options {
    size_t struct_size;
    int64_t dim_feedforward; /* 2048 */
    double dropout;          /* 0.1 */
    lk_transformer_activation activation;
    double layer_norm_eps; /* 1e-5 */
    bool batch_first;
    bool norm_first;
    bool is_causal; /* a place sees itself and the places before it */
} lk_transformer_encoder_layer_options;
/* Takes src, src_mask and src_key_padding_mask. */
#define lk_transformer_encoder_layer(...)                                                                    \
    LK_CALL2_(lk_transformer_encoder_layer_with, lk_transformer_encoder_layer_options, __VA_ARGS__, )
lk_module *lk_transformer_encoder_layer_with(int64_t d_model, int64_t heads,
                                             const lk_transformer_encoder_layer_options *options);

typedef struct lk_transformer_encoder_options {
    size_t struct_size;
    lk_module *norm; /* owned; after the last layer */
    bool is_causal;  /* also in layers that do not say so themselves */
} lk_transformer_encoder_options;
/* `count` layers, which start as copies of the given one, as in PyTorch. It takes src, mask and
 * src_key_padding_mask. */
#define lk_transformer_encoder(...)                                                                          \
    LK_CALL2_(lk_transformer_encoder_with, lk_transformer_encoder_options, __VA_ARGS__, )
lk_module *lk_transformer_encoder_with(lk_module *layer_owned, int count,
                                       const lk_transformer_encoder_options *options);
/* Records an encoder, or an encoder layer, with masks. Each mask may be NULL: see
 * lk_multihead_attention_forward_options. */
lk_value *lk_transformer_encoder_forward(lk_module *module, lk_value *x, lk_value *attn_mask,
                                         lk_value *key_padding_mask);

/* Decoder layers attend to the target first, which is_causal is about, then to the memory. They
 * take tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask and memory_key_padding_mask. */
typedef lk_transformer_encoder_layer_options lk_transformer_decoder_layer_options;
#define lk_transformer_decoder_layer(...)                                                                    \
    LK_CALL2_(lk_transformer_decoder_layer_with, lk_transformer_decoder_layer_options, __VA_ARGS__, )
lk_module *lk_transformer_decoder_layer_with(int64_t d_model, int64_t heads,
                                             const lk_transformer_decoder_layer_options *options);

typedef lk_transformer_encoder_options lk_transformer_decoder_options;
/* `count` layers, which start as copies of the given one, and take what it takes. */
#define lk_transformer_decoder(...)                                                                          \
    LK_CALL2_(lk_transformer_decoder_with, lk_transformer_decoder_options, __VA_ARGS__, )
lk_module *lk_transformer_decoder_with(lk_module *layer_owned, int count,
                                       const lk_transformer_decoder_options *options);

typedef struct lk_transformer_options {
    size_t struct_size;
    int64_t d_model, nhead;                         /* 512, 8 */
    int64_t num_encoder_layers, num_decoder_layers; /* 6 */
    int64_t dim_feedforward;                        /* 2048 */
    double dropout;                                 /* 0.1 */
    lk_transformer_activation activation;
    lk_module *custom_encoder, *custom_decoder; /* owned; instead of those that they describe */
    double layer_norm_eps;                      /* 1e-5 */
    bool batch_first, norm_first;
    bool is_causal; /* of the target */
} lk_transformer_options;
/* Encoder and decoder. It takes src, tgt, src_mask, tgt_mask, memory_mask, src_key_padding_mask,
 * tgt_key_padding_mask and memory_key_padding_mask. */
#define lk_transformer(...) LK_CALL0_(lk_transformer_with, lk_transformer_options, __VA_ARGS__)
lk_module *lk_transformer_with(const lk_transformer_options *options);

/* ---- positions ---- */

typedef struct lk_positions_options {
    size_t struct_size;
    double std;  /* of the first vectors of learned positions; 1, as an Embedding's */
    double dim;  /* the axis of the places; 1; a whole number */
    double base; /* of sinusoidal ones; 1e4 */
} lk_positions_options;
/* x plus a vector for each place, learned ("weight") or made of sines and cosines. */
#define lk_learned_positions(...) LK_CALL2_(lk_learned_positions_with, lk_positions_options, __VA_ARGS__, )
#define lk_sinusoidal_positions(...)                                                                         \
    LK_CALL0_(lk_sinusoidal_positions_with, lk_positions_options, __VA_ARGS__)
lk_module *lk_learned_positions_with(int64_t max_len, int64_t features, const lk_positions_options *options);
lk_module *lk_sinusoidal_positions_with(const lk_positions_options *options);

typedef struct lk_rotary_positions_options {
    size_t struct_size;
    int64_t num_heads; /* 1 */
    int64_t features;  /* how many of a head's turn, an even number; 0: all of them */
    double base;       /* 1e4 */
    bool interleaved;  /* pairs are neighbours; else those of the first and the second half */
} lk_rotary_positions_options;
/* Turns pairs of the features of a query or a key, (N, S, E), by angles that grow with the place:
 * what comes before attention. */
#define lk_rotary_positions(...) LK_CALL0_(lk_rotary_positions_with, lk_rotary_positions_options, __VA_ARGS__)
lk_module *lk_rotary_positions_with(const lk_rotary_positions_options *options);

/* ---- recurrent layers ---- */

/* What a recurrent layer gives as a module: the outputs of all steps, or the last state of its top
 * layer, both directions side by side: (N, R) or (N, 2 R). The last state of a direction is the one
 * after its last step. */
typedef enum lk_recurrent_returns { LK_RETURNS_ALL, LK_RETURNS_LAST } lk_recurrent_returns;

typedef struct lk_recurrent_options {
    size_t struct_size;
    int64_t num_layers; /* 1 */
    bool relu;          /* of lk_rnn alone: PyTorch's nonlinearity="relu" instead of "tanh" */
    bool no_bias;
    /* (batch, sequence, feature); PyTorch's default is (sequence, batch, feature). */
    bool batch_first;
    double dropout; /* of what each layer but the last gives; needs at least 2 layers */
    bool bidirectional;
    int64_t proj_size; /* of lk_lstm alone: the width of h; 0: hidden_size */
    lk_recurrent_returns returns;
} lk_recurrent_options;
/* The input is (T, N, input_size), or (T, input_size) for one sequence. */
#define lk_lstm(...) LK_CALL2_(lk_lstm_with, lk_recurrent_options, __VA_ARGS__, )
#define lk_gru(...)  LK_CALL2_(lk_gru_with, lk_recurrent_options, __VA_ARGS__, )
#define lk_rnn(...)  LK_CALL2_(lk_rnn_with, lk_recurrent_options, __VA_ARGS__, )
lk_module *lk_lstm_with(int64_t input_size, int64_t hidden_size, const lk_recurrent_options *options);
lk_module *lk_gru_with(int64_t input_size, int64_t hidden_size, const lk_recurrent_options *options);
lk_module *lk_rnn_with(int64_t input_size, int64_t hidden_size, const lk_recurrent_options *options);

typedef struct lk_recurrent_cell_options {
    size_t struct_size;
    bool relu; /* of lk_rnn_cell alone */
    bool no_bias;
} lk_recurrent_cell_options;
/* One step: (N, input_size) -> h (N, hidden_size), from states of zero unless
 * lk_recurrent_forward gets others. */
#define lk_lstm_cell(...) LK_CALL2_(lk_lstm_cell_with, lk_recurrent_cell_options, __VA_ARGS__, )
#define lk_gru_cell(...)  LK_CALL2_(lk_gru_cell_with, lk_recurrent_cell_options, __VA_ARGS__, )
#define lk_rnn_cell(...)  LK_CALL2_(lk_rnn_cell_with, lk_recurrent_cell_options, __VA_ARGS__, )
lk_module *lk_lstm_cell_with(int64_t input_size, int64_t hidden_size,
                             const lk_recurrent_cell_options *options);
lk_module *lk_gru_cell_with(int64_t input_size, int64_t hidden_size,
                            const lk_recurrent_cell_options *options);
lk_module *lk_rnn_cell_with(int64_t input_size, int64_t hidden_size,
                            const lk_recurrent_cell_options *options);

typedef struct lk_recurrent_forward_options {
    size_t struct_size;
    /* The first states, zero if NULL: (layers * directions, N, R), c of an LSTM with its
     * hidden_size instead of R. Of a cell (N, hidden_size), of one sequence without N. */
    lk_value *h_0, *c_0;
    /* i64 (N): how many steps of each sequence count. Outputs are 0 after a sequence's end, its
     * last states are those at its end, and the reverse direction starts there. In training with
     * dropout between layers, the numbers that are drawn differ from those of PyTorch's
     * PackedSequence. */
    lk_value *lengths;
    /* If not NULL, receive the last states, in the shape of the first ones. */
    lk_value **h_n, **c_n;
} lk_recurrent_forward_options;
/* Records a recurrent layer or cell with all its inputs and results. Returns what the module gives,
 * or NULL on failure. */
#define lk_recurrent_forward(...)                                                                            \
    LK_CALL2_(lk_recurrent_forward_with, lk_recurrent_forward_options, __VA_ARGS__, )
lk_value *lk_recurrent_forward_with(lk_module *module, lk_value *x,
                                    const lk_recurrent_forward_options *options);

/* ---- patches, responses and noise ---- */

/* One number, or one per spatial axis in the array, as in lk_conv_options; there are two axes. */
typedef struct lk_unfold_options {
    size_t struct_size;
    int64_t dilation, dilations[3]; /* 1 */
    int64_t padding, paddings[3];   /* 0 */
    int64_t stride, strides[3];     /* 1 */
    int64_t kernels[3];             /* instead of `kernel` */
    int64_t output_sizes[3];        /* of lk_fold: instead of `output_size` */
} lk_unfold_options;
/* (N, C, H, W) to (N, C k k, L): the patches that a convolution looks at, one per column; and back,
 * where patches that overlap are added. */
#define lk_unfold(...) LK_CALL1_(lk_unfold_with, lk_unfold_options, __VA_ARGS__, )
#define lk_fold(...)   LK_CALL2_(lk_fold_with, lk_unfold_options, __VA_ARGS__, )
lk_module *lk_unfold_with(int64_t kernel, const lk_unfold_options *options);
lk_module *lk_fold_with(int64_t output_size, int64_t kernel, const lk_unfold_options *options);

/* Channels of `groups` groups take turns: (N, g c, ...) as (N, c g, ...). */
lk_module *lk_channel_shuffle(int64_t groups);
/* Softmax over the channels of (N, C, H, W) or (C, H, W). */
lk_module *lk_softmax2d(void);

typedef struct lk_local_response_norm_options {
    size_t struct_size;
    double alpha; /* 1e-4 */
    double beta;  /* 0.75 */
    double k;     /* 1 */
} lk_local_response_norm_options;
/* x / (k + alpha mean of x^2 over `size` neighbouring channels)^beta */
#define lk_local_response_norm(...)                                                                          \
    LK_CALL1_(lk_local_response_norm_with, lk_local_response_norm_options, __VA_ARGS__, )
lk_module *lk_local_response_norm_with(int64_t size, const lk_local_response_norm_options *options);

typedef struct lk_lp_pool_options {
    size_t struct_size;
    int64_t stride, strides[3]; /* the kernel size */
    int64_t kernels[3];         /* instead of `kernel` */
    bool ceil_mode;
} lk_lp_pool_options;
/* The p-th root of the sum of x^p over windows. As in PyTorch, a window whose sum is not above 0
 * gives 0, and its gradient is not a number unless p is 1. */
#define lk_lp_pool1d(...) LK_CALL2_(lk_lp_pool1d_with, lk_lp_pool_options, __VA_ARGS__, )
#define lk_lp_pool2d(...) LK_CALL2_(lk_lp_pool2d_with, lk_lp_pool_options, __VA_ARGS__, )
lk_module *lk_lp_pool1d_with(double norm_type, int64_t kernel, const lk_lp_pool_options *options);
lk_module *lk_lp_pool2d_with(double norm_type, int64_t kernel, const lk_lp_pool_options *options);

/* Dropout that keeps the mean and the variance of what SELU gives: of elements, and of whole
 * channels. */
#define lk_alpha_dropout(...) LK_CALL0_(lk_alpha_dropout_with, lk_dropout_options, __VA_ARGS__)
#define lk_feature_alpha_dropout(...)                                                                        \
    LK_CALL0_(lk_feature_alpha_dropout_with, lk_dropout_options, __VA_ARGS__)
lk_module *lk_alpha_dropout_with(const lk_dropout_options *options);
lk_module *lk_feature_alpha_dropout_with(const lk_dropout_options *options);

typedef struct lk_rrelu_options {
    size_t struct_size;
    double lower, upper; /* 1 / 8, 1 / 3 */
} lk_rrelu_options;
/* A leaky ReLU whose slope is drawn for each element in training, and is the middle in evaluation.
 * The draws differ from PyTorch's, which draws none for elements above 0. */
#define lk_rrelu(...) LK_CALL0_(lk_rrelu_with, lk_rrelu_options, __VA_ARGS__)
lk_module *lk_rrelu_with(const lk_rrelu_options *options);

/* ---- two inputs: lk_module_call, or a node of a graph ---- */

typedef struct lk_similarity_options {
    size_t struct_size;
    double dim;   /* of the cosine: the axis; 1; a whole number */
    double p;     /* of the distance: 2; at least 0, or INFINITY */
    double eps;   /* of the cosine 1e-8, of the distance 1e-6 */
    bool keepdim; /* of the distance */
} lk_similarity_options;
/* Take x1 and x2, which broadcast: the cosine along an axis, and |x1 - x2 + eps|_p along the last
 * axis. */
#define lk_cosine_similarity(...) LK_CALL0_(lk_cosine_similarity_with, lk_similarity_options, __VA_ARGS__)
#define lk_pairwise_distance(...) LK_CALL0_(lk_pairwise_distance_with, lk_similarity_options, __VA_ARGS__)
lk_module *lk_cosine_similarity_with(const lk_similarity_options *options);
lk_module *lk_pairwise_distance_with(const lk_similarity_options *options);

/* Takes x1 (..., in1) and x2 (..., in2): y_k = x1 W_k x2 + b_k. */
#define lk_bilinear(...) LK_CALL3_(lk_bilinear_with, lk_linear_options, __VA_ARGS__, )
lk_module *lk_bilinear_with(int64_t in1_features, int64_t in2_features, int64_t out_features,
                            const lk_linear_options *options);

typedef enum lk_bag_mode { LK_BAG_MEAN, LK_BAG_SUM, LK_BAG_MAX } lk_bag_mode;

typedef struct lk_embedding_bag_options {
    size_t struct_size;
    lk_bag_mode mode; /* mean */
    /* A row that does not count and is not trained; none. A whole number; negative ones count from
     * the end. */
    double padding_idx;
    bool include_last_offset; /* the last offset is the end of the last bag */
    bool scale_grad_by_freq;  /* as in lk_embedding_options; not with LK_BAG_MAX */
} lk_embedding_bag_options;
/* Takes input, offsets and per_sample_weights: the rows of each bag as one. The bags are the rows
 * of i64 (B, n), or parts of i64 (n) that begin at i64 offsets (B). The weights, of the input's
 * shape, are for sums alone. A bag without a row that counts gives 0. */
#define lk_embedding_bag(...) LK_CALL2_(lk_embedding_bag_with, lk_embedding_bag_options, __VA_ARGS__, )
lk_module *lk_embedding_bag_with(int64_t count, int64_t dim, const lk_embedding_bag_options *options);

/* ---- initialisers: as torch.nn.init, from the default generator ---- */

typedef enum lk_nonlinearity {
    LK_NONLINEARITY_LEAKY_RELU,
    LK_NONLINEARITY_LINEAR,
    LK_NONLINEARITY_SIGMOID,
    LK_NONLINEARITY_TANH,
    LK_NONLINEARITY_RELU,
    LK_NONLINEARITY_SELU,
} lk_nonlinearity;

/* torch.nn.init.calculate_gain; `slope` is that of leaky_relu. */
double lk_init_gain(lk_nonlinearity nonlinearity, double slope);

typedef struct lk_kaiming_options {
    size_t struct_size;
    double a; /* negative slope of the leaky relu that follows; 0 */
    bool fan_out;
    lk_nonlinearity nonlinearity;
} lk_kaiming_options;

/* Each initialiser fills the parameter from the default generator. It fails with LK_ERR_SHAPE or
 * LK_ERR_INVALID if the shape or the numbers do not suit. */
lk_status lk_init_uniform(lk_param *param, double from, double to);
lk_status lk_init_normal(lk_param *param, double mean, double std);
/* A normal distribution that is cut off outside of [low, high]. */
lk_status lk_init_trunc_normal(lk_param *param, double mean, double std, double low, double high);
lk_status lk_init_constant(lk_param *param, double value);
lk_status lk_init_xavier_uniform(lk_param *param, double gain);
lk_status lk_init_xavier_normal(lk_param *param, double gain);
#define lk_init_kaiming_uniform(...)                                                                         \
    LK_CALL1_(lk_init_kaiming_uniform_with, lk_kaiming_options, __VA_ARGS__, )
#define lk_init_kaiming_normal(...) LK_CALL1_(lk_init_kaiming_normal_with, lk_kaiming_options, __VA_ARGS__, )
lk_status lk_init_kaiming_uniform_with(lk_param *param, const lk_kaiming_options *options);
lk_status lk_init_kaiming_normal_with(lk_param *param, const lk_kaiming_options *options);
lk_status lk_init_orthogonal(lk_param *param, double gain);

/* ---- losses ---- */

typedef struct lk_criterion lk_criterion;
/* Computes a loss from two values. */
typedef lk_value *(*lk_criterion_function)(lk_value *prediction, lk_value *target, void *context);
/* Computes a loss from several values. */
typedef lk_value *(*lk_criterion_call_function)(lk_value *const *inputs, int count, void *context);

/* Records the loss and returns it. Returns NULL if an argument is NULL or an op fails. */
lk_value *lk_criterion_forward(lk_criterion *criterion, lk_value *prediction, lk_value *target);
/* The same for a loss of several values, in the order of the arguments of PyTorch's forward:
 * lk_criterion_call(triplet, LK_VALUES(anchor, positive, negative)). Any other loss takes two. */
lk_value *lk_criterion_call(lk_criterion *criterion, lk_value *const *inputs, int count);
/* Frees the criterion. NULL is allowed. */
void lk_criterion_free(lk_criterion *criterion);
const char *lk_criterion_type(const lk_criterion *criterion);

typedef struct lk_cross_entropy_loss_options {
    size_t struct_size;
    const lk_tensor *weight; /* (classes); copied */
    double label_smoothing;
    double ignore_index; /* targets that do not count; -100; a whole number */
    lk_reduction reduction;
} lk_cross_entropy_loss_options;
/* Targets are i64 classes, or f32 probabilities with the shape of the logits. */
#define lk_cross_entropy_loss(...)                                                                           \
    LK_CALL0_(lk_cross_entropy_loss_with, lk_cross_entropy_loss_options, __VA_ARGS__)
lk_criterion *lk_cross_entropy_loss_with(const lk_cross_entropy_loss_options *options);

typedef struct lk_nll_loss_options {
    size_t struct_size;
    const lk_tensor *weight; /* (classes); copied */
    double ignore_index;     /* targets that do not count; -100; a whole number */
    lk_reduction reduction;
} lk_nll_loss_options;
#define lk_nll_loss(...) LK_CALL0_(lk_nll_loss_with, lk_nll_loss_options, __VA_ARGS__)
lk_criterion *lk_nll_loss_with(const lk_nll_loss_options *options);

typedef struct lk_bce_options {
    size_t struct_size;
    const lk_tensor *weight; /* broadcast to the prediction; copied */
    /* Only bce_with_logits; broadcast to the prediction; copied. */
    const lk_tensor *pos_weight;
    lk_reduction reduction;
} lk_bce_options;
#define lk_bce_loss(...)             LK_CALL0_(lk_bce_loss_with, lk_bce_options, __VA_ARGS__)
#define lk_bce_with_logits_loss(...) LK_CALL0_(lk_bce_with_logits_loss_with, lk_bce_options, __VA_ARGS__)
lk_criterion *lk_bce_loss_with(const lk_bce_options *options);
lk_criterion *lk_bce_with_logits_loss_with(const lk_bce_options *options);

typedef struct lk_regression_options {
    size_t struct_size;
    double beta;  /* of smooth_l1; 1 */
    double delta; /* of huber; 1 */
    lk_reduction reduction;
} lk_regression_options;
#define lk_mse_loss(...)       LK_CALL0_(lk_mse_loss_with, lk_regression_options, __VA_ARGS__)
#define lk_l1_loss(...)        LK_CALL0_(lk_l1_loss_with, lk_regression_options, __VA_ARGS__)
#define lk_smooth_l1_loss(...) LK_CALL0_(lk_smooth_l1_loss_with, lk_regression_options, __VA_ARGS__)
#define lk_huber_loss(...)     LK_CALL0_(lk_huber_loss_with, lk_regression_options, __VA_ARGS__)
lk_criterion *lk_mse_loss_with(const lk_regression_options *options);
lk_criterion *lk_l1_loss_with(const lk_regression_options *options);
lk_criterion *lk_smooth_l1_loss_with(const lk_regression_options *options);
lk_criterion *lk_huber_loss_with(const lk_regression_options *options);

typedef struct lk_kl_div_loss_options {
    size_t struct_size;
    bool log_target;
    lk_reduction reduction; /* LK_REDUCTION_BATCH_MEAN is the mathematical definition */
} lk_kl_div_loss_options;
#define lk_kl_div_loss(...) LK_CALL0_(lk_kl_div_loss_with, lk_kl_div_loss_options, __VA_ARGS__)
lk_criterion *lk_kl_div_loss_with(const lk_kl_div_loss_options *options);

typedef struct lk_margin_loss_options {
    size_t struct_size;
    double margin; /* of hinge_embedding; 1 */
    lk_reduction reduction;
} lk_margin_loss_options;
/* Targets of 1 and -1. */
#define lk_soft_margin_loss(...) LK_CALL0_(lk_soft_margin_loss_with, lk_margin_loss_options, __VA_ARGS__)
#define lk_hinge_embedding_loss(...)                                                                         \
    LK_CALL0_(lk_hinge_embedding_loss_with, lk_margin_loss_options, __VA_ARGS__)
lk_criterion *lk_soft_margin_loss_with(const lk_margin_loss_options *options);
lk_criterion *lk_hinge_embedding_loss_with(const lk_margin_loss_options *options);

typedef struct lk_poisson_nll_loss_options {
    size_t struct_size;
    bool no_log_input; /* the prediction is the rate itself, not its logarithm */
    bool full;         /* with Stirling's approximation of log(target!) */
    double eps;        /* 1e-8; of the logarithm of a rate */
    lk_reduction reduction;
} lk_poisson_nll_loss_options;
#define lk_poisson_nll_loss(...) LK_CALL0_(lk_poisson_nll_loss_with, lk_poisson_nll_loss_options, __VA_ARGS__)
lk_criterion *lk_poisson_nll_loss_with(const lk_poisson_nll_loss_options *options);

typedef struct lk_multi_margin_loss_options {
    size_t struct_size;
    int p;                   /* of multi_margin: 1 or 2; 1 */
    double margin;           /* of multi_margin; 1 */
    const lk_tensor *weight; /* (classes); copied */
    lk_reduction reduction;
} lk_multi_margin_loss_options;
/* Predictions (N, C) and i64 classes (N). */
#define lk_multi_margin_loss(...)                                                                            \
    LK_CALL0_(lk_multi_margin_loss_with, lk_multi_margin_loss_options, __VA_ARGS__)
/* Logits against 0 and 1, averaged over the classes. */
#define lk_multi_label_soft_margin_loss(...)                                                                 \
    LK_CALL0_(lk_multi_label_soft_margin_loss_with, lk_multi_margin_loss_options, __VA_ARGS__)
lk_criterion *lk_multi_margin_loss_with(const lk_multi_margin_loss_options *options);
lk_criterion *lk_multi_label_soft_margin_loss_with(const lk_multi_margin_loss_options *options);

/* ---- losses of several values, for lk_criterion_call and the keys of a criterion callback ---- */

typedef struct lk_triplet_margin_loss_options {
    size_t struct_size;
    double margin; /* 1 */
    double p;      /* of the distance; 2; at least 0, or INFINITY */
    double eps;    /* 1e-6; added to the differences */
    bool swap;     /* the negative's distance to the positive counts if it is smaller */
    lk_reduction reduction;
} lk_triplet_margin_loss_options;
/* max(0, d(anchor, positive) - d(anchor, negative) + margin) of three values of one shape (N, D)
 * or (D). */
#define lk_triplet_margin_loss(...)                                                                          \
    LK_CALL0_(lk_triplet_margin_loss_with, lk_triplet_margin_loss_options, __VA_ARGS__)
lk_criterion *lk_triplet_margin_loss_with(const lk_triplet_margin_loss_options *options);

typedef struct lk_pair_loss_options {
    size_t struct_size;
    double margin; /* 0 */
    lk_reduction reduction;
} lk_pair_loss_options;
/* Take x1, x2 and a target of 1 and -1: the cosine of two embeddings, (N, D) or (D), which are
 * alike (1) or not; and two scores of one shape, of which the first must be larger (1) or smaller.
 */
#define lk_cosine_embedding_loss(...)                                                                        \
    LK_CALL0_(lk_cosine_embedding_loss_with, lk_pair_loss_options, __VA_ARGS__)
#define lk_margin_ranking_loss(...) LK_CALL0_(lk_margin_ranking_loss_with, lk_pair_loss_options, __VA_ARGS__)
lk_criterion *lk_cosine_embedding_loss_with(const lk_pair_loss_options *options);
lk_criterion *lk_margin_ranking_loss_with(const lk_pair_loss_options *options);

typedef struct lk_gaussian_nll_loss_options {
    size_t struct_size;
    bool full;  /* with the constant log(2 pi) / 2 */
    double eps; /* 1e-6; the smallest variance */
    lk_reduction reduction;
} lk_gaussian_nll_loss_options;
/* Takes the prediction, the target and the variance: of the prediction's shape, or with 1 in the
 * place of its last axis, or without that axis. */
#define lk_gaussian_nll_loss(...)                                                                            \
    LK_CALL0_(lk_gaussian_nll_loss_with, lk_gaussian_nll_loss_options, __VA_ARGS__)
lk_criterion *lk_gaussian_nll_loss_with(const lk_gaussian_nll_loss_options *options);

typedef struct lk_ctc_loss_options {
    size_t struct_size;
    int64_t blank; /* 0: the class that stands for nothing */
    lk_reduction reduction;
    bool zero_infinity; /* a target that is too long for its input costs 0 instead of infinity */
} lk_ctc_loss_options;
/* Takes log-probabilities (T, N, C), i64 targets (N, S), or (sum of the target lengths) one after
 * the other, and the i64 lengths of inputs and targets, (N) each; or all of them without N. The
 * mean divides each loss by the length of its target first. The graph grows with T. */
#define lk_ctc_loss(...) LK_CALL0_(lk_ctc_loss_with, lk_ctc_loss_options, __VA_ARGS__)
lk_criterion *lk_ctc_loss_with(const lk_ctc_loss_options *options);

typedef struct lk_multi_label_margin_loss_options {
    size_t struct_size;
    lk_reduction reduction;
} lk_multi_label_margin_loss_options;
/* Two values: scores (N, C) or (C), and i64 classes of the same shape, of which those before the
 * first -1 count. Each of them must win against each other class by 1. */
#define lk_multi_label_margin_loss(...)                                                                      \
    LK_CALL0_(lk_multi_label_margin_loss_with, lk_multi_label_margin_loss_options, __VA_ARGS__)
lk_criterion *lk_multi_label_margin_loss_with(const lk_multi_label_margin_loss_options *options);

typedef struct lk_custom_criterion_options {
    size_t struct_size;
    const char *type; /* "Custom" */
    lk_criterion_function forward;
    void *context;
    void (*free_context)(void *context); /* optional; also called if the constructor fails */
    /* Instead of `forward`, for several values; how many it takes, 0 for any number. */
    lk_criterion_call_function call;
    int inputs;
} lk_custom_criterion_options;
/* A loss of your own: a C function over values. */
#define lk_custom_criterion(...) LK_CALL0_(lk_custom_criterion_with, lk_custom_criterion_options, __VA_ARGS__)
lk_criterion *lk_custom_criterion_with(const lk_custom_criterion_options *options);

/* Writes the model, as it evaluates, to an ONNX file (opset 17) with one input, "input", and one
 * output, "output". The features give the dtype and the shape of the input; its dimension 0, the
 * batch, may have any size later. The weights keep PyTorch's names. Fails with LK_ERR_UNSUPPORTED
 * and the layer's name if ONNX has no standard op for what the layer does, or if the library was
 * built without ONNX. */
lk_status lk_export_onnx(lk_module *module, const char *path, const lk_tensor *features);

#ifdef __cplusplus
}
#endif
#endif
