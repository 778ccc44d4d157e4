/* Products of matrices. */
#include "engine/ref/ref.h"

/* c (m, n) = a (m, k) b (k, n), each transposed where asked, at the given first elements. */
static void multiply(const lk_matmul_attr *attr, const lk_tensor *a, int64_t a0, const lk_tensor *b,
                     int64_t b0, const lk_tensor *c, int64_t c0, int64_t m, int64_t n, int64_t k)
{
    int64_t a_row = attr->transpose_a ? 1 : k, a_column = attr->transpose_a ? m : 1;
    int64_t b_row = attr->transpose_b ? 1 : n, b_column = attr->transpose_b ? k : 1;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += lki_ref_get(a, a0 + i * a_row + l * a_column) *
                       lki_ref_get(b, b0 + l * b_row + j * b_column);
            lki_ref_set(c, c0 + i * n + j, sum);
        }
}

/* The leading axes of `x` as a tensor of matrices: one "element" is a matrix of `matrix` elements. */
static lk_tensor batch_of(const lk_tensor *x, lk_shape batch, int64_t matrix)
{
    lk_tensor leading = *x;
    leading.shape.rank -= 2;
    lk_tensor view = lki_ref_broadcast(&leading, batch);
    for (int i = 0; i < batch.rank; i++) view.stride[i] *= matrix;
    return view;
}

lk_status lki_ref_matmul(const lk_call *call)
{
    const lk_tensor *a = &call->in[0], *b = &call->in[1], *c = &call->out[0];
    lk_shape batch = c->shape;
    batch.rank -= 2;
    int64_t m = c->shape.dim[batch.rank], n = c->shape.dim[batch.rank + 1];
    int64_t k = a->shape.dim[a->shape.rank - (call->attr->matmul.transpose_a ? 2 : 1)];
    lk_tensor a_batch = batch_of(a, batch, m * k), b_batch = batch_of(b, batch, k * n);
    int64_t count = lk_shape_count(batch);
    for (int64_t i = 0; i < count; i++)
        multiply(&call->attr->matmul, a, lki_ref_offset(&a_batch, i), b, lki_ref_offset(&b_batch, i), c,
                 i * m * n, m, n, k);
    return LK_OK;
}

/* y[i, j] = activation(sum_l x[i, l] w[j, l] + b[j]) */
lk_status lki_ref_linear(const lk_call *call)
{
    const lk_tensor *x = &call->in[0], *w = &call->in[1], *b = lki_ref_in(call, 2), *y = &call->out[0];
    int64_t n = w->shape.dim[0], k = w->shape.dim[1]; /* w: (n, k) */
    int64_t rows = lki_ref_span(x->shape, 0, x->shape.rank - 1);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = b ? lki_ref_get(b, j) : 0;
            for (int64_t l = 0; l < k; l++) sum += lki_ref_get(x, i * k + l) * lki_ref_get(w, j * k + l);
            if (call->attr->linear.activation == LK_ACTIVATION_RELU && sum < 0) sum = 0;
            lki_ref_set(y, i * n + j, sum);
        }
    return LK_OK;
}

/* dw[j, l] = sum_i dy[i, j] x[i, l]; db[j] = sum_i dy[i, j] */
lk_status lki_ref_linear_grad(const lk_call *call)
{
    const lk_tensor *dy = &call->in[0], *x = &call->in[1];
    const lk_tensor *dw = lki_ref_out(call, 0),
                    *db = call->attr->linear.wants_bias ? lki_ref_out(call, 1) : NULL;
    int64_t n = dy->shape.dim[dy->shape.rank - 1], k = x->shape.dim[x->shape.rank - 1];
    int64_t rows = lki_ref_span(x->shape, 0, x->shape.rank - 1);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t l = 0; dw && l < k; l++) {
            double sum = 0;
            for (int64_t i = 0; i < rows; i++) sum += lki_ref_get(dy, i * n + j) * lki_ref_get(x, i * k + l);
            lki_ref_set(dw, j * k + l, sum);
        }
        double sum = 0;
        for (int64_t i = 0; db && i < rows; i++) sum += lki_ref_get(dy, i * n + j);
        if (db) lki_ref_set(db, j, sum);
    }
    return LK_OK;
}
