/* Attention and its gradient for any width, dtype and mask: a warp per query, or per key on the way back. A
 * lane scores one of 32 keys, then adds up some columns of the result. Portable rather than fast; see
 * engine/ref/attention.c for the formulas. */
#include "engine/cuda/kernels.cuh"
#include "engine/cuda/philox.cuh"
#include "graph/attention.h"

namespace
{

enum { WARPS = LKI_CUDA_BLOCK / 32, COLUMNS = 4 /* of 32, that a lane adds up at a time */ };

/* What dropout needs to draw again: the first bytes of the third result. */
struct draw_key {
    uint2 key;
    unsigned number;
};

struct attention_state {
    lki_cuda *cuda;
    lki_attention a;
    double scale, p;
    bool is_causal, forbids, drops;
    unsigned number;
    lk_dtype mask_dtype, key_mask_dtype;
};

/* The operands of a call. T is the dtype of q, k, v, y and dy; W is f32, or f64 for that. */
template <typename T> struct operands {
    using W = typename lki_cuda_wide<T>::type;
    attention_state s;
    const T *q, *k, *v, *y, *dy;
    const void *mask, *key_mask;
    const W *log_sums;
    W *delta; /* scratch: sum(dy y) of each query */
    unsigned char *draws;
    const lki_cuda_live *live;
    void *out[3]; /* y, or dq, dk, dv */
    lk_dtype out_dtype;
    W *log_sums_out;
};

__device__ int64_t place(const lki_heads &h, int64_t b, int64_t head, int64_t i)
{
    return h.base + b * h.batch + head * h.head + i * h.row;
}

/* What a mask adds to a score. */
template <typename W> __device__ W masked(const void *mask, lk_dtype dtype, bool forbids, int64_t at)
{
    switch (dtype) {
    case LK_BOOL: return (((const unsigned char *)mask)[at] != 0) == forbids ? (W)-INFINITY : (W)0;
    case LK_F64: return (W)((const double *)mask)[at];
    case LK_BF16: return (W)__bfloat162float(((const __nv_bfloat16 *)mask)[at]);
    case LK_F16: return (W)__half2float(((const __half *)mask)[at]);
    default: return (W)((const float *)mask)[at];
    }
}

template <typename W> __device__ void store(void *out, lk_dtype dtype, int64_t at, W value)
{
    switch (dtype) {
    case LK_F64: ((double *)out)[at] = (double)value; break;
    case LK_BF16: ((__nv_bfloat16 *)out)[at] = __float2bfloat16_rn((float)value); break;
    case LK_F16: ((__half *)out)[at] = __float2half_rn((float)value); break;
    default: ((float *)out)[at] = (float)value; break;
    }
}

template <typename T> __device__ typename lki_cuda_wide<T>::type dot(const T *a, const T *b, int64_t count)
{
    typename lki_cuda_wide<T>::type sum = 0;
    for (int64_t i = 0; i < count; i++) sum += lki_cuda_widen(a[i]) * lki_cuda_widen(b[i]);
    return sum;
}

/* The score of query i with key j; minus infinity where it sees none. */
template <typename T>
__device__ typename lki_cuda_wide<T>::type score(const operands<T> &o, int64_t b, int64_t h, int64_t i,
                                                 int64_t j)
{
    using W = typename lki_cuda_wide<T>::type;
    const lki_attention &a = o.s.a;
    int64_t g = h / (a.heads / a.kv_heads);
    W value = dot(o.q + place(a.q, b, h, i), o.k + place(a.k, b, g, j), a.width) * (W)o.s.scale;
    if (o.mask)
        value += masked<W>(o.mask, o.s.mask_dtype, o.s.forbids,
                           b * a.mask_batch + h * a.mask_head + i * a.mask_row + j);
    if (o.key_mask) value += masked<W>(o.key_mask, o.s.key_mask_dtype, o.s.forbids, b * a.keys + j);
    return value;
}

__device__ draw_key key_of(const unsigned char *draws)
{
    draw_key key;
    memcpy(&key, draws, sizeof key);
    return key;
}

/* What dropout multiplies the weight of query i (counted over all heads) and key j with. */
__device__ double kept(const attention_state &s, const draw_key &key, int64_t i, int64_t j)
{
    int64_t at = i * s.a.keys + j, word = at / 4;
    lki_cuda_quad random =
        lki_cuda_philox(key.key, {{(unsigned)word, (unsigned)(word >> 32), key.number, 2}});
    return random.at[at % 4] < (unsigned long long)((1 - s.p) * 4294967296.0) ? 1 / (1 - s.p) : 0;
}

/* The query, or key, of this warp; false beyond the last one. */
__device__ bool find_line(int64_t count, int64_t length, int64_t heads, int64_t *line, int64_t *b, int64_t *h,
                          int64_t *i)
{
    *line = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32;
    if (*line >= count) return false;
    *i = *line % length, *h = *line / length % heads, *b = *line / length / heads;
    return true;
}

/* Adds factor_t row_t, over the 32 rows from `row` on, to this lane's columns of a result: from `first` on.
 */
template <typename T, typename W>
__device__ void add_rows(W sum[COLUMNS], W factor, const T *row, int64_t stride, int64_t rows, int64_t first,
                         int64_t width)
{
    int lane = threadIdx.x % 32;
    for (int64_t t = 0; t < rows; t++, row += stride) {
        W f = __shfl_sync(0xffffffffu, factor, (int)t);
        for (int c = 0; c < COLUMNS; c++) {
            int64_t d = first + c * 32 + lane;
            if (d < width) sum[c] += f * (W)lki_cuda_widen(row[d]);
        }
    }
}

template <typename W>
__device__ void store_columns(void *out, lk_dtype dtype, int64_t at, const W sum[COLUMNS], W factor,
                              int64_t first, int64_t width)
{
    int lane = threadIdx.x % 32;
    for (int c = 0; c < COLUMNS; c++)
        if (first + c * 32 + lane < width) store(out, dtype, at + first + c * 32 + lane, sum[c] * factor);
}

__device__ int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* How many keys query i sees, as lki_attention_reach says on the host. */
__device__ int64_t reach_of(const lki_attention &a, bool is_causal, int64_t i)
{
    return is_causal ? least(i + 1, a.keys) : a.keys;
}

template <typename T> __global__ void __launch_bounds__(LKI_CUDA_BLOCK) forward_kernel(operands<T> o)
{
    using W = typename lki_cuda_wide<T>::type;
    const lki_attention &a = o.s.a;
    int64_t line, b, h, i;
    draw_key key = {};
    if (o.s.drops) {
        key = {make_uint2((unsigned)o.live->draw, (unsigned)(o.live->draw >> 32)), o.s.number};
        if (o.draws && blockIdx.x == 0 && threadIdx.x == 0) memcpy(o.draws, &key, sizeof key);
    }
    if (!find_line(a.batch * a.heads * a.queries, a.queries, a.heads, &line, &b, &h, &i)) return;
    int64_t reach = reach_of(a, o.s.is_causal, i), g = h / (a.heads / a.kv_heads);
    int lane = threadIdx.x % 32;
    W largest = (W)-INFINITY, whole = 0;
    for (int64_t j = lane; j < reach; j += 32) largest = lki_cuda_larger(largest, score(o, b, h, i, j));
    largest = lki_cuda_warp_max(largest);
    for (int64_t j = lane; j < reach; j += 32) whole += exp(score(o, b, h, i, j) - largest);
    whole = lki_cuda_warp_sum(whole);
    if (lane == 0 && o.log_sums_out) o.log_sums_out[line] = largest + log(whole);
    for (int64_t first = 0; o.out[0] && first < a.value_width; first += COLUMNS * 32) {
        W sum[COLUMNS] = {};
        for (int64_t j0 = 0; j0 < reach; j0 += 32) {
            int64_t j = j0 + lane;
            W weight = j < reach ? exp(score(o, b, h, i, j) - largest) : (W)0;
            if (o.s.drops && j < reach) weight *= (W)kept(o.s, key, line, j);
            add_rows(sum, weight, o.v + place(a.v, b, g, j0), a.v.row, least(reach - j0, 32), first,
                     a.value_width);
        }
        store_columns(o.out[0], o.out_dtype, place(a.y, b, h, i), sum, reach ? 1 / whole : (W)1, first,
                      a.value_width);
    }
}

/* delta = sum(dy y) of each query. */
template <typename T> __global__ void __launch_bounds__(LKI_CUDA_BLOCK) delta_kernel(operands<T> o)
{
    const lki_attention &a = o.s.a;
    int64_t line, b, h, i;
    if (!find_line(a.batch * a.heads * a.queries, a.queries, a.heads, &line, &b, &h, &i)) return;
    int64_t at = place(a.y, b, h, i);
    typename lki_cuda_wide<T>::type sum = 0;
    for (int64_t d = threadIdx.x % 32; d < a.value_width; d += 32)
        sum += lki_cuda_widen(o.dy[at + d]) * lki_cuda_widen(o.y[at + d]);
    sum = lki_cuda_warp_sum(sum);
    if (threadIdx.x % 32 == 0) o.delta[line] = sum;
}

/* A weight, after dropout, and the gradient of its score. */
template <typename W> struct pair {
    W weight, slope;
};

template <typename T>
__device__ pair<typename lki_cuda_wide<T>::type> look_back(const operands<T> &o, const draw_key &key,
                                                           int64_t b, int64_t h, int64_t i, int64_t j)
{
    using W = typename lki_cuda_wide<T>::type;
    const lki_attention &a = o.s.a;
    int64_t line = (b * a.heads + h) * a.queries + i, g = h / (a.heads / a.kv_heads);
    W weight = exp(score(o, b, h, i, j) - o.log_sums[line]);
    W product = dot(o.dy + place(a.y, b, h, i), o.v + place(a.v, b, g, j), a.value_width);
    W factor = o.s.drops ? (W)kept(o.s, key, line, j) : (W)1;
    return {weight * factor, weight * (product * factor - o.delta[line]) * (W)o.s.scale};
}

template <typename T> __global__ void __launch_bounds__(LKI_CUDA_BLOCK) query_kernel(operands<T> o)
{
    using W = typename lki_cuda_wide<T>::type;
    const lki_attention &a = o.s.a;
    int64_t line, b, h, i;
    draw_key key = {};
    if (o.s.drops) key = key_of(o.draws);
    if (!find_line(a.batch * a.heads * a.queries, a.queries, a.heads, &line, &b, &h, &i)) return;
    int64_t reach = reach_of(a, o.s.is_causal, i), g = h / (a.heads / a.kv_heads);
    for (int64_t first = 0; first < a.width; first += COLUMNS * 32) {
        W sum[COLUMNS] = {};
        for (int64_t j0 = 0; j0 < reach; j0 += 32) {
            int64_t j = j0 + threadIdx.x % 32;
            W slope = j < reach ? look_back(o, key, b, h, i, j).slope : (W)0;
            add_rows(sum, slope, o.k + place(a.k, b, g, j0), a.k.row, least(reach - j0, 32), first, a.width);
        }
        store_columns(o.out[0], o.out_dtype, place(a.q, b, h, i), sum, (W)1, first, a.width);
    }
}

/* dk (TURN 0) or dv (1) of one key: the queries of all heads that share it, in order. */
template <int TURN, typename T> __global__ void __launch_bounds__(LKI_CUDA_BLOCK) key_kernel(operands<T> o)
{
    using W = typename lki_cuda_wide<T>::type;
    const lki_attention &a = o.s.a;
    int64_t line, b, g, j, share = a.heads / a.kv_heads, width = TURN ? a.value_width : a.width;
    draw_key key = {};
    if (o.s.drops) key = key_of(o.draws);
    if (!find_line(a.batch * a.kv_heads * a.keys, a.keys, a.kv_heads, &line, &b, &g, &j)) return;
    for (int64_t first = 0; first < width; first += COLUMNS * 32) {
        W sum[COLUMNS] = {};
        for (int64_t h = g * share; h < (g + 1) * share; h++)
            for (int64_t i0 = o.s.is_causal ? j / 32 * 32 : 0; i0 < a.queries; i0 += 32) {
                int64_t i = i0 + threadIdx.x % 32;
                bool sees = i < a.queries && (!o.s.is_causal || j <= i);
                pair<W> p = {};
                if (sees) p = look_back(o, key, b, h, i, j);
                const T *rows = TURN ? o.dy + place(a.y, b, h, i0) : o.q + place(a.q, b, h, i0);
                add_rows(sum, TURN ? p.weight : p.slope, rows, TURN ? a.y.row : a.q.row,
                         least(a.queries - i0, 32), first, width);
            }
        store_columns(o.out[TURN + 1], o.out_dtype, place(TURN ? a.v : a.k, b, g, j), sum, (W)1, first,
                      width);
    }
}

template <typename T> operands<T> describe(const lk_call *call)
{
    using W = typename lki_cuda_wide<T>::type;
    operands<T> o = {};
    bool is_forward = call->op == LK_OP_ATTENTION;
    int first = is_forward ? 0 : 2;
    o.s = *(const attention_state *)call->state;
    o.q = lki_cuda_in<T>(call, first), o.k = lki_cuda_in<T>(call, first + o.s.a.k_in);
    o.v = lki_cuda_in<T>(call, first + o.s.a.v_in);
    o.mask = lki_cuda_in<void>(call, first + 3), o.key_mask = lki_cuda_in<void>(call, first + 4);
    o.live = o.s.cuda->live;
    o.out_dtype = call->out[0].dtype;
    if (is_forward) {
        o.out[0] = lki_cuda_out<void>(call, 0), o.log_sums_out = lki_cuda_out<W>(call, 1);
        o.draws = lki_cuda_out<unsigned char>(call, 2);
        return o;
    }
    o.dy = lki_cuda_in<T>(call, 0), o.y = lki_cuda_in<T>(call, 1), o.log_sums = lki_cuda_in<W>(call, 7);
    o.draws = (unsigned char *)lki_cuda_in<unsigned char>(call, 8);
    o.delta = (W *)call->scratch;
    o.out[0] = lki_cuda_out<void>(call, o.s.a.q_in), o.out[1] = lki_cuda_out<void>(call, o.s.a.k_in);
    o.out[2] = lki_cuda_out<void>(call, o.s.a.v_in);
    return o;
}

unsigned warps(int64_t lines)
{
    return (unsigned)((lines + WARPS - 1) / WARPS);
}

template <typename T> lk_status launch(const lk_call *call)
{
    operands<T> o = describe<T>(call);
    const lki_attention &a = o.s.a;
    cudaStream_t stream = o.s.cuda->compute;
    unsigned queries = warps(a.batch * a.heads * a.queries), keys = warps(a.batch * a.kv_heads * a.keys);
    if (call->op == LK_OP_ATTENTION) {
        if (queries) forward_kernel<T><<<queries, LKI_CUDA_BLOCK, 0, stream>>>(o);
        LKI_LAUNCHED();
        return LK_OK;
    }
    if (queries) delta_kernel<T><<<queries, LKI_CUDA_BLOCK, 0, stream>>>(o);
    if (queries && o.out[0]) query_kernel<T><<<queries, LKI_CUDA_BLOCK, 0, stream>>>(o);
    if (keys && o.out[1]) key_kernel<0, T><<<keys, LKI_CUDA_BLOCK, 0, stream>>>(o);
    if (keys && o.out[2]) key_kernel<1, T><<<keys, LKI_CUDA_BLOCK, 0, stream>>>(o);
    LKI_LAUNCHED();
    return LK_OK;
}

lk_status run(const lk_call *call)
{
    LKI_CUDA_FLOAT_SWITCH(call->in[0].dtype, T, return launch<T>(call))
    return LK_OK;
}

/* q, k, v, y and dy are of one dtype, the logarithms of f32 or f64. */
bool is_supported(const lk_call *call)
{
    lk_dtype dtype = call->in[0].dtype, wide = dtype == LK_F64 ? LK_F64 : LK_F32;
    bool is_forward = call->op == LK_OP_ATTENTION;
    for (int i = 1; i < (is_forward ? 3 : 5); i++)
        if (call->in[i].shape.rank && call->in[i].dtype != dtype) return false;
    if (is_forward && call->out[1].data && call->out[1].dtype != wide) return false;
    return lki_cuda_is_float(dtype) && (is_forward || call->in[7].dtype == wide);
}

} // namespace

