/* torch.nn's layers. */
#include "config/components/components.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"

#include <lockstep/nn.h>

#include <string.h>

/* Takes all modules of an argument; the caller frees the array, whose modules the constructors free. */
static lk_status take_modules(lk_args *args, const char *name, lk_named_module **out, int *count)
{
    *count = lk_arg_count(args, name);
    lk_named_module *modules = LKI_NEW_ARRAY(lk_named_module, *count + 1);
    if (!modules) return LK_ERR_NOMEM;
    for (int i = 0; i < *count; i++) {
        modules[i].name = lk_arg_key_at(args, name, i);
        modules[i].module = lk_arg_take_at(args, name, i);
    }
    *out = modules;
    return LK_OK;
}

typedef lk_module *(*container_constructor)(lk_module *const *modules, int count);
typedef struct container {
    container_constructor create;
} container;

static lk_status build_container(const lk_component *self, lk_args *args, void **out)
{
    const container *kind = self->context;
    lk_named_module *named = NULL;
    lk_module *module, **plain;
    int count;
    LKI_TRY(take_modules(args, "args", &named, &count));
    if (count > 0 && named[0].name && kind->create == lk_sequential_with)
        module = lk_named_sequential_with((lk_named_module_list){named, count});
    else {
        plain = LKI_NEW_ARRAY(lk_module *, count + 1);
        for (int i = 0; plain && i < count; i++) plain[i] = named[i].module;
        module = plain ? kind->create(plain, count) : NULL;
        for (int i = 0; !plain && i < count; i++) lk_module_free(named[i].module);
        lki_free(plain);
    }
    lki_free(named);
    return lki_built(module, out);
}

static lk_status build_linear(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_linear(lk_arg_int64(args, "in_features"), lk_arg_int64(args, "out_features"),
                               .no_bias = !lk_arg_bool(args, "bias")),
                     out);
}

typedef struct batch_norm {
    lk_module *(*create)(int64_t features, const lk_batch_norm_options *options);
} batch_norm;

static lk_status build_batch_norm(const lk_component *self, lk_args *args, void **out)
{
    const batch_norm *kind = self->context;
    lk_batch_norm_options options = {
        LK_SIZE(lk_batch_norm_options),
        .eps = lki_number_meant(lk_arg_float(args, "eps")),
        .cumulative = lk_arg_is_null_at(args, "momentum", 0),
        .no_affine = !lk_arg_bool(args, "affine"),
        .no_track_running_stats = !lk_arg_bool(args, "track_running_stats"),
    };
    if (!options.cumulative) options.momentum = lki_number_meant(lk_arg_float(args, "momentum"));
    return lki_built(kind->create(lk_arg_int64(args, "num_features"), &options), out);
}

static lk_status read_shape(lk_args *args, const char *name, lk_shape *shape)
{
    shape->rank = lk_arg_count(args, name);
    if (shape->rank > LK_MAX_DIMS)
        return lki_fail(LK_ERR_CONFIG, "%s: at most %d sizes, found %d", name, LK_MAX_DIMS, shape->rank);
    for (int i = 0; i < shape->rank; i++) shape->dim[i] = lk_arg_int_at(args, name, i);
    return LK_OK;
}

static lk_status build_layer_norm(const lk_component *self, lk_args *args, void **out)
{
    lk_shape shape;
    (void)self;
    LKI_TRY(read_shape(args, "normalized_shape", &shape));
    lk_norm_options options = {LK_SIZE(lk_norm_options), .eps = lki_number_meant(lk_arg_float(args, "eps")),
                               .no_affine = !lk_arg_bool(args, "elementwise_affine")};
    return lki_built(lk_layer_norm_with(shape, &options), out);
}

static lk_status build_group_norm(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    lk_norm_options options = {LK_SIZE(lk_norm_options), .eps = lki_number_meant(lk_arg_float(args, "eps")),
                               .no_affine = !lk_arg_bool(args, "affine")};
    return lki_built(
        lk_group_norm_with(lk_arg_int64(args, "num_groups"), lk_arg_int64(args, "num_channels"), &options),
        out);
}

