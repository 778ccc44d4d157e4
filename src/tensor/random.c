#include "tensor/random.h"

#include "base/status.h"
#include "tensor/normal_block.h"

#include <math.h>

enum { STATE_COUNT = 624, SHIFT = 397 };

void lk_generator_seed(lk_generator *generator, uint64_t seed)
{
    *generator = (lk_generator){.seed = seed, .left = 1};
    generator->state[0] = (uint32_t)seed;
    for (uint32_t j = 1; j < STATE_COUNT; j++) {
        uint32_t previous = generator->state[j - 1];
        generator->state[j] = 1812433253u * (previous ^ (previous >> 30)) + j;
    }
}

static uint32_t mixed(uint32_t high, uint32_t low)
{
    uint32_t joined = (high & 0x80000000u) | (low & 0x7fffffffu);
    return (joined >> 1) ^ ((low & 1) ? 0x9908b0dfu : 0);
}

static void twist(lk_generator *generator)
{
    uint32_t *s = generator->state;
    for (int i = 0; i < STATE_COUNT; i++)
        s[i] = s[(i + SHIFT) % STATE_COUNT] ^ mixed(s[i], s[(i + 1) % STATE_COUNT]);
    generator->left = STATE_COUNT;
    generator->next = 0;
}

uint32_t lk_generator_u32(lk_generator *generator)
{
    if (--generator->left == 0) twist(generator);
    uint32_t y = generator->state[generator->next++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

static bool is_bool(const bool *flag)
{
    return *(const unsigned char *)flag <= 1; /* as a bool it may only be read where this holds */
}

/* Each word that is left before the twist is still in the state. */
lk_status lki_generator_check(const lk_generator *generator, const char *what)
{
    int64_t left = generator->left, next = generator->next;
    if (left >= 1 && next >= 0 && next + left - 1 <= STATE_COUNT &&
        is_bool(&generator->has_next_normal_f32) && is_bool(&generator->has_next_normal_f64))
        return LK_OK;
    return lki_fail(LK_ERR_FORMAT, "%s: this is no state of a random generator", what);
}

uint64_t lk_generator_u64(lk_generator *generator)
{
    uint64_t high = lk_generator_u32(generator);
    return (high << 32) | lk_generator_u32(generator);
}

float lk_generator_f32(lk_generator *generator)
{
    return (float)(lk_generator_u32(generator) & 0xffffffu) * 0x1p-24f;
}

double lk_generator_f64(lk_generator *generator)
{
    return (double)(lk_generator_u64(generator) & ((UINT64_C(1) << 53) - 1)) * 0x1p-53;
}

lk_generator *lk_default_generator(void)
{
    static lk_generator generator;
    static bool seeded;
    if (!seeded) {
        seeded = true;
        lk_generator_seed(&generator, 67280421310721u); /* what PyTorch starts with when nobody seeds it */
    }
    return &generator;
}

void lk_manual_seed(uint64_t seed)
{
    lk_generator_seed(lk_default_generator(), seed);
}

static lk_status check_floats(const lk_tensor *tensor, const char *what)
{
    if (tensor->dtype != LK_F32 && tensor->dtype != LK_F64)
        return lki_fail(LK_ERR_DTYPE, "%s: expected an f32 or f64 tensor, found %s", what,
                        lk_dtype_name(tensor->dtype));
    if (!lk_tensor_is_contiguous(tensor))
        return lki_fail(LK_ERR_INVALID, "%s: the tensor is not contiguous", what);
    return LK_OK;
}

/* PyTorch's build fuses the scaling into one rounding, here and in the normal numbers. */
lk_status lk_uniform(lk_tensor *tensor, double from, double to, lk_generator *generator)
{
    LKI_TRY(check_floats(tensor, "uniform"));
    int64_t count = lk_tensor_count(tensor);
    if (tensor->dtype == LK_F32) {
        float *data = tensor->data, low = (float)from, high = (float)to;
        for (int64_t i = 0; i < count; i++) data[i] = fmaf(lk_generator_f32(generator), high - low, low);
    } else {
        double *data = tensor->data;
        for (int64_t i = 0; i < count; i++) data[i] = fma(lk_generator_f64(generator), to - from, from);
    }
    return LK_OK;
}

lk_status lk_bernoulli(lk_tensor *tensor, double p, lk_generator *generator)
{
    LKI_TRY(check_floats(tensor, "bernoulli"));
    int64_t count = lk_tensor_count(tensor);
    for (int64_t i = 0; i < count; i++) lk_tensor_set(tensor, i, lk_generator_f64(generator) < p);
    return LK_OK;
}

/* Box-Muller over blocks of 16 uniforms, the first eight against the last eight; f32 has a kernel of its own.
 */
static void normal_block_f64(double *d, double mean, double std)
{
    for (int j = 0; j < 8; j++) {
        double u1 = 1 - d[j], u2 = d[j + 8];
        double radius = sqrt(-2 * log(u1)), theta = 2.0 * M_PI * u2;
        d[j] = fma(radius * cos(theta), std, mean);
        d[j + 8] = fma(radius * sin(theta), std, mean);
    }
}

static void normal_fill_f32(float *data, int64_t count, float mean, float std, lk_generator *generator)
{
    for (int64_t i = 0; i < count; i++) data[i] = lk_generator_f32(generator);
    for (int64_t i = 0; i + 16 <= count; i += 16) lki_normal_block_f32(data + i, mean, std);
    if (count % 16 == 0) return;
    float *tail = data + count - 16;
    for (int i = 0; i < 16; i++) tail[i] = lk_generator_f32(generator);
    lki_normal_block_f32(tail, mean, std);
}

static void normal_fill_f64(double *data, int64_t count, double mean, double std, lk_generator *generator)
{
    for (int64_t i = 0; i < count; i++) data[i] = lk_generator_f64(generator);
    for (int64_t i = 0; i + 16 <= count; i += 16) normal_block_f64(data + i, mean, std);
    if (count % 16 == 0) return;
    double *tail = data + count - 16;
    for (int i = 0; i < 16; i++) tail[i] = lk_generator_f64(generator);
    normal_block_f64(tail, mean, std);
}

/* One number at a time, in doubles; the second of each pair waits in the generator. */
static double normal_one(lk_generator *generator)
{
    if (generator->has_next_normal_f64) {
        generator->has_next_normal_f64 = false;
        return generator->next_normal_f64;
    }
    double u1 = lk_generator_f64(generator), u2 = lk_generator_f64(generator);
    double radius = sqrt(-2 * log(1 - u2)), theta = 2 * M_PI * u1;
    generator->next_normal_f64 = radius * sin(theta);
    generator->has_next_normal_f64 = true;
    return radius * cos(theta);
}

lk_status lk_normal(lk_tensor *tensor, double mean, double std, lk_generator *generator)
{
    LKI_TRY(check_floats(tensor, "normal"));
    int64_t count = lk_tensor_count(tensor);
    if (count >= 16 && tensor->dtype == LK_F32)
        normal_fill_f32(tensor->data, count, (float)mean, (float)std, generator);
    else if (count >= 16)
        normal_fill_f64(tensor->data, count, mean, std, generator);
    else
        for (int64_t i = 0; i < count; i++) lk_tensor_set(tensor, i, fma(normal_one(generator), std, mean));
    return LK_OK;
}

lk_tensor *lk_rand(lk_shape shape)
{
    lk_tensor *tensor = lk_tensor_create(LK_F32, shape);
    if (tensor) lk_uniform(tensor, 0, 1, lk_default_generator());
    return tensor;
}

lk_tensor *lk_randn(lk_shape shape)
{
    lk_tensor *tensor = lk_tensor_create(LK_F32, shape);
    if (tensor) lk_normal(tensor, 0, 1, lk_default_generator());
    return tensor;
}

void lk_randperm(int64_t *out, int64_t count, lk_generator *generator)
{
    for (int64_t i = 0; i < count; i++) out[i] = i;
    for (int64_t i = 0; i < count - 1; i++) {
        int64_t j = i + (int64_t)(lk_generator_u32(generator) % (uint64_t)(count - i));
        int64_t swapped = out[i];
        out[i] = out[j];
        out[j] = swapped;
    }
}

int64_t lk_randint(int64_t high, lk_generator *generator)
{
    if ((uint64_t)high >= (UINT64_C(1) << 32)) return (int64_t)(lk_generator_u64(generator) % (uint64_t)high);
    return (int64_t)(lk_generator_u32(generator) % (uint64_t)high);
}
