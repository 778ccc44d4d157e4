/* Convolutions of pictures: three channels fill no tensor core, and those of pictures go in steps of two. Two
 * by two places become one place of four times the channels (and zeros, so that 16 bytes are filled); input
 * 2 o + k - padding of output o is then half of place o + k / 2. */
#include "engine/cuda/conv.cuh"

enum { MOST_CHANNELS = 4, LEAST_KERNEL = 5, FILLED = 8 };

static int folded_channels(int channels)
{
    return (4 * channels + FILLED - 1) / FILLED * FILLED;
}

static bool axis_folds(const lki_cuda_axis *a)
{
    return a->stride == 2 && a->dilation == 1 && a->kernel >= LEAST_KERNEL;
}

bool lki_cuda_conv_folds(const lki_cuda_conv *conv)
{
    const lki_cuda_conv_shape *s = &conv->shape;
    const lki_cuda_window *w = &s->window;
    return w->channels_last && s->rank == 2 && s->groups == 1 && s->in_channels > 1 &&
           s->in_channels <= MOST_CHANNELS && s->role != LKI_CUDA_CONV_IN && axis_folds(&w->axis[1]) &&
           axis_folds(&w->axis[2]) && (conv->dtype == LK_BF16 || conv->dtype == LK_F16);
}

lki_cuda_conv_shape lki_cuda_fold_shape(const lki_cuda_conv_shape *shape)
{
    lki_cuda_conv_shape s = *shape;
    for (int i = 1; i < 3; i++) {
        lki_cuda_axis *a = &s.window.axis[i];
        a->kernel = (a->kernel + 1) / 2;
        a->stride = 1;
        a->padding = 0;
        a->in = a->out + a->kernel - 1;
    }
    s.window.in_size = s.window.axis[1].in * s.window.axis[2].in;
    s.window.kernel_size = s.window.axis[1].kernel * s.window.axis[2].kernel;
    s.in_channels = s.group_in = folded_channels(s.in_channels);
    return s;
}

/* `channels` before and after, where a plane begins, and its sizes before and after. */
typedef struct fold {
    int channels, folded, padding[2], from[2], to[2];
} fold;

/* A place a thread. */
template <int FOLDED>
static __global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    fold_kernel(fold f, const uint16_t *from, uint16_t *to, int64_t count)
{
    struct __align__(16) place
    {
        uint16_t at[FOLDED];
    };
    for (int64_t i = blockIdx.x * (int64_t)LKI_CUDA_BLOCK + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * LKI_CUDA_BLOCK) {
        int x, y;
        int64_t plane = lki_cuda_divide(lki_cuda_divide(i, f.to[1], &x), f.to[0], &y);
        place p;
#pragma unroll
        for (int e = 0; e < FOLDED; e++) p.at[e] = 0;
#pragma unroll
        for (int c = 0; c < FOLDED / 4; c++)
#pragma unroll
            for (int q = 0; q < 4; q++) {
                int s0 = 2 * y + q / 2 - f.padding[0], s1 = 2 * x + q % 2 - f.padding[1];
                bool in = c < f.channels && (unsigned)s0 < (unsigned)f.from[0] &&
                          (unsigned)s1 < (unsigned)f.from[1];
                int64_t at = ((plane * f.from[0] + s0) * f.from[1] + s1) * f.channels + c;
                p.at[q * (FOLDED / 4) + c] = in ? from[at] : (uint16_t)0;
            }
        ((place *)to)[i] = p;
    }
}

static fold fold_of(const lki_cuda_conv_shape *s, bool is_weight)
{
    fold f = {};
    f.channels = s->in_channels;
    f.folded = folded_channels(s->in_channels);
    for (int i = 0; i < 2; i++) {
        const lki_cuda_axis &a = s->window.axis[1 + i];
        int kernel = (a.kernel + 1) / 2;
        f.padding[i] = is_weight ? 0 : a.padding;
        f.from[i] = is_weight ? a.kernel : a.in;
        f.to[i] = is_weight ? kernel : a.out + kernel - 1;
    }
    return f;
}

static lk_status run_fold(lki_cuda *cuda, const fold &f, int64_t planes, const void *from, void *to)
{
    int64_t count = planes * f.to[0] * f.to[1];
    if (count == 0) return LK_OK;
    int blocks = lki_cuda_grid(cuda, count);
    if (f.folded == 8)
        fold_kernel<8>
            <<<blocks, LKI_CUDA_BLOCK, 0, cuda->compute>>>(f, (const uint16_t *)from, (uint16_t *)to, count);
    else
        fold_kernel<16>
            <<<blocks, LKI_CUDA_BLOCK, 0, cuda->compute>>>(f, (const uint16_t *)from, (uint16_t *)to, count);
    LKI_LAUNCHED();
    return LK_OK;
}

lk_status lki_cuda_fold_in(lki_cuda *cuda, const lki_cuda_conv_shape *shape, const void *from, void *to)
{
    return run_fold(cuda, fold_of(shape, false), shape->batch, from, to);
}

lk_status lki_cuda_fold_weight(lki_cuda *cuda, const lki_cuda_conv_shape *shape, const void *from, void *to)
{
    return run_fold(cuda, fold_of(shape, true), shape->out_channels, from, to);
}

template <typename F, typename T>
static __global__ void unfold_kernel(fold f, const F *from, T *to, int64_t count)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * blockDim.x) {
        int x, y, c;
        int64_t rest = lki_cuda_divide(lki_cuda_divide(i, f.from[1], &x), f.from[0], &y);
        int64_t plane = lki_cuda_divide(rest, f.channels, &c);
        int64_t place = (plane * f.to[0] + y / 2) * f.to[1] + x / 2;
        to[i] = T(float(from[place * f.folded + (y % 2 * 2 + x % 2) * (f.folded / 4) + c]));
    }
}

template <typename F>
static void unfold(lki_cuda *cuda, const fold &f, const void *from, void *to, bool wide, int64_t count)
{
    int blocks = lki_cuda_grid(cuda, count);
    if (wide)
        unfold_kernel<F, float>
            <<<blocks, LKI_CUDA_BLOCK, 0, cuda->compute>>>(f, (const F *)from, (float *)to, count);
    else
        unfold_kernel<F, F><<<blocks, LKI_CUDA_BLOCK, 0, cuda->compute>>>(f, (const F *)from, (F *)to, count);
}

lk_status lki_cuda_unfold_weight(lki_cuda *cuda, const lki_cuda_conv *conv, const void *from, void *to,
                                 bool wide)
{
    fold f = fold_of(&conv->shape, true);
    int64_t count = lki_cuda_conv_weight_count(&conv->shape);
    if (count == 0) return LK_OK;
    if (conv->dtype == LK_BF16)
        unfold<__nv_bfloat16>(cuda, f, from, to, wide, count);
    else
        unfold<__half>(cuda, f, from, to, wide, count);
    LKI_LAUNCHED();
    return LK_OK;
}