lk_status lki_cuda_prepare_attention(lki_cuda *cuda, lk_call *call)
{
    const lk_attention_attr *attr = &call->attr->attention;
    int first = call->op == LK_OP_ATTENTION ? 0 : 2;
    if (!is_supported(call))
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "the cuda engine has no kernel for attention of %s",
                             lki_cuda_dtype_name(call->in[0].dtype));
    attention_state *state = (attention_state *)lki_cuda_new_state(call, sizeof *state);
    if (!state) return LK_ERR_NOMEM;
    state->cuda = cuda;
    state->a = lki_attention_of_call(call);
    state->scale = attr->scale, state->p = attr->p, state->is_causal = attr->is_causal;
    state->forbids = attr->mask_forbids, state->drops = lki_attention_drops(attr);
    state->mask_dtype = first + 3 < call->input_count ? call->in[first + 3].dtype : LK_F32;
    state->key_mask_dtype = first + 4 < call->input_count ? call->in[first + 4].dtype : LK_F32;
    if (state->drops && call->op == LK_OP_ATTENTION) state->number = (unsigned)++cuda->dropout_count;
    if (call->op == LK_OP_ATTENTION_GRAD)
        call->scratch_nbytes = (size_t)(state->a.batch * state->a.heads * state->a.queries) * sizeof(double);
    call->run = run;
    return LK_OK;
}
