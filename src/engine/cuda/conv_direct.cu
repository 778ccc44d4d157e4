/* Convolutions straight from the definition, for few channels (where nothing is gained by a matrix product
 * and all is over in one launch), and for all that cuDNN does not take. A thread has one place of the result
 * and CHANNELS of its channels; the weights that its block needs lie in shared memory. */
#include "engine/cuda/conv.cuh"

#include <type_traits>

enum { THREADS = 128, MOST_SHARED = 48 << 10 };

/* The result's side and the side it is gathered from. */
typedef struct sides {
    int to_channels, from_channels, group_to, group_from; /* channels: of the whole, of a group */
    int to_size, from_size;
    int64_t to_step, from_step; /* of the weight, from channel to channel */
} sides;

static sides sides_of(const lki_cuda_conv_shape *s)
{
    int taps = s->window.kernel_size;
    if (s->role == LKI_CUDA_CONV_OUT)
        return {s->out_channels,
                s->in_channels,
                s->group_out,
                s->group_in,
                s->window.out_size,
                s->window.in_size,
                (int64_t)s->group_in * taps,
                taps};
    return {s->in_channels,    s->out_channels,    s->group_in, s->group_out,
            s->window.in_size, s->window.out_size, taps,        (int64_t)s->group_in * taps};
}

/* The coordinate that tap k reads for coordinate `at` of the result, or -1. Backward it is the output whose
 * tap k read us. */
template <bool BACK> static __device__ int source(const lki_cuda_axis &a, int at, int k)
{
    if (!BACK) {
        int s = at * a.stride - a.padding + k * a.dilation;
        return s < a.in ? s : -1; /* below 0 is below 0 */
    }
    int shifted = at + a.padding - k * a.dilation;
    if (shifted < 0) return -1;
    int p = a.stride == 1 ? shifted : shifted / a.stride;
    return p * a.stride == shifted && p < a.out ? p : -1;
}

/* The weights of CHANNELS result channels, as [source channel][tap][channel]. */
template <typename T, typename A, int CHANNELS>
static __device__ void take_weights(const sides &d, int taps, const T *weight, A *shared)
{
    int count = d.group_from * taps * CHANNELS;
    for (int i = (int)threadIdx.x; i < count; i += THREADS) {
        int channel = i % CHANNELS, tap = i / CHANNELS % taps, from = i / CHANNELS / taps;
        shared[i] = A(weight[from * d.from_step + channel * d.to_step + tap]);
    }
    __syncthreads();
}

/* One tap at one place: all source channels of the group. */
template <typename T, typename A, int CHANNELS, bool SHARED>
static __device__ void add_tap(A (&acc)[CHANNELS], const sides &d, int taps, const T *from, const T *weight,
                               const A *shared, int tap)
{
#pragma unroll 4
    for (int c = 0; c < d.group_from; c++) {
        A x = A(from[(int64_t)c * d.from_size]);
#pragma unroll
        for (int j = 0; j < CHANNELS; j++)
            acc[j] += x * (SHARED ? shared[(c * taps + tap) * CHANNELS + j]
                                  : A(weight[c * d.from_step + j * d.to_step + tap]));
    }
}

