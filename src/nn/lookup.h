/* What layers that look up rows of a table have in common. */
#ifndef LKI_NN_LOOKUP_H
#define LKI_NN_LOOKUP_H

#include "nn/module.h"

typedef struct lki_lookup {
    int64_t padding_index; /* -1: none */
    bool by_frequency;     /* a row's gradient is divided by how often the batch has it */
} lki_lookup;

/* Reads padding_idx; LK_ERR_INVALID with the type's name if it is not one of `count` rows. */
lk_status lki_lookup_read(lki_lookup *lookup, const char *type, double padding_idx, int64_t count);

/* "weight" (count, dim), from a normal distribution, and 0 in the padding row. */
void lki_lookup_add_table(lk_module *module, const lki_lookup *lookup, int64_t count, int64_t dim);

/* The rows of the module's table: index i64 (...) -> (..., dim). */
lk_value *lki_lookup_rows(lk_module *module, const lki_lookup *lookup, lk_value *index);

#endif
