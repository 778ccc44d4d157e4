/* Graphs of modules, branches and joins, and ops as modules. */
#include "config/components/components.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"

#include <lockstep/contrib.h>
#include <lockstep/nodes.h>

#include <string.h>

/* ---- nodes ---- */

/* What `{module: ..., inputs: [...]}` stands for, until the graph takes it. */
typedef struct held_node {
    lk_module *module;
    char *inputs, *same_as;
} held_node;

static void free_held(void *context)
{
    held_node *held = context;
    lk_module_free(held->module);
    lki_free(held->inputs);
    lki_free(held->same_as);
    lki_free(held);
}

static lk_value *held_forward(lk_module *module, lk_value *x)
{
    (void)module, (void)x;
    lki_fail(LK_ERR_CONFIG, "a Node is for the nodes of a Graph alone");
    return NULL;
}

/* A list of names in one text; NULL where it was left out. */
static char *join_names(lk_args *args, const char *name)
{
    char *text = NULL;
    if (!lk_arg_given(args, name)) return NULL;
    for (int i = 0; i < lk_arg_count(args, name); i++) {
        const char *item = lk_arg_string_at(args, name, i);
        char *longer = lki_format("%s%s%s", text ? text : "", text ? " " : "", item ? item : "");
        lki_free(text);
        text = longer;
    }
    return text ? text : lki_strdup("");
}

static lk_status build_node(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    held_node *held = LKI_NEW(held_node);
    if (!held) return LK_ERR_NOMEM;
    const char *same_as = lk_arg_string(args, "same_as");
    held->module = lk_arg_take(args, "module");
    held->inputs = join_names(args, "inputs");
    held->same_as = lki_strdup(same_as);
    if (!held->module == !same_as) {
        free_held(held);
        return lki_fail(LK_ERR_CONFIG, "a node has either a module or same_as, the name of another node");
    }
    return lki_built(
        lk_custom_module(.type = "Node", .forward = held_forward, .context = held, .free_context = free_held),
        out);
}

/* The node that an item of `nodes` stands for; *holder is to be freed later. */
static lk_node take_node(lk_args *args, int index, lk_module **holder)
{
    lk_module *item = lk_arg_take_at(args, "nodes", index);
    lk_node node = {.name = lk_arg_key_at(args, "nodes", index), .module = item};
    if (!item || strcmp(lk_arg_component_at(args, "nodes", index), "Node") != 0) return node;
    held_node *held = lk_module_context(item);
    node.module = held->module;
    node.inputs = held->inputs;
    node.same_as = held->same_as;
    held->module = NULL;
    *holder = item;
    return node;
}

static lk_status build_graph(const lk_component *self, lk_args *args, void **out)
{
    int count = lk_arg_count(args, "nodes");
    (void)self;
    if (count > 0 && !lk_arg_key_at(args, "nodes", 0))
        return lki_fail(LK_ERR_CONFIG, "nodes: expected a map from names to modules");
    LKI_SCOPED char *inputs = join_names(args, "inputs"), *outputs = join_names(args, "outputs");
    LKI_SCOPED lk_node *nodes = LKI_NEW_ARRAY(lk_node, count + 1);
    LKI_SCOPED lk_module **holders = LKI_NEW_ARRAY(lk_module *, count + 1);
    if (!nodes || !holders) return LK_ERR_NOMEM;
    for (int i = 0; i < count; i++) nodes[i] = take_node(args, i, &holders[i]);
    lk_node_list list = {nodes, count};
    lk_module *graph = lk_node_graph(list, .inputs = inputs, .outputs = outputs);
    lk_status status = lki_built(graph, out);
    for (int i = 0; i < count; i++) lk_module_free(holders[i]);
    return status;
}

/* ---- branches ---- */

/* The modules of `args`; the caller frees the array. NULL only if memory runs out. */
static lk_module **take_all(lk_args *args, int *count)
{
    *count = lk_arg_count(args, "args");
    lk_module **modules = LKI_NEW_ARRAY(lk_module *, *count + 1);
    for (int i = 0; modules && i < *count; i++) modules[i] = lk_arg_take_at(args, "args", i);
    return modules;
}

static lk_status build_parallel(const lk_component *self, lk_args *args, void **out)
{
    int count;
    (void)self;
    LKI_SCOPED lk_module **modules = take_all(args, &count);
    if (!modules) return LK_ERR_NOMEM;
    lk_module *join = lk_arg_given(args, "join") ? lk_arg_take(args, "join") : lk_cat(1);
    return lki_built(lk_parallel_with(join, modules, count), out);
}

lk_status lki_build_residual(const lk_component *self, lk_args *args, void **out)
{
    int count;
    (void)self;
    LKI_SCOPED lk_module **modules = take_all(args, &count);
    if (!modules) return LK_ERR_NOMEM;
    if (!lk_arg_given(args, "shortcut")) return lki_built(lk_residual_with(modules, count), out);
    return lki_built(lk_shortcut_with(lk_arg_take(args, "shortcut"), modules, count), out);
}

/* ---- joins ---- */

typedef struct plain {
    lk_module *(*create)(void);
} plain;

