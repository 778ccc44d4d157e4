/* Models that are no straight line: branches, joins, and whole graphs of modules by name.
 *
 *     lk_module *block = lk_node_graph(
 *         lk_nodes(lk_node("conv1", lk_conv2d(8, 8, 3, .padding = 1), "x"),
 *                  lk_node("relu", lk_relu()),
 *                  lk_node("conv2", lk_conv2d(8, 8, 3, .padding = 1)),
 *                  lk_node("sum", lk_add(), "conv2 x")));
 *
 * The names of nodes are the names of children, so "conv1.weight" is a parameter of this block.
 * Graphs nest: a node may be a graph.
 *
 * Life: as in <lockstep/nn.h>. A constructor owns the modules that it gets, and returns NULL on
 * failure. Threads: a module belongs to one thread. */
#ifndef LOCKSTEP_NODES_H
#define LOCKSTEP_NODES_H

#include <lockstep/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a graph of modules ---- */

/* `inputs` names the inputs of the graph or other nodes, separated by spaces or commas. NULL: the
 * node before, or the first input of the graph. Inputs of attention and of transformers may be
 * named, as arguments are in Python: "x, src_key_padding_mask=padding". A node without a module
 * but with `same_as` is another place of that node's module, with the same parameters. Nodes may be
 * listed in any order. */
typedef struct lk_node {
    const char *name;
    lk_module *module; /* owned */
    const char *inputs;
    const char *same_as;
} lk_node;

typedef struct lk_node_list {
    const lk_node *items;
    int count;
} lk_node_list;
LK_LIST_TO_END_(lk_node_list, lk_node)
/* lk_nodes(lk_node("a", lk_relu()), lk_node("b", lk_add(), "a x"), ...) */
#define lk_node(name_, ...)                                                                                  \
    {                                                                                                        \
        .name = (name_), .module = __VA_ARGS__                                                               \
    }
#define lk_nodes(...) lk_node_list_to_end((const lk_node[]){__VA_ARGS__, {.name = LK_END}})

typedef struct lk_node_graph_options {
    size_t struct_size;
    const char *inputs;  /* names, separated by spaces or commas; "x" */
    const char *outputs; /* names of nodes; the last node */
} lk_node_graph_options;
/* Fails with LK_ERR_INVALID, and a line that names the node, for a cycle, an unknown input, a node
 * that gets more inputs than its module takes, and a node or an input that nobody uses. A shape
 * that does not fit is found when the graph is recorded, before the first batch, and the line names
 * the node too. */
#define lk_node_graph(...) LK_CALL1_(lk_node_graph_with, lk_node_graph_options, __VA_ARGS__, )
lk_module *lk_node_graph_with(lk_node_list nodes_owned, const lk_node_graph_options *options);

/* Returns the name of output `index` of a node graph; NULL if it has fewer. It belongs to the
 * module. */
const char *lk_node_graph_output(const lk_module *module, int index);

/* ---- modules with several inputs, for nodes and for lk_parallel ---- */

/* All inputs, with broadcasting: a + b + ..., a b ...; sub and div take two. */
lk_module *lk_add(void);
lk_module *lk_sub(void);
lk_module *lk_mul(void);
lk_module *lk_div(void);
lk_module *lk_matmul(void); /* of two */
/* The inputs side by side along an axis, or along a new one. */
lk_module *lk_cat(int dim);
lk_module *lk_stack(int dim);

typedef struct lk_attend_options {
    size_t struct_size;
    int64_t num_heads; /* 1 */
    bool is_causal;    /* a place sees itself and the places before it */
    double dropout;    /* of the attention weights; 0 */
} lk_attend_options;
/* Attention without parameters. Three inputs, query (N, L, E), key and value (N, S, E), of which
 * each head sees its share of E: softmax(q k^T / sqrt(E / num_heads)) v. */
#define lk_attend(...) LK_CALL0_(lk_attend_with, lk_attend_options, __VA_ARGS__)
lk_module *lk_attend_with(const lk_attend_options *options);

/* lk_parallel(join, a, b, ...) gives its input to a, b, ... and joins their outputs with `join`,
 * such as lk_cat(1) or lk_add(). */
lk_module *lk_parallel_with(lk_module *join_owned, lk_module *const *modules_owned, int count);
static inline lk_module *lk_parallel_to_end(lk_module *const *modules_owned)
{
    return lk_parallel_with(modules_owned[0], modules_owned + 1,
                            lk_count_to_end(modules_owned, sizeof *modules_owned) - 1);
}
#define lk_parallel(...) lk_parallel_to_end((lk_module *const[]){__VA_ARGS__, LK_END})

/* lk_shortcut(shortcut, a, b, ...): shortcut(x) + f(x), where f runs a, b, ... one after the other.
 * The children are "0", "1", ... and "shortcut". */
lk_module *lk_shortcut_with(lk_module *shortcut_owned, lk_module *const *modules_owned, int count);
static inline lk_module *lk_shortcut_to_end(lk_module *const *modules_owned)
{
    return lk_shortcut_with(modules_owned[0], modules_owned + 1,
                            lk_count_to_end(modules_owned, sizeof *modules_owned) - 1);
}
#define lk_shortcut(...) lk_shortcut_to_end((lk_module *const[]){__VA_ARGS__, LK_END})

/* ---- places and shapes ---- */

/* lk_permute(LK_SHAPE(0, 2, 1)): axis i of the output is axis dims[i] of the input. */
lk_module *lk_permute(lk_shape dims);
lk_module *lk_transpose(int dim0, int dim1);
/* lk_reshape(LK_SHAPE(0, -1, 64)): a 0 keeps the size of that axis, -1 is what is left. The shape
 * has the batch in it. */
lk_module *lk_reshape(lk_shape shape);
/* The mean over these axes, or over all but the first if there are none. */
lk_module *lk_mean(lk_shape dims, bool keepdim);
/* One place of an axis, which goes away. Negative numbers count from the end. */
lk_module *lk_select(int dim, int64_t index);
/* Places `begin` to before `end`; an end of 0 is the end of the axis. */
lk_module *lk_slice(int dim, int64_t begin, int64_t end);
/* The numbers 0, 1, ... of the places along an axis, i64, for an embedding of positions. */
lk_module *lk_places(int dim);

/* An elementwise function by its name: abs, neg, exp, log, sqrt, rsqrt, reciprocal, square, sin,
 * cos, erf, tanh, sigmoid, relu, silu, gelu, sign, floor, ceil, round; or with `value`: add, mul,
 * pow, min (at most value), max (at least value), equal (whether it is the value, as bool). */
lk_module *lk_lambda(const char *function, double value);

#ifdef __cplusplus
}
#endif
#endif
