#include "nn/window_options.h"

#include "base/status.h"

void lki_spread(int64_t *out, int rank, int64_t all, const int64_t *each, int64_t standard)
{
    bool per_axis = each[0] || each[1] || each[2];
    for (int i = 0; i < rank; i++) {
        out[i] = per_axis ? each[i] : all;
        if (out[i] == 0) out[i] = standard;
    }
}

lk_status lki_check_each(const char *type, const char *argument, const int64_t *numbers, int rank,
                         int64_t least)
{
    for (int i = 0; i < rank; i++)
        if (numbers[i] < least)
            return lki_fail(LK_ERR_INVALID, "%s: %s: expected at least %lld, found %lld", type, argument,
                            (long long)least, (long long)numbers[i]);
    return LK_OK;
}

lk_value *lki_batch(lk_value *x, int spatial_rank, bool *was_added)
{
    *was_added = false;
    if (!x) return NULL;
    lk_shape shape = lk_value_shape(x), batched = {.rank = shape.rank + 1, .dim = {1}};
    if (shape.rank != spatial_rank + 1) return x;
    *was_added = true;
    for (int i = 0; i < shape.rank; i++) batched.dim[i + 1] = shape.dim[i];
    return lk_op_reshape(x, batched);
}

lk_value *lki_unbatch(lk_value *y, bool was_added)
{
    if (!y || !was_added) return y;
    lk_shape shape = lk_value_shape(y), plain = {.rank = shape.rank - 1};
    for (int i = 0; i < plain.rank; i++) plain.dim[i] = shape.dim[i + 1];
    return lk_op_reshape(y, plain);
}