static lk_status build_plain(const lk_component *self, lk_args *args, void **out)
{
    const plain *kind = self->context;
    (void)args;
    return lki_built(kind->create(), out);
}

typedef struct with_dim {
    lk_module *(*create)(int dim);
} with_dim;

static lk_status build_with_dim(const lk_component *self, lk_args *args, void **out)
{
    const with_dim *kind = self->context;
    return lki_built(kind->create(lk_arg_int(args, "dim")), out);
}

static lk_status build_attend(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    int64_t heads = lk_arg_int64(args, "num_heads");
    if (heads < 1)
        return lki_fail(LK_ERR_CONFIG, "num_heads: expected at least 1, found %lld", (long long)heads);
    return lki_built(lk_attend(.num_heads = heads, .is_causal = lk_arg_bool(args, "is_causal"),
                               .dropout = lk_arg_float(args, "dropout")),
                     out);
}

/* ---- places ---- */

static lk_status read_sizes(lk_args *args, const char *name, lk_shape *shape)
{
    *shape = (lk_shape){.rank = lk_arg_count(args, name)};
    if (shape->rank > LK_MAX_DIMS)
        return lki_fail(LK_ERR_CONFIG, "%s: at most %d numbers, found %d", name, LK_MAX_DIMS, shape->rank);
    for (int i = 0; i < shape->rank; i++) shape->dim[i] = lk_arg_int_at(args, name, i);
    return LK_OK;
}

typedef struct with_sizes {
    lk_module *(*create)(lk_shape sizes);
    const char *name;
} with_sizes;

static lk_status build_with_sizes(const lk_component *self, lk_args *args, void **out)
{
    const with_sizes *kind = self->context;
    lk_shape sizes;
    LKI_TRY(read_sizes(args, kind->name, &sizes));
    return lki_built(kind->create(sizes), out);
}

static lk_status build_mean(const lk_component *self, lk_args *args, void **out)
{
    lk_shape dims;
    (void)self;
    LKI_TRY(read_sizes(args, "dim", &dims));
    return lki_built(lk_mean(dims, lk_arg_bool(args, "keepdim")), out);
}

static lk_status build_transpose(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_transpose(lk_arg_int(args, "dim0"), lk_arg_int(args, "dim1")), out);
}

static lk_status build_select(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_select(lk_arg_int(args, "dim"), lk_arg_int64(args, "index")), out);
}

static lk_status build_slice(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(
        lk_slice(lk_arg_int(args, "dim"), lk_arg_int64(args, "start"), lk_arg_int64(args, "end")), out);
}

static lk_status build_lambda(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    if (lk_arg_given(args, "function") == lk_arg_given(args, "lambda_fn"))
        return lki_fail(LK_ERR_CONFIG, "Lambda: give a function by its name, or a module as lambda_fn");
    if (lk_arg_given(args, "lambda_fn") && lk_arg_given(args, "value"))
        return lki_fail(LK_ERR_CONFIG, "value: lambda_fn takes none");
    if (lk_arg_given(args, "lambda_fn"))
        return lki_built(lk_lambda_module(lk_arg_take(args, "lambda_fn")), out);
    const char *function = lk_arg_string(args, "function");
    bool takes_value = lki_choice_index("add|mul|pow|min|max|equal", function) >= 0;
    if (takes_value != lk_arg_given(args, "value"))
        return lki_fail(LK_ERR_CONFIG, "value: %s %s", function, takes_value ? "needs one" : "takes none");
    return lki_built(lk_lambda(function, lk_arg_float(args, "value")), out);
}

static const lk_parameter graph_parameters[] = {
    {.name = "nodes",
     .type = LK_PARAMETER_OBJECTS,
     .kind = LK_KIND_MODULE,
     .default_value = LKI_REQUIRED,
     .help = "a map of names to modules, or to nodes: {module: ..., inputs: [...]}",
     .takes_keys = true,
     .implied = "Node"},
    LKI_STRINGS("inputs", "x", "the names of what the graph gets"),
    LKI_STRINGS("outputs", LKI_OPTIONAL, "the nodes that it gives; the last node where left out"),
    {0},
};
static const lk_parameter node_parameters[] = {
    LKI_OBJECT("module", MODULE, LKI_OPTIONAL, "what it computes"),
    LKI_STRINGS("inputs", LKI_OPTIONAL, "nodes or inputs of the graph; the node before where left out"),
    LKI_STRING("same_as", LKI_OPTIONAL, "the node whose module, with its parameters, it uses once more"),
    {0},
};
static const lk_parameter parallel_parameters[] = {
    LKI_OBJECTS("args", MODULE, LKI_OPTIONAL, "the modules, each of which gets the input"),
    LKI_OBJECT("join", MODULE, LKI_OPTIONAL,
               "what makes one output of theirs; Concat along axis 1 where left out"),
    {0},
};
static const lk_parameter cat_parameters[] = {LKI_INT("dim", "1", "the axis along which they lie"), {0}};
static const lk_parameter stack_parameters[] = {LKI_INT("dim", "1", "the new axis"), {0}};
static const lk_parameter attend_parameters[] = {
    LKI_INT64("num_heads", "1", "heads, among which the features are divided"),
    LKI_BOOL("is_causal", "false", "a place sees itself and the places before it"),
    LKI_FLOAT("dropout", "0.0", "how many attention weights become zero"),
    {0},
};
static const lk_parameter permute_parameters[] = {
    LKI_INTS("dims", LKI_REQUIRED, "for each axis of the output, the axis of the input"), {0}};
