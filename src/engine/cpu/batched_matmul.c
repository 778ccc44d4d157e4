#include "engine/cpu/batched_matmul.h"

#include "engine/cpu/cpu.h"

static void batch_strides(int64_t *stride, lk_shape x, lk_shape out, int64_t matrix)
{
    int added = out.rank - x.rank;
    for (int i = out.rank - 3; i >= 0; i--) {
        int64_t dim = i < added ? 1 : x.dim[i - added];
        stride[i] = dim == 1 ? 0 : matrix;
        matrix *= dim;
    }
}

lki_batch lki_batch_of(const lk_call *call)
{
    lk_shape a = call->in[0].shape, b = call->in[1].shape, c = call->out[0].shape;
    bool ta = call->attr->matmul.transpose_a, tb = call->attr->matmul.transpose_b;
    int64_t m = c.dim[c.rank - 2], n = c.dim[c.rank - 1], k = a.dim[a.rank - (ta ? 2 : 1)];
    lki_batch p = {
        .m = m,
        .n = n,
        .k = k,
        .a_row = ta ? 1 : k,
        .a_col = ta ? m : 1,
        .b_row = tb ? 1 : n,
        .b_col = tb ? k : 1,
        .rank = c.rank - 2,
    };
    for (int i = 0; i < p.rank; i++) p.dim[i] = c.dim[i];
    p.count = lki_cpu_span(c, 0, p.rank);
    batch_strides(p.a_stride, a, c, m * k);
    batch_strides(p.b_stride, b, c, k * n);
    bool shared = !ta && lki_cpu_span(b, 0, b.rank - 2) == 1 && lki_cpu_span(a, 0, a.rank - 2) == p.count;
    if (shared) { /* one b for all: the rows of the whole batch are one matrix */
        p.m *= p.count;
        p.count = 1;
        p.rank = 0;
    }
    return p;
}

void lki_batch_offsets(const lki_batch *batch, int64_t index, int64_t *a, int64_t *b)
{
    *a = *b = 0;
    for (int i = batch->rank - 1; i >= 0; i--) {
        int64_t at = index % batch->dim[i];
        index /= batch->dim[i];
        *a += at * batch->a_stride[i];
        *b += at * batch->b_stride[i];
    }
}
