/* Ops that the program brings (lk_op_custom). */
#ifndef LKI_GRAPH_CUSTOM_H
#define LKI_GRAPH_CUSTOM_H

#include <lockstep/sys/engine.h>

/* Sets call->run of custom and custom_grad. */
void lki_custom_prepare(lk_call *call);

#endif