static lk_status build_dropout(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_dropout(.p = lki_number_meant(lk_arg_float(args, "p"))), out);
}

static lk_status build_embedding(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    double padding =
        lk_arg_given(args, "padding_idx") ? lki_number_meant(lk_arg_int(args, "padding_idx")) : 0;
    return lki_built(lk_embedding(lk_arg_int64(args, "num_embeddings"), lk_arg_int64(args, "embedding_dim"),
                                  .padding_idx = padding,
                                  .scale_grad_by_freq = lk_arg_bool(args, "scale_grad_by_freq")),
                     out);
}

static lk_status build_flatten(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_flatten(.start_dim = lki_number_meant(lk_arg_int(args, "start_dim")),
                                .end_dim = lki_number_meant(lk_arg_int(args, "end_dim"))),
                     out);
}

static lk_status build_unflatten(const lk_component *self, lk_args *args, void **out)
{
    lk_shape sizes;
    (void)self;
    LKI_TRY(read_shape(args, "unflattened_size", &sizes));
    return lki_built(lk_unflatten(lk_arg_int(args, "dim"), sizes), out);
}

/* Activations without numbers of their own. */
typedef struct plain {
    lk_module *(*create)(void);
} plain;

static lk_status build_plain(const lk_component *self, lk_args *args, void **out)
{
    const plain *kind = self->context;
    (void)args;
    return lki_built(kind->create(), out);
}

static lk_status build_softmax(const lk_component *self, lk_args *args, void **out)
{
    int dim = lk_arg_int(args, "dim");
    return lki_built(!strcmp(self->name, "Softmax") ? lk_softmax(dim) : lk_log_softmax(dim), out);
}

static lk_status build_leaky_relu(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_leaky_relu(.negative_slope = lki_number_meant(lk_arg_float(args, "negative_slope"))),
                     out);
}

static lk_status build_elu(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_elu(.alpha = lki_number_meant(lk_arg_float(args, "alpha"))), out);
}

static lk_status build_gelu(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_gelu(.approximate_tanh = !strcmp(lk_arg_string(args, "approximate"), "tanh")), out);
}

static lk_status build_softplus(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_softplus(.beta = lki_number_meant(lk_arg_float(args, "beta")),
                                 .threshold = lki_number_meant(lk_arg_float(args, "threshold"))),
                     out);
}

static lk_status build_attention(const lk_component *self, lk_args *args, void **out)
{
    lk_multihead_attention_options options = {
        LK_SIZE(lk_multihead_attention_options),
        .dropout = lk_arg_float(args, "dropout"),
        .no_bias = !lk_arg_bool(args, "bias"),
        .kdim = lk_arg_int(args, "kdim"),
        .vdim = lk_arg_int(args, "vdim"),
        .batch_first = lk_arg_bool(args, "batch_first"),
        .is_causal = lk_arg_bool(args, "is_causal"),
    };
    (void)self;
    return lki_built(lk_multihead_attention_with(lk_arg_int64(args, "embed_dim"),
                                                 lk_arg_int64(args, "num_heads"), &options),
                     out);
}

/* LSTM, GRU and RNN; a key that a layer lacks is not in its table. */
typedef struct recurrent {
    lk_module *(*create)(int64_t input_size, int64_t hidden_size, const lk_recurrent_options *options);
} recurrent;

