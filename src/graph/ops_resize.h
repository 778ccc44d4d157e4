/* The ways of resizing that are made of other ops. */
#ifndef LKI_GRAPH_OPS_RESIZE_H
#define LKI_GRAPH_OPS_RESIZE_H

#include "graph/graph.h"

/* nearest-exact, or bicubic of two spatial axes, to the sizes of attr->shape. */
lk_value *lki_resize_by_index(lk_value *x, const lk_upsample_attr *attr);

#endif