template <typename T, int CHANNELS, bool BACK, bool SHARED>
static __global__ void __launch_bounds__(THREADS)
    direct_kernel(lki_cuda_window w, sides d, int64_t batch, lki_cuda_conv_operands o)
{
    using A = typename lki_cuda_wide<T>::type;
    extern __shared__ __align__(16) unsigned char memory[];
    A *shared = (A *)memory;
    int first = (int)blockIdx.y * CHANNELS, group = first / d.group_to;
    int64_t group_weights = (int64_t)group * d.group_to * d.group_from * w.kernel_size;
    const T *weight = (const T *)o.right + group_weights + (first - group * d.group_to) * d.to_step;
    if (SHARED) take_weights<T, A, CHANNELS>(d, w.kernel_size, weight, shared);
    for (int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x; i < batch * d.to_size;
         i += (int64_t)gridDim.x * THREADS) {
        int place, at[3], width = BACK ? w.axis[2].out : w.axis[2].in,
                          height = BACK ? w.axis[1].out : w.axis[1].in;
        int64_t n = lki_cuda_divide(i, d.to_size, &place);
        lki_cuda_unflatten(at, place, BACK ? w.axis[1].in : w.axis[1].out,
                           BACK ? w.axis[2].in : w.axis[2].out);
        const T *from = (const T *)o.left + (n * d.from_channels + group * d.group_from) * d.from_size;
        A acc[CHANNELS] = {};
        for (int k0 = 0, tap = 0; k0 < w.axis[0].kernel; k0++) {
            int s0 = source<BACK>(w.axis[0], at[0], k0);
            for (int k1 = 0; k1 < w.axis[1].kernel; k1++) {
                int s1 = source<BACK>(w.axis[1], at[1], k1);
                for (int k2 = 0; k2 < w.axis[2].kernel; k2++, tap++) {
                    int s2 = source<BACK>(w.axis[2], at[2], k2);
                    if ((s0 | s1 | s2) < 0) continue;
                    add_tap<T, A, CHANNELS, SHARED>(
                        acc, d, w.kernel_size, from + (s0 * height + s1) * width + s2, weight, shared, tap);
                }
            }
        }
#pragma unroll
        for (int j = 0; j < CHANNELS; j++)
            lki_cuda_conv_store<T, A>(o, (n * d.to_channels + first + j) * d.to_size + place, first + j,
                                      acc[j]);
    }
}

/* ---- f32, kernels of 2 or 3 along each axis: all taps of some channels are asked for at once ---- */

/* What threads need to find their place. */
typedef struct finder {
    lki_cuda_divisor size, height, width, stride[3];
} finder;

static finder finder_of(const lki_cuda_window *w, bool back)
{
    const lki_cuda_axis *a = w->axis;
    return {lki_cuda_divisor_of(back ? w->in_size : w->out_size),
            lki_cuda_divisor_of(back ? a[1].in : a[1].out),
            lki_cuda_divisor_of(back ? a[2].in : a[2].out),
            {lki_cuda_divisor_of(a[0].stride), lki_cuda_divisor_of(a[1].stride),
             lki_cuda_divisor_of(a[2].stride)}};
}

/* What the taps of an axis read, as source() has it for one of them. */
template <bool BACK, int K>
static __device__ void sources(const lki_cuda_axis &a, const lki_cuda_divisor &stride, int at, int (&to)[K])
{
#pragma unroll
    for (int k = 0; k < K; k++) {
        if (BACK) {
            int shifted = at + a.padding - k * a.dilation, rest, p;
            p = lki_cuda_quotient(stride, shifted < 0 ? 0 : shifted, &rest);
            to[k] = shifted >= 0 && rest == 0 && p < a.out ? p : -1;
        } else {
            int s = at * a.stride - a.padding + k * a.dilation;
            to[k] = s < a.in ? s : -1;
        }
    }
}

/* The places that all taps read, or -1, for element i of the result's places; none where i is too large. */
template <bool BACK, int K0, int K>
static __device__ int64_t taps_at(const lki_cuda_window &w, const finder &f, int64_t i, bool in, int *place,
                                  int (&at)[K0 * K * K])
{
    int p[3], s0[K0], s1[K], s2[K], height = BACK ? w.axis[1].out : w.axis[1].in,
                                    width = BACK ? w.axis[2].out : w.axis[2].in;
    int64_t n = lki_cuda_split(f.size, in ? i : 0, place);
    int row = lki_cuda_quotient(f.width, *place, &p[2]);
    p[0] = lki_cuda_quotient(f.height, row, &p[1]);
    sources<BACK, K0>(w.axis[0], f.stride[0], p[0], s0);
    sources<BACK, K>(w.axis[1], f.stride[1], p[1], s1);
    sources<BACK, K>(w.axis[2], f.stride[2], p[2], s2);
#pragma unroll
    for (int k = 0; k < K0 * K * K; k++) {
        int a = s0[k / (K * K)], b = s1[k / K % K], c = s2[k % K];
        at[k] = in && (a | b | c) >= 0 ? (a * height + b) * width + c : -1;
    }
    return n;
}