static lk_status build_recurrent(const lk_component *self, lk_args *args, void **out)
{
    const recurrent *kind = self->context;
    lk_recurrent_options options = {
        LK_SIZE(lk_recurrent_options),
        .num_layers = lk_arg_int64(args, "num_layers"),
        .no_bias = !lk_arg_bool(args, "bias"),
        .batch_first = lk_arg_bool(args, "batch_first"),
        .dropout = lk_arg_float(args, "dropout"),
        .bidirectional = lk_arg_bool(args, "bidirectional"),
        .returns = strcmp(lk_arg_string(args, "returns"), "last") ? LK_RETURNS_ALL : LK_RETURNS_LAST,
    };
    if (options.num_layers < 1)
        return lki_fail(LK_ERR_CONFIG, "num_layers: expected at least 1, found %lld",
                        (long long)options.num_layers);
    if (kind->create == lk_lstm_with) options.proj_size = lk_arg_int64(args, "proj_size");
    if (kind->create == lk_rnn_with) options.relu = !strcmp(lk_arg_string(args, "nonlinearity"), "relu");
    return lki_built(
        kind->create(lk_arg_int64(args, "input_size"), lk_arg_int64(args, "hidden_size"), &options), out);
}

typedef struct recurrent_cell {
    lk_module *(*create)(int64_t input_size, int64_t hidden_size, const lk_recurrent_cell_options *options);
} recurrent_cell;

static lk_status build_recurrent_cell(const lk_component *self, lk_args *args, void **out)
{
    const recurrent_cell *kind = self->context;
    lk_recurrent_cell_options options = {LK_SIZE(lk_recurrent_cell_options),
                                         .no_bias = !lk_arg_bool(args, "bias")};
    if (kind->create == lk_rnn_cell_with) options.relu = !strcmp(lk_arg_string(args, "nonlinearity"), "relu");
    return lki_built(
        kind->create(lk_arg_int64(args, "input_size"), lk_arg_int64(args, "hidden_size"), &options), out);
}

#define INPLACE LKI_NO_EFFECT("inplace", "false", "the plan decides what can be done in place")

static const lk_parameter container_parameters[] = {
    LKI_OBJECTS("args", MODULE, LKI_OPTIONAL, "the modules, in order; a map gives them names"),
    {0},
};
static const lk_parameter residual_parameters[] = {
    LKI_OBJECTS("args", MODULE, LKI_OPTIONAL, "the modules, in order"),
    LKI_OBJECT("shortcut", MODULE, LKI_OPTIONAL,
               "what x goes through before it is added; x itself where left out"),
    {0},
};
static const lk_parameter linear_parameters[] = {
    LKI_INT("in_features", LKI_REQUIRED, "size of the input's last axis"),
    LKI_INT("out_features", LKI_REQUIRED, "size of the output's last axis"),
    LKI_BOOL("bias", "true", "add a learned number to each output"),
    {0},
};
static const lk_parameter batch_norm_parameters[] = {
    LKI_INT("num_features", LKI_REQUIRED, "channels of the input"),
    LKI_FLOAT("eps", "1e-5", "added to the variance"),
    LKI_FLOAT_OR_NULL(
        "momentum", "0.1",
        "how much the running values follow each batch; null: they are the mean of all batches"),
    LKI_BOOL("affine", "true", "learn a weight and a bias"),
    LKI_BOOL("track_running_stats", "true", "keep running values for evaluation"),
    {0},
};
static const lk_parameter layer_norm_parameters[] = {
    LKI_INTS("normalized_shape", LKI_REQUIRED, "the last axes' sizes"),
    LKI_FLOAT("eps", "1e-5", "added to the variance"),
    LKI_BOOL("elementwise_affine", "true", "learn a weight and a bias"),
    {0},
};
static const lk_parameter group_norm_parameters[] = {
    LKI_INT("num_groups", LKI_REQUIRED, "groups of channels"),
    LKI_INT("num_channels", LKI_REQUIRED, "channels of the input"),
    LKI_FLOAT("eps", "1e-5", "added to the variance"),
    LKI_BOOL("affine", "true", "learn a weight and a bias"),
    {0},
};
static const lk_parameter dropout_parameters[] = {
    LKI_FLOAT("p", "0.5", "how many values become zero"), INPLACE, {0}};
