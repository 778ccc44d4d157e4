/* One step of one sequence of a recurrent layer, all of its gates at once. */
#ifndef LKI_CPU_KERNELS_RECURRENT_H
#define LKI_CPU_KERNELS_RECURRENT_H

#include "engine/cpu/kernels.h"
#include "engine/cpu/kernels/math.h"

/* The first `n` numbers at p + i, or a whole vector; 0 where p is NULL. */
INLINE v recurrent_load(const float *p, int64_t i, int64_t n)
{
    if (!p) return v_set(0.0f);
    return n == VN ? v_load(p + i) : v_load_n(p + i, n);
}

INLINE void recurrent_store(float *p, int64_t i, v a, int64_t n)
{
    if (n == VN)
        v_store(p + i, a);
    else
        v_store_n(p + i, a, n);
}

INLINE v recurrent_sigmoid(v x)
{
    return v_divide(v_set(1.0f), v_set(1.0f) + v_exp(-x));
}

/* i, f, g, o: c' = f c + i g; h' = o tanh c'. */
static void lstm_step(const lki_recurrent_row *row)
{
    int64_t size = row->size;
    for (int64_t j = 0; j < size; j += VN) {
        int64_t n = size - j < VN ? size - j : VN;
        v a[4];
        UNROLL for (int g = 0; g < 4; g++) a[g] =
            recurrent_load(row->x, g * size + j, n) + recurrent_load(row->h_gates, g * size + j, n);
        v i = recurrent_sigmoid(a[0]), f = recurrent_sigmoid(a[1]), g = v_tanh(a[2]),
          o = recurrent_sigmoid(a[3]);
        v c = v_fma(f, recurrent_load(row->c, j, n), i * g);
        recurrent_store(row->c, j, c, n);
        recurrent_store(row->h, j, o * v_tanh(c), n);
        if (!row->gates) continue;
        recurrent_store(row->gates, j, i, n);
        recurrent_store(row->gates, size + j, f, n);
        recurrent_store(row->gates, 2 * size + j, g, n);
        recurrent_store(row->gates, 3 * size + j, o, n);
        recurrent_store(row->extra, j, c, n);
    }
}

/* r, z, n: n = tanh(x_n + r h_n); h' = n + z (h - n). */
static void gru_step(const lki_recurrent_row *row)
{
    int64_t size = row->size;
    const float *x = row->x, *shares = row->h_gates;
    for (int64_t j = 0; j < size; j += VN) {
        int64_t n = size - j < VN ? size - j : VN;
        v r = recurrent_sigmoid(recurrent_load(x, j, n) + recurrent_load(shares, j, n));
        v z = recurrent_sigmoid(recurrent_load(x, size + j, n) + recurrent_load(shares, size + j, n));
        v inner = recurrent_load(shares, 2 * size + j, n);
        v fresh = v_tanh(v_fma(r, inner, recurrent_load(x, 2 * size + j, n)));
        recurrent_store(row->h, j, v_fma(z, recurrent_load(row->h, j, n) - fresh, fresh), n);
        if (!row->gates) continue;
        recurrent_store(row->gates, j, r, n);
        recurrent_store(row->gates, size + j, z, n);
        recurrent_store(row->gates, 2 * size + j, fresh, n);
        recurrent_store(row->extra, j, inner, n);
    }
}

static void rnn_step(const lki_recurrent_row *row)
{
    bool relu = row->kind == LK_RECURRENT_RNN_RELU;
    for (int64_t j = 0; j < row->size; j += VN) {
        int64_t n = row->size - j < VN ? row->size - j : VN;
        v a = recurrent_load(row->x, j, n) + recurrent_load(row->h_gates, j, n);
        recurrent_store(row->h, j, relu ? v_max(v_set(0.0f), a) : v_tanh(a), n);
    }
}