/* PIECE source channels are on their way at once, at first together with the weights. */
template <int CHANNELS, bool BACK, int K0, int K>
static __global__ void __launch_bounds__(THREADS)
    taps_kernel(lki_cuda_window w, finder f, sides d, int64_t count, lki_cuda_conv_operands o)
{
    constexpr int TAPS = K0 * K * K, PIECE = TAPS > 9 ? 1 : 3;
    extern __shared__ __align__(16) unsigned char memory[];
    float *shared = (float *)memory;
    int first = (int)blockIdx.y * CHANNELS, group = first / d.group_to;
    int64_t group_weights = (int64_t)group * d.group_to * d.group_from * TAPS;
    const float *weight = (const float *)o.right + group_weights + (first - group * d.group_to) * d.to_step;
    bool staged = false;
    for (int64_t base = blockIdx.x * (int64_t)THREADS; base < count; base += (int64_t)gridDim.x * THREADS) {
        int place, at[TAPS];
        bool in = base + threadIdx.x < count;
        int64_t n = taps_at<BACK, K0, K>(w, f, base + threadIdx.x, in, &place, at);
        const float *from =
            (const float *)o.left + (n * d.from_channels + group * d.group_from) * d.from_size;
        float acc[CHANNELS] = {};
        for (int c = 0; c < d.group_from; c += PIECE) {
            float x[PIECE][TAPS];
#pragma unroll
            for (int e = 0; e < PIECE; e++)
#pragma unroll
                for (int k = 0; k < TAPS; k++)
                    x[e][k] = at[k] >= 0 && c + e < d.group_from
                                  ? from[(int64_t)(c + e) * d.from_size + at[k]]
                                  : 0.0f;
            if (!staged) take_weights<float, float, CHANNELS>(d, TAPS, weight, shared);
            staged = true;
#pragma unroll
            for (int e = 0; e < PIECE; e++) {
                if (c + e >= d.group_from) break;
#pragma unroll
                for (int k = 0; k < TAPS; k++)
#pragma unroll
                    for (int j = 0; j < CHANNELS; j++)
                        if (at[k] >= 0) acc[j] += x[e][k] * shared[((c + e) * TAPS + k) * CHANNELS + j];
            }
        }
#pragma unroll
        for (int j = 0; j < CHANNELS; j++)
            if (in)
                lki_cuda_conv_store<float, float>(o, (n * d.to_channels + first + j) * d.to_size + place,
                                                  first + j, acc[j]);
    }
}

/* ---- Launches ---- */

/* True where the kernel is one of those, and launched. */
template <int CHANNELS, bool BACK>
static bool launch_taps(lki_cuda *cuda, const lki_cuda_conv_shape *s, const sides &d,
                        const lki_cuda_conv_operands *o, size_t shared)
{
    const lki_cuda_window &w = s->window;
    int k0 = w.axis[0].kernel, k1 = w.axis[1].kernel, k2 = w.axis[2].kernel;
    if (shared > MOST_SHARED || k1 != k2) return false;
    finder f = finder_of(&w, BACK);
    int64_t count = s->batch * d.to_size, blocks = (count + THREADS - 1) / THREADS,
            most = 64 * (int64_t)cuda->processor_count;
    dim3 grid((unsigned)(blocks < most ? blocks : most), (unsigned)(d.to_channels / CHANNELS));
    cudaStream_t stream = cuda->compute;
    if (k0 == 2 && k1 == 2)
        taps_kernel<CHANNELS, BACK, 2, 2><<<grid, THREADS, shared, stream>>>(w, f, d, count, *o);
    else if (k0 == 1 && k1 == 3)
        taps_kernel<CHANNELS, BACK, 1, 3><<<grid, THREADS, shared, stream>>>(w, f, d, count, *o);
    else if (k0 == 3 && k1 == 3)
        taps_kernel<CHANNELS, BACK, 3, 3><<<grid, THREADS, shared, stream>>>(w, f, d, count, *o);
    else
        return false;
    return true;
}