static const lk_parameter embedding_parameters[] = {
    LKI_INT("num_embeddings", LKI_REQUIRED, "how many vectors there are"),
    LKI_INT("embedding_dim", LKI_REQUIRED, "the size of a vector"),
    LKI_INT("padding_idx", LKI_OPTIONAL, "the vector that stays zero"),
    LKI_REFUSED("max_norm", NULL, "leave it out: no forward pass changes weights"),
    LKI_REFUSED("norm_type", "2", "leave it out: it belongs to max_norm"),
    LKI_BOOL("scale_grad_by_freq", "false", "divide a vector's gradient by how often the batch has it"),
    LKI_NO_EFFECT("sparse", "false", "gradients are dense"),
    {0},
};
static const lk_parameter flatten_parameters[] = {
    LKI_INT("start_dim", "1", "the first axis to join"), LKI_INT("end_dim", "-1", "the last one"), {0}};
static const lk_parameter unflatten_parameters[] = {
    LKI_INT("dim", LKI_REQUIRED, "the axis to divide"),
    LKI_INTS("unflattened_size", LKI_REQUIRED, "the sizes it is divided into; one may be -1"),
    {0},
};
static const lk_parameter identity_parameters[] = {
    LKI_NO_EFFECT("args", NULL, "as in PyTorch, Identity reads none"), {0}};
static const lk_parameter inplace_parameters[] = {INPLACE, {0}};
static const lk_parameter softmax_parameters[] = {LKI_INT("dim", LKI_REQUIRED, "the axis that sums to one"),
                                                  {0}};
static const lk_parameter leaky_relu_parameters[] = {
    LKI_FLOAT("negative_slope", "0.01", "the slope below zero"), INPLACE, {0}};
static const lk_parameter elu_parameters[] = {
    LKI_FLOAT("alpha", "1.0", "minus the limit below zero"), INPLACE, {0}};
static const lk_parameter gelu_parameters[] = {
    LKI_CHOICE("approximate", "none", "none|tanh", "the formula: exact, or by the hyperbolic tangent"), {0}};
static const lk_parameter softplus_parameters[] = {
    LKI_FLOAT("beta", "1", "log(1 + exp(beta x)) / beta"),
    LKI_FLOAT("threshold", "20", "x itself where beta x is above this"),
    {0}};
static const lk_parameter attention_parameters[] = {
    LKI_INT("embed_dim", LKI_REQUIRED, "size of the features"),
    LKI_INT("num_heads", LKI_REQUIRED, "heads, among which the features are divided"),
    LKI_FLOAT("dropout", "0.0", "how many attention weights become zero"),
    LKI_BOOL("bias", "true", "add learned numbers to the projections"),
    LKI_INT("kdim", LKI_OPTIONAL, "size of the keys; embed_dim where left out"),
    LKI_INT("vdim", LKI_OPTIONAL, "size of the values; embed_dim where left out"),
    LKI_BOOL("batch_first", "false", "the input is (batch, sequence, feature)"),
    LKI_BOOL("is_causal", "false", "query i sees keys 0 to i"),
    {0},
};
#define RECURRENT_SIZES                                                                                      \
    LKI_INT("input_size", LKI_REQUIRED, "size of the input's last axis"),                                    \
        LKI_INT("hidden_size", LKI_REQUIRED, "units per layer and direction")
#define RECURRENT_BIAS         LKI_BOOL("bias", "true", "add learned numbers to the gates")
#define RECURRENT_NONLINEARITY LKI_CHOICE("nonlinearity", "tanh", "tanh|relu", "what makes the new state")
#define RECURRENT_LAYERS                                                                                     \
    LKI_INT("num_layers", "1", "layers, each over the outputs of the one before"), RECURRENT_BIAS,           \
        LKI_BOOL("batch_first", "false", "the input is (batch, sequence, feature)"),                         \
        LKI_FLOAT("dropout", "0.0", "how many values become zero between layers"),                           \
        LKI_BOOL("bidirectional", "false", "also run from the last step to the first"),                      \
        LKI_CHOICE("returns", "all", "all|last",                                                             \
                   "what the module gives: the outputs of all steps, or the last state of the top layer")