static void recurrent_step(const lki_recurrent_row *row)
{
    if (row->kind == LK_RECURRENT_LSTM)
        lstm_step(row);
    else if (row->kind == LK_RECURRENT_GRU)
        gru_step(row);
    else
        rnn_step(row);
}

/* do = dh tanh(c') o (1 - o); dc += dh o (1 - tanh(c')^2); di = dc g i (1 - i); df = dc c f (1 - f); dg = dc
 * i (1 - g^2); dc = dc f */
static void lstm_step_back(const lki_recurrent_row *row)
{
    int64_t size = row->size;
    const v one = v_set(1.0f);
    for (int64_t j = 0; j < size; j += VN) {
        int64_t n = size - j < VN ? size - j : VN;
        v i = recurrent_load(row->gates, j, n), f = recurrent_load(row->gates, size + j, n),
          g = recurrent_load(row->gates, 2 * size + j, n), o = recurrent_load(row->gates, 3 * size + j, n);
        v t = v_tanh(recurrent_load(row->extra, j, n)), dh = recurrent_load(row->dh, j, n);
        v dc = v_fma(dh * o, one - t * t, recurrent_load(row->dc, j, n));
        recurrent_store(row->dgates, j, dc * g * i * (one - i), n);
        recurrent_store(row->dgates, size + j, dc * recurrent_load(row->c_old, j, n) * f * (one - f), n);
        recurrent_store(row->dgates, 2 * size + j, dc * i * (one - g * g), n);
        recurrent_store(row->dgates, 3 * size + j, dh * t * o * (one - o), n);
        recurrent_store(row->dc, j, dc * f, n);
        recurrent_store(row->dh, j, v_set(0.0f), n);
    }
}

/* dz = dh (h - n) z (1 - z); dn = dh (1 - z) (1 - n^2); dr = dn h_n r (1 - r); dh_n = dn r; dh = dh z */
static void gru_step_back(const lki_recurrent_row *row)
{
    int64_t size = row->size;
    const v one = v_set(1.0f);
    for (int64_t j = 0; j < size; j += VN) {
        int64_t n = size - j < VN ? size - j : VN;
        v r = recurrent_load(row->gates, j, n), z = recurrent_load(row->gates, size + j, n),
          fresh = recurrent_load(row->gates, 2 * size + j, n), inner = recurrent_load(row->extra, j, n);
        v dh = recurrent_load(row->dh, j, n);
        v dz = dh * (recurrent_load(row->h_old, j, n) - fresh) * z * (one - z);
        v dn = dh * (one - z) * (one - fresh * fresh), dr = dn * inner * r * (one - r);
        recurrent_store(row->dgates, j, dr, n);
        recurrent_store(row->dgates, size + j, dz, n);
        recurrent_store(row->dgates, 2 * size + j, dn, n);
        recurrent_store(row->dgates_h, j, dr, n);
        recurrent_store(row->dgates_h, size + j, dz, n);
        recurrent_store(row->dgates_h, 2 * size + j, dn * r, n);
        recurrent_store(row->dh, j, dh * z, n);
    }
}

static void rnn_step_back(const lki_recurrent_row *row)
{
    const v one = v_set(1.0f), zero = v_set(0.0f);
    bool relu = row->kind == LK_RECURRENT_RNN_RELU;
    for (int64_t j = 0; j < row->size; j += VN) {
        int64_t n = row->size - j < VN ? row->size - j : VN;
        v dh = recurrent_load(row->dh, j, n), y = recurrent_load(row->y, j, n);
        recurrent_store(row->dgates, j, relu ? v_and(v_less(zero, y), dh) : dh * (one - y * y), n);
        recurrent_store(row->dh, j, zero, n);
    }
}

static void recurrent_step_back(const lki_recurrent_row *row)
{
    if (row->kind == LK_RECURRENT_LSTM)
        lstm_step_back(row);
    else if (row->kind == LK_RECURRENT_GRU)
        gru_step_back(row);
    else
        rnn_step_back(row);
}

#endif
