/* Cases of matmul and linear: the shapes of small and middling layers, odd ones, empty ones. */
#include "case.h"

#include <math.h>

/* The sum of k products of ordinary numbers has an error that grows with sqrt(k). */
static double tolerance_of(int64_t k)
{
    return 1e-5 * fmax(1, sqrt((double)k) / 8);
}

static lk_shape with_matrix(lk_shape batch, int64_t rows, int64_t columns)
{
    batch.dim[batch.rank++] = rows;
    batch.dim[batch.rank++] = columns;
    return batch;
}

static void matmul(lkt_case_list *list, lk_shape a_batch, lk_shape b_batch, lk_shape out_batch, int64_t m,
                   int64_t n, int64_t k)
{
    for (int transpose = 0; transpose < 4; transpose++) {
        bool ta = transpose & 1, tb = transpose >> 1;
        char a[64], b[64];
        lkt_case *c =
            lkt_case_add(list, LK_OP_MATMUL, "%s with %s m %lld n %lld k %lld transposed %d %d",
                         lk_shape_format(a, sizeof a, a_batch), lk_shape_format(b, sizeof b, b_batch),
                         (long long)m, (long long)n, (long long)k, ta, tb);
        c->attr.matmul.transpose_a = ta;
        c->attr.matmul.transpose_b = tb;
        c->tolerance = tolerance_of(k);
        lkt_in_f32(c, ta ? with_matrix(a_batch, k, m) : with_matrix(a_batch, m, k), LKT_NORMAL);
        lkt_in_f32(c, tb ? with_matrix(b_batch, n, k) : with_matrix(b_batch, k, n), LKT_NORMAL);
        lkt_out_f32(c, with_matrix(out_batch, m, n));
    }
}

static void linear(lkt_case_list *list, lk_shape lead, int64_t n, int64_t k)
{
    char text[64];
    lk_shape_format(text, sizeof text, lead);
    lk_shape x = lead, y = lead;
    x.dim[x.rank++] = k;
    y.dim[y.rank++] = n;
    for (int bias = 0; bias < 2; bias++) {
        for (int activation = 0; activation < 2; activation++) {
            lkt_case *c = lkt_case_add(list, LK_OP_LINEAR, "%s by %lld from %lld bias %d activation %d", text,
                                       (long long)n, (long long)k, bias, activation);
            c->attr.linear.activation = (lk_activation)activation;
            c->tolerance = tolerance_of(k);
            lkt_in_f32(c, x, LKT_NORMAL);
            lkt_in_f32(c, LK_SHAPE(n, k), LKT_NORMAL);
            c->keeps_f32[2] = true;
            if (bias)
                lkt_in_f32(c, LK_SHAPE(n), LKT_NORMAL);
            else
                lkt_in_absent(c);
            lkt_out_f32(c, y);
        }
        lkt_case *c = lkt_case_add(list, LK_OP_LINEAR_GRAD, "%s by %lld from %lld bias %d", text,
                                   (long long)n, (long long)k, bias);
        c->attr.linear.wants_bias = bias;
        c->tolerance = tolerance_of(lk_shape_count(lead));
        lkt_in_f32(c, y, LKT_NORMAL);
        lkt_in_f32(c, x, LKT_NORMAL);
        lkt_out_f32(c, LK_SHAPE(n, k));
        lkt_out_f32(c, LK_SHAPE(n));
        c->unwanted[1] = !bias;
    }
}

void lkt_cases_product(lkt_case_list *list)
{
    lk_shape none = lk_scalar_shape();
    matmul(list, none, none, none, 1, 1, 1);
    matmul(list, none, none, none, 3, 5, 7);
    matmul(list, none, none, none, 33, 17, 65);
    matmul(list, none, none, none, 64, 64, 64);
    matmul(list, none, none, none, 1, 67, 129);
    matmul(list, none, none, none, 67, 1, 129);
    matmul(list, none, none, none, 0, 5, 3);
    matmul(list, none, none, none, 4, 5, 0);
    matmul(list, LK_SHAPE(3), LK_SHAPE(3), LK_SHAPE(3), 5, 6, 7);
    matmul(list, LK_SHAPE(3), none, LK_SHAPE(3), 5, 6, 7);
    matmul(list, none, LK_SHAPE(3), LK_SHAPE(3), 5, 6, 7);
    matmul(list, LK_SHAPE(2, 1), LK_SHAPE(3), LK_SHAPE(2, 3), 9, 8, 17);
    matmul(list, LK_SHAPE(2, 1), LK_SHAPE(3), LK_SHAPE(2, 3), 96, 90, 88);
    matmul(list, LK_SHAPE(2, 4), LK_SHAPE(2, 4), LK_SHAPE(2, 4), 16, 16, 8);
    matmul(list, LK_SHAPE(2, 1, 3), LK_SHAPE(5, 1), LK_SHAPE(2, 5, 3), 3, 2, 4);
    linear(list, LK_SHAPE(1), 1, 1);
    linear(list, LK_SHAPE(3), 5, 7);
    linear(list, LK_SHAPE(32), 10, 784);
    linear(list, LK_SHAPE(65), 33, 129);
    linear(list, LK_SHAPE(2, 3), 17, 19);
    linear(list, LK_SHAPE(2, 3, 4), 8, 16);
    linear(list, none, 6, 9);
    linear(list, LK_SHAPE(0), 5, 7);
    /* One side is short, another long. */
    linear(list, LK_SHAPE(9), 1030, 24);
    linear(list, LK_SHAPE(70), 1028, 20);
    linear(list, LK_SHAPE(3), 1027, 32);
    linear(list, LK_SHAPE(5), 34000, 8);
    matmul(list, none, none, none, 9, 24, 1028);
    matmul(list, none, none, none, 70, 20, 1100);
    matmul(list, none, none, none, 1030, 32, 67);
    matmul(list, none, none, none, 3, 8, 2052);
}