static const lk_parameter lstm_parameters[] = {
    RECURRENT_SIZES,
    RECURRENT_LAYERS,
    LKI_INT("proj_size", "0", "size that the hidden state is projected to; 0: hidden_size"),
    {0},
};
static const lk_parameter gru_parameters[] = {RECURRENT_SIZES, RECURRENT_LAYERS, {0}};
static const lk_parameter rnn_parameters[] = {RECURRENT_SIZES, RECURRENT_LAYERS, RECURRENT_NONLINEARITY, {0}};
static const lk_parameter cell_parameters[] = {RECURRENT_SIZES, RECURRENT_BIAS, {0}};
static const lk_parameter rnn_cell_parameters[] = {
    RECURRENT_SIZES, RECURRENT_BIAS, RECURRENT_NONLINEARITY, {0}};

#define RECURRENT(parameters_, create_)                                                                      \
    .parameters = parameters_, .build = build_recurrent, .context = &(const recurrent)                       \
    {                                                                                                        \
        create_                                                                                              \
    }
#define RECURRENT_CELL(parameters_, create_)                                                                 \
    .parameters = parameters_, .build = build_recurrent_cell, .context = &(const recurrent_cell)             \
    {                                                                                                        \
        create_                                                                                              \
    }

#define CONTAINER(create_)                                                                                   \
    .parameters = container_parameters, .rest = "args", .build = build_container,                            \
    .context = &(const container)                                                                            \
    {                                                                                                        \
        create_                                                                                              \
    }
#define BATCH_NORM(create_)                                                                                  \
    .parameters = batch_norm_parameters, .build = build_batch_norm, .context = &(const batch_norm)           \
    {                                                                                                        \
        create_                                                                                              \
    }
#define PLAIN(create_)                                                                                       \
    .build = build_plain, .context = &(const plain)                                                          \
    {                                                                                                        \
        create_                                                                                              \
    }
#define INPLACE_PLAIN(create_) .parameters = inplace_parameters, PLAIN(create_)

