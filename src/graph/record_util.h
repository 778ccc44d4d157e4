/* Small helpers that the rules of the ops and the public functions over them share. */
#ifndef LKI_GRAPH_RECORD_UTIL_H
#define LKI_GRAPH_RECORD_UTIL_H

#include "graph/graph.h"

/* A shape as text, for the arguments of an error; it lives until the end of the enclosing block. */
#define LKI_SHOW(shape) lk_shape_format((char[160]){0}, 160, (shape))

/* Output i gets this dtype and shape. */
void lki_set_output(lki_node *node, int index, lk_dtype dtype, lk_shape shape);

/* How errors call a node: the op's name, or the loss's where one op does several. */
const char *lki_node_name(const lki_node *node);

/* The reduction of a loss of either family. */
lk_reduction lki_loss_reduction(const lki_node *node);

/* Whether the optional input is there. */
bool lki_has_input(const lki_node *node, int index);

/* The broadcast of two shapes, or LK_ERR_SHAPE with both. */
lk_status lki_broadcast(lk_shape *out, lk_shape a, lk_shape b);

/* Sums `value` over the axes that broadcasting added, so that it has `shape` again. */
lk_value *lki_sum_to(lk_value *value, lk_shape shape);

/* LK_OK where input `index` is of a float dtype (or of `dtype`), else LK_ERR_DTYPE naming the op. */
lk_status lki_expect_float(const lki_node *node, int index);
lk_status lki_expect_dtype(const lki_node *node, int index, lk_dtype dtype);
lk_status lki_expect_same_dtype(const lki_node *node, int a, int b);

/* An optional operand called `what` must, where it is there, have the dtype of input 0 and this shape. */
lk_status lki_expect_operand(const lki_node *node, int index, const char *what, lk_shape shape);

/* For operands whose gradient nobody computes: LK_ERR_UNSUPPORTED where a trainable parameter is upstream of
 * one. */
lk_status lki_expect_no_grad(const lki_node *node, int index, const char *what);

/* An axis of the node's attributes, in place, counted from the front; LK_ERR_RANGE if it is outside of
 * input 0. */
lk_status lki_complete_axis(const lki_node *node, int *axis);

/* Records `op` over the inputs; `attr` may be NULL. A NULL among the inputs that the op requires gives NULL.
 */
lk_value *lki_emit(lk_op op, const lk_attr *attr, int input_count, lk_value *const *inputs);
#define LKI_ATTR(...) (&(lk_attr){__VA_ARGS__})
#define LKI_EMIT(op, attr, ...)                                                                              \
    lki_emit((op), (attr), (int)(sizeof((lk_value *[]){__VA_ARGS__}) / sizeof(lk_value *)),                  \
             (lk_value *[]){__VA_ARGS__})

/* Output `index` of the node that computes `value`. */
lk_value *lki_output_of(lk_value *value, int index);

/* What a backward rule returns at its end: the first failure of recording, if any. */
lk_status lki_recorded(const lki_node *node);

/* Often needed nodes. A scale of 1 and a reshape to the same shape record nothing. */
lk_value *lki_scaled(lk_value *value, double factor);
lk_value *lki_reshaped(lk_value *value, lk_shape shape);
/* A scalar of `like`'s dtype, to broadcast against it; and one number all over the shape of `like`. */
lk_value *lki_scalar_like(const lk_value *like, double number);
lk_value *lki_full_like(const lk_value *like, double number);

/* The sum over all axes but one, of shape (dim,). */
lk_value *lki_sum_but(lk_value *value, int axis);

/* The shape after a reduction over a set of axes (bit i = axis i). */
lk_shape lki_reduced_shape(lk_shape shape, uint32_t axes, bool keep_dims);

/* The axis counted from the front; -1 where it is outside of the rank. */
int lki_normal_axis(int axis, int rank);

#endif