static const lk_parameter transpose_parameters[] = {
    LKI_INT("dim0", LKI_REQUIRED, "an axis"),
    LKI_INT("dim1", LKI_REQUIRED, "the axis that it changes places with"),
    {0}};
static const lk_parameter reshape_parameters[] = {
    LKI_INTS("shape", LKI_REQUIRED, "the sizes, batch included; 0 keeps that axis, one may be -1"), {0}};
static const lk_parameter mean_parameters[] = {
    LKI_INTS("dim", LKI_OPTIONAL, "the axes; all but the first where left out"),
    LKI_BOOL("keepdim", "false", "leave axes of size 1"),
    {0},
};
static const lk_parameter select_parameters[] = {LKI_INT("dim", LKI_REQUIRED, "the axis, which goes away"),
                                                 LKI_INT64("index", LKI_REQUIRED, "the place on it"),
                                                 {0}};
static const lk_parameter slice_parameters[] = {
    LKI_INT("dim", LKI_REQUIRED, "the axis"),
    LKI_INT64("start", "0", "the first place"),
    LKI_INT64("end", "0", "the place after the last; 0: to the end"),
    {0},
};
static const lk_parameter places_parameters[] = {LKI_INT("dim", "1", "the axis that is counted"), {0}};
static const lk_parameter lambda_parameters[] = {
    LKI_OBJECT("lambda_fn", MODULE, LKI_OPTIONAL, "instead of `function`: a module without parameters"),
    LKI_CHOICE("function", LKI_OPTIONAL,
               "abs|neg|exp|log|sqrt|rsqrt|reciprocal|square|sin|cos|erf|tanh|sigmoid|relu|silu|gelu|sign|"
               "floor|ceil|round|add|mul|pow|min|max|equal",
               "what becomes of each element"),
    LKI_FLOAT("value", LKI_OPTIONAL,
              "the number of add, mul, pow, min (at most it), max (at least it) and equal"),
    {0},
};

#define MODULE(name_, help_) .name = name_, .kind = LK_KIND_MODULE, .help = help_
#define PLAIN(name_, create_, help_)                                                                         \
    {                                                                                                        \
        MODULE(name_, help_), .build = build_plain, .context = &(const plain)                                \
        {                                                                                                    \
            create_                                                                                          \
        }                                                                                                    \
    }
#define WITH(name_, table_, help_)                                                                           \
    {                                                                                                        \
        MODULE(name_, help_), .parameters = table_##_parameters, .build = build_##table_                     \
    }
#define WITH_DIM(name_, table_, create_, help_)                                                              \
    {                                                                                                        \
        MODULE(name_, help_), .parameters = table_##_parameters, .build = build_with_dim,                    \
                              .context = &(const with_dim)                                                   \
        {                                                                                                    \
            create_                                                                                          \
        }                                                                                                    \
    }

const lk_component lki_node_components[] = {
    WITH("Graph", graph, "Modules by name, each with its inputs."),
    WITH("Node", node, "A module of a graph, with the names of its inputs."),
    {MODULE("Parallel", "Several modules over the same input, and their outputs joined."),
     .parameters = parallel_parameters, .rest = "args", .build = build_parallel},
    WITH_DIM("Concat", cat, lk_cat, "A node's inputs side by side."),
    WITH_DIM("Stack", stack, lk_stack, "A node's inputs along a new axis."),
    PLAIN("Add", lk_add, "The sum of a node's inputs."),
    PLAIN("Sub", lk_sub, "A node's first input minus its second."),
    PLAIN("Mul", lk_mul, "The product of a node's inputs, element by element."),
    PLAIN("Div", lk_div, "A node's first input by its second."),
    PLAIN("Matmul", lk_matmul, "The matrix product of a node's two inputs."),
    WITH("Attend", attend, "Attention of a node's query to its key and value, without parameters."),
    {MODULE("Permute", "The axes in another order."), .parameters = permute_parameters,
     .build = build_with_sizes, .context = &(const with_sizes){lk_permute, "dims"}},
    WITH("Transpose", transpose, "Two axes change places."),
    {MODULE("Reshape", "The same elements in another shape."), .parameters = reshape_parameters,
     .build = build_with_sizes, .context = &(const with_sizes){lk_reshape, "shape"}},
    WITH("Mean", mean, "The mean over axes."),
    WITH("Select", select, "One place of an axis."),
    WITH("Slice", slice, "A part of an axis."),
    WITH_DIM("Places", places, lk_places, "The numbers 0, 1, ... of the places along an axis."),
    {MODULE("Lambda", "A function of each element, or of the input."),
     .aliases = "catalyst.contrib.layers.Lambda", .parameters = lambda_parameters, .build = build_lambda},
    {0},
};