const lk_component lki_module_components[] = {
    {"Sequential", "torch.nn.Sequential", LK_KIND_MODULE, "Modules one after the other.",
     CONTAINER(lk_sequential_with)},
    {"Residual", NULL, LK_KIND_MODULE, "x plus what the modules, one after the other, make of it.",
     .parameters = residual_parameters, .rest = "args", .build = lki_build_residual},
    {"Linear", "torch.nn.Linear", LK_KIND_MODULE, "x W^T + b over the last axis.",
     .parameters = linear_parameters, .build = build_linear},
    {"BatchNorm1d", "torch.nn.BatchNorm1d", LK_KIND_MODULE,
     "Normalises each channel over the batch: (N, C) or (N, C, L).", BATCH_NORM(lk_batch_norm1d_with)},
    {"BatchNorm2d", "torch.nn.BatchNorm2d", LK_KIND_MODULE,
     "Normalises each channel over the batch: (N, C, H, W).", BATCH_NORM(lk_batch_norm2d_with)},
    {"BatchNorm3d", "torch.nn.BatchNorm3d", LK_KIND_MODULE,
     "Normalises each channel over the batch: (N, C, D, H, W).", BATCH_NORM(lk_batch_norm3d_with)},
    {"LayerNorm", "torch.nn.LayerNorm", LK_KIND_MODULE, "Normalises over the last axes.",
     .parameters = layer_norm_parameters, .build = build_layer_norm},
    {"GroupNorm", "torch.nn.GroupNorm", LK_KIND_MODULE, "Normalises over groups of channels.",
     .parameters = group_norm_parameters, .build = build_group_norm},
    {"Dropout", "torch.nn.Dropout", LK_KIND_MODULE, "Sets random values to zero in training.",
     .parameters = dropout_parameters, .build = build_dropout},
    {"Embedding", "torch.nn.Embedding", LK_KIND_MODULE, "A learned vector for each index.",
     .parameters = embedding_parameters, .build = build_embedding},
    {"Flatten", "torch.nn.Flatten", LK_KIND_MODULE, "Joins axes into one.", .parameters = flatten_parameters,
     .build = build_flatten},
    {"Unflatten", "torch.nn.Unflatten", LK_KIND_MODULE, "Divides an axis into several.",
     .parameters = unflatten_parameters, .build = build_unflatten},
    {"Identity", "torch.nn.Identity", LK_KIND_MODULE, "The input itself.", .parameters = identity_parameters,
     .rest = "args", .build = build_plain, .context = &(const plain){lk_identity}},
    {"ReLU", "torch.nn.ReLU", LK_KIND_MODULE, "max(x, 0).", INPLACE_PLAIN(lk_relu)},
    {"SiLU", "torch.nn.SiLU", LK_KIND_MODULE, "x sigmoid(x).", INPLACE_PLAIN(lk_silu)},
    {"Tanh", "torch.nn.Tanh", LK_KIND_MODULE, "The hyperbolic tangent.", PLAIN(lk_tanh)},
    {"Sigmoid", "torch.nn.Sigmoid", LK_KIND_MODULE, "1 / (1 + exp(-x)).", PLAIN(lk_sigmoid)},
    {"LeakyReLU", "torch.nn.LeakyReLU", LK_KIND_MODULE, "x above zero, a small slope below.",
     .parameters = leaky_relu_parameters, .build = build_leaky_relu},
    {"ELU", "torch.nn.ELU", LK_KIND_MODULE, "x above zero, alpha (exp(x) - 1) below.",
     .parameters = elu_parameters, .build = build_elu},
    {"GELU", "torch.nn.GELU", LK_KIND_MODULE, "x times the normal distribution function of x.",
     .parameters = gelu_parameters, .build = build_gelu},
    {"Softplus", "torch.nn.Softplus", LK_KIND_MODULE, "A smooth max(x, 0).",
     .parameters = softplus_parameters, .build = build_softplus},
    {"Softmax", "torch.nn.Softmax", LK_KIND_MODULE, "exp(x), scaled to sum to one along an axis.",
     .parameters = softmax_parameters, .build = build_softmax},
    {"LogSoftmax", "torch.nn.LogSoftmax", LK_KIND_MODULE, "The logarithm of Softmax.",
     .parameters = softmax_parameters, .build = build_softmax},
    {"LSTM", "torch.nn.LSTM", LK_KIND_MODULE, "Long short-term memory over a sequence.",
     RECURRENT(lstm_parameters, lk_lstm_with)},
    {"GRU", "torch.nn.GRU", LK_KIND_MODULE, "Gated recurrent units over a sequence.",
     RECURRENT(gru_parameters, lk_gru_with)},
    {"RNN", "torch.nn.RNN", LK_KIND_MODULE, "Elman's recurrent layer over a sequence.",
     RECURRENT(rnn_parameters, lk_rnn_with)},
    {"LSTMCell", "torch.nn.LSTMCell", LK_KIND_MODULE, "One step of an LSTM from states of zero.",
     RECURRENT_CELL(cell_parameters, lk_lstm_cell_with)},
    {"GRUCell", "torch.nn.GRUCell", LK_KIND_MODULE, "One step of a GRU from a state of zero.",
     RECURRENT_CELL(cell_parameters, lk_gru_cell_with)},
    {"RNNCell", "torch.nn.RNNCell", LK_KIND_MODULE, "One step of an RNN from a state of zero.",
     RECURRENT_CELL(rnn_cell_parameters, lk_rnn_cell_with)},
    {"MultiheadAttention", "torch.nn.MultiheadAttention", LK_KIND_MODULE,
     "Attention of a query to key and value, or of a sequence to itself.", .parameters = attention_parameters,
     .build = build_attention},
    {0},
};
