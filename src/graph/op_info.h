/* What the list of ops says of one op, beside its name and flags. */
#ifndef LKI_GRAPH_OP_INFO_H
#define LKI_GRAPH_OP_INFO_H

#include <lockstep/sys/op.h>

int lki_op_output_count(lk_op op);

#endif
