/* Modules with several inputs, inside the library. */
#ifndef LKI_NN_NODES_H
#define LKI_NN_NODES_H

#include "nn/module.h"
#include <lockstep/nodes.h>

/* Whether a module may get more than one value. */
bool lki_module_takes_several(const lk_module *module);

/* A module that gives one value; input_count 0: it takes any number. */
lk_module *lki_module_of_several(const char *type, lk_module_call_function call, int input_count,
                                 const void *context, size_t nbytes);

/* Attention of heads side by side: query (N, L, E), key and value (N, S, E) -> (N, L, E). If key and value
 * are NULL, query is (N, L, 3 E) and holds all three. The mask broadcasts to (N, heads, L, S) and is added to
 * the scores. */
typedef struct lki_attention {
    int64_t heads;
    bool is_causal;
    lk_value *mask; /* or NULL */
    double dropout;
} lki_attention;
/* Of a MultiheadAttention: .is_causal. */
void lki_attention_make_causal(lk_module *module);

/* scores (..., L, S) plus minus infinity above the diagonal. */
lk_value *lki_add_causal_mask(lk_value *scores);
lk_value *lki_attend(lk_value *query, lk_value *key, lk_value *value, const lki_attention *how);

#endif
