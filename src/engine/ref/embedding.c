/* Rows of a table by their numbers. */
#include "engine/ref/ref.h"

#include "base/status.h"

static lk_status row_at(const lk_tensor *index, int64_t i, int64_t rows, int64_t *row)
{
    *row = lki_ref_get_i64(index, i);
    if (*row >= 0 && *row < rows) return LK_OK;
    return lki_fail(LK_ERR_RANGE, "index %lld at position %lld is outside of 0..%lld", (long long)*row,
                    (long long)i, (long long)rows - 1);
}

/* y[i, :] = weight[index[i], :] */
lk_status lki_ref_embedding(const lk_call *call)
{
    const lk_tensor *weight = &call->in[0], *index = &call->in[1]; /* (n, d), (...) */
    int64_t count = lk_tensor_count(index), width = weight->shape.dim[1], row;
    for (int64_t i = 0; i < count; i++) {
        LKI_TRY(row_at(index, i, weight->shape.dim[0], &row));
        for (int64_t j = 0; j < width; j++)
            lki_ref_move(&call->out[0], i * width + j, weight, row * width + j);
    }
    return LK_OK;
}

/* dweight[r, :] = sum over i with index[i] = r of dy[i, :], and zero for the padding row. */
lk_status lki_ref_embedding_grad(const lk_call *call)
{
    const lk_tensor *dy = &call->in[0], *index = &call->in[1], *dweight = &call->out[0];
    int64_t count = lk_tensor_count(index), width = dweight->shape.dim[1], row;
    lki_ref_fill(dweight, 0);
    for (int64_t i = 0; i < count; i++) {
        LKI_TRY(row_at(index, i, dweight->shape.dim[0], &row));
        if (row == call->attr->embedding.padding_index) continue;
        for (int64_t j = 0; j < width; j++)
            lki_ref_add(dweight, row * width + j, lki_ref_get(dy, i * width + j));
    }
    return LK_OK;
}
