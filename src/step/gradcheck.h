/* lk_gradcheck on an engine of one's choice, for the suites that every engine passes. */
#ifndef LKI_STEP_GRADCHECK_H
#define LKI_STEP_GRADCHECK_H

#include <lockstep/graph.h>

lk_status lki_gradcheck_on(const char *engine, lk_graph_function function, void *context,
                           lk_tensor *const *inputs, int count, double tolerance);

#endif
