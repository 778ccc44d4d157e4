#include "nn/module.h"

#include "base/status.h"
#include "base/take.h"

typedef struct embedding_context {
    int64_t padding_index; /* -1: none */
} embedding_context;

static lk_value *embedding_forward(lk_module *module, lk_value *x)
{
    const embedding_context *own = module->context;
    return lk_op_embedding(lki_module_value(module, x, "weight"), x, own->padding_index);
}

lk_module *lk_embedding_with(int64_t count, int64_t dim, const lk_embedding_options *given)
{
    LKI_TAKE(lk_embedding_options, options, given, NULL);
    if (count < 1 || dim < 1)
        return lki_fail_null(LK_ERR_INVALID,
                             "Embedding: expected at least 1 row and 1 column, found %lld and %lld",
                             (long long)count, (long long)dim);
    bool has_padding = lki_number_given(options.padding_idx);
    int64_t wanted, padding;
    if (lki_whole_or(options.padding_idx, 0, "Embedding", "padding_idx", &wanted)) return NULL;
    padding = wanted < 0 ? wanted + count : wanted;
    if (has_padding && (padding < 0 || padding >= count))
        return lki_fail_null(LK_ERR_INVALID, "Embedding: padding_idx: %lld is not one of %lld rows",
                             (long long)wanted, (long long)count);
    embedding_context own = {has_padding ? padding : -1};
    lk_module *module = lki_module_create("Embedding", embedding_forward, &own, sizeof own);
    lk_param *weight = lki_module_new_param(module, "weight", LK_SHAPE(count, dim));
    if (weight) lki_module_note(module, lk_init_normal(weight, 0, 1));
    for (int64_t i = 0; weight && has_padding && i < dim; i++)
        lk_tensor_set(weight->value, padding * dim + i, 0);
    return lki_module_checked(module);
}