template <typename T, int CHANNELS, bool BACK>
static void launch(lki_cuda *cuda, const lki_cuda_conv_shape *s, const sides &d,
                   const lki_cuda_conv_operands *o)
{
    using A = typename lki_cuda_wide<T>::type;
    size_t shared = sizeof(A) * (size_t)d.group_from * (size_t)s->window.kernel_size * CHANNELS;
    if constexpr (std::is_same<T, float>::value)
        if (launch_taps<CHANNELS, BACK>(cuda, s, d, o, shared)) return;
    int64_t blocks = (s->batch * d.to_size + THREADS - 1) / THREADS,
            most = 16 * (int64_t)cuda->processor_count;
    dim3 grid((unsigned)(blocks < most ? blocks : most), (unsigned)(d.to_channels / CHANNELS));
    if constexpr (CHANNELS == 1) { /* more were chosen only where their weights fit */
        if (shared > MOST_SHARED) {
            direct_kernel<T, 1, BACK, false><<<grid, THREADS, 0, cuda->compute>>>(s->window, d, s->batch, *o);
            return;
        }
    }
    direct_kernel<T, CHANNELS, BACK, true>
        <<<grid, THREADS, shared, cuda->compute>>>(s->window, d, s->batch, *o);
}

/* As many channels a thread as divide a group, fit into shared memory and leave enough threads. */
static int channels_of(const lki_cuda *cuda, const lki_cuda_conv_shape *s, const sides &d, size_t nbytes)
{
    static const int choices[] = {8, 6, 4, 2};
    size_t weights = (size_t)d.group_from * (size_t)s->window.kernel_size * nbytes;
    int64_t threads = s->batch * d.to_size * d.to_channels, enough = (int64_t)cuda->processor_count * THREADS;
    for (int choice : choices)
        if (d.group_to % choice == 0 && weights * (size_t)choice <= MOST_SHARED && threads / choice >= enough)
            return choice;
    return 1;
}

template <typename T, bool BACK>
static void pick(lki_cuda *cuda, const lki_cuda_conv_shape *s, const sides &d,
                 const lki_cuda_conv_operands *o)
{
    switch (channels_of(cuda, s, d, sizeof(typename lki_cuda_wide<T>::type))) {
    case 8: launch<T, 8, BACK>(cuda, s, d, o); break;
    case 6: launch<T, 6, BACK>(cuda, s, d, o); break;
    case 4: launch<T, 4, BACK>(cuda, s, d, o); break;
    case 2: launch<T, 2, BACK>(cuda, s, d, o); break;
    default: launch<T, 1, BACK>(cuda, s, d, o); break;
    }
}

lk_status lki_cuda_run_direct(lki_cuda *cuda, const lki_cuda_conv *conv, const lki_cuda_conv_operands *o)
{
    const lki_cuda_conv_shape *s = &conv->shape;
    sides d = sides_of(s);
    if (s->batch * d.to_size * d.to_channels == 0) return LK_OK;
    if (d.to_channels > 65535)
        return lki_cuda_fail(LK_ERR_UNSUPPORTED,
                             "the cuda engine has no kernel for a convolution to %d channels", d.to_channels);
    if (s->role == LKI_CUDA_CONV_OUT)
        LKI_CUDA_FLOAT_SWITCH(conv->dtype, T, (pick<T, false>(cuda, s, d, o)))
    else
        LKI_CUDA_FLOAT_SWITCH(conv->dtype, T, (pick<T, true>(cuda, s, d, o)))
    LKI_LAUNCHED();
    return LK_OK;
}
