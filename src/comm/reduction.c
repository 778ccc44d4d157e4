#include "comm/reduction.h"

#include "base/float_mode.h"
#include "base/independent.h"
#include "tensor/half.h"
#include "tensor/layout.h"

#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

/* A block of accumulators stays in the first-level cache while all inputs pass over it. */
enum { BLOCK_COUNT = 2048 };

#define INLINE static inline __attribute__((always_inline))

/* A NaN on either side wins, so that a maximum never hides one. */
#define SUM(a, b)   ((a) + (b))
#define AVG(a, b)   (((a) + (b)) * scale)
#define MAX_F(a, b) ((a) != (a) || (a) > (b) ? (a) : (b))
#define MIN_F(a, b) ((a) != (a) || (a) < (b) ? (a) : (b))
#define MAX_I(a, b) ((a) > (b) ? (a) : (b))
#define MIN_I(a, b) ((a) < (b) ? (a) : (b))

/* One step, out = a op b. `out` may be a or b: equal indices only, which LKI_INDEPENDENT promises. */
#define STEP_BODY(name, out_type, a_type, b_type, load_a, load_b, store, work_type, expression)              \
    INLINE void name(void *out_data, const void *a_data, const void *b_data, int64_t count, double factor)   \
    {                                                                                                        \
        out_type *out = out_data;                                                                            \
        const a_type *a_in = a_data;                                                                         \
        const b_type *b_in = b_data;                                                                         \
        const work_type scale = (work_type)factor;                                                           \
        (void)scale;                                                                                         \
        LKI_INDEPENDENT for (int64_t i = 0; i < count; i++)                                                  \
        {                                                                                                    \
            work_type a = load_a(a_in[i]), b = load_b(b_in[i]);                                              \
            out[i] = (out_type)store(expression);                                                            \
        }                                                                                                    \
    }

#define PLAIN(x) (x)
#define SAME(name, type, work, expression)                                                                   \
    STEP_BODY(name, type, type, type, PLAIN, PLAIN, PLAIN, work, expression)
/* Integers wrap around: they are added without sign. */
#define WRAP(name, type, unsigned_type) SAME(name, type, unsigned_type, SUM(a, b))

SAME(f32_sum, float, float, SUM(a, b))
SAME(f32_avg, float, float, AVG(a, b))
SAME(f32_max, float, float, MAX_F(a, b))
SAME(f32_min, float, float, MIN_F(a, b))
SAME(f64_sum, double, double, SUM(a, b))
SAME(f64_avg, double, double, AVG(a, b))
SAME(f64_max, double, double, MAX_F(a, b))
SAME(f64_min, double, double, MIN_F(a, b))
WRAP(i64_sum, int64_t, uint64_t)
SAME(i64_max, int64_t, int64_t, MAX_I(a, b))
SAME(i64_min, int64_t, int64_t, MIN_I(a, b))
WRAP(i32_sum, int32_t, uint32_t)
SAME(i32_max, int32_t, int32_t, MAX_I(a, b))
SAME(i32_min, int32_t, int32_t, MIN_I(a, b))
SAME(u8_sum, uint8_t, uint8_t, SUM(a, b))
SAME(u8_max, uint8_t, uint8_t, MAX_I(a, b))
SAME(u8_min, uint8_t, uint8_t, MIN_I(a, b))

/* A 16-bit input joins f32 accumulators. */
STEP_BODY(bf16_sum, float, float, uint16_t, PLAIN, lki_bf16_to_f32, PLAIN, float, SUM(a, b))
STEP_BODY(bf16_max, float, float, uint16_t, PLAIN, lki_bf16_to_f32, PLAIN, float, MAX_F(a, b))
STEP_BODY(bf16_min, float, float, uint16_t, PLAIN, lki_bf16_to_f32, PLAIN, float, MIN_F(a, b))
STEP_BODY(f16_sum, float, float, uint16_t, PLAIN, lki_f16_to_f32, PLAIN, float, SUM(a, b))
STEP_BODY(f16_max, float, float, uint16_t, PLAIN, lki_f16_to_f32, PLAIN, float, MAX_F(a, b))
STEP_BODY(f16_min, float, float, uint16_t, PLAIN, lki_f16_to_f32, PLAIN, float, MIN_F(a, b))
/* The ends of such a chain: widen the first input, round the accumulators. b is a second look at a. */
STEP_BODY(bf16_widen, float, uint16_t, uint16_t, lki_bf16_to_f32, lki_bf16_to_f32, PLAIN, float, ((void)b, a))
STEP_BODY(bf16_round, uint16_t, float, float, PLAIN, PLAIN, lki_f32_to_bf16, float, ((void)b, a *scale))
STEP_BODY(f16_widen, float, uint16_t, uint16_t, lki_f16_to_f32, lki_f16_to_f32, PLAIN, float, ((void)b, a))
STEP_BODY(f16_round, uint16_t, float, float, PLAIN, PLAIN, lki_f32_to_f16, float, ((void)b, a *scale))
/* out = a times scale, for lki_scale. */
STEP_BODY(f32_scale, float, float, float, PLAIN, PLAIN, PLAIN, float, ((void)b, a *scale))
STEP_BODY(f64_scale, double, double, double, PLAIN, PLAIN, PLAIN, double, ((void)b, a *scale))

typedef void (*step)(void *out, const void *a, const void *b, int64_t count, double scale);

/* X(name): every step above, compiled once for each kind of processor. */
/* clang-format off */
#define STEP_LIST(X)                                                                                           \
    X(f32_sum) X(f32_avg) X(f32_max) X(f32_min) X(f32_scale)                                                   \
    X(f64_sum) X(f64_avg) X(f64_max) X(f64_min) X(f64_scale)                                                   \
    X(i64_sum) X(i64_max) X(i64_min) X(i32_sum) X(i32_max) X(i32_min) X(u8_sum) X(u8_max) X(u8_min)            \
    X(bf16_sum) X(bf16_max) X(bf16_min) X(bf16_widen) X(bf16_round)                                            \
    X(f16_sum) X(f16_max) X(f16_min) X(f16_widen) X(f16_round)
/* clang-format on */

typedef struct step_table {
#define X(name) step name;
    STEP_LIST(X)
#undef X
} step_table;

#define INSTANCE(level, name)                                                                                \
    static LEVEL_TARGET void name##_##level(void *out, const void *a, const void *b, int64_t count,          \
                                            double scale)                                                    \
    {                                                                                                        \
        name(out, a, b, count, scale);                                                                       \
    }

#define LEVEL_TARGET
#define X(name) INSTANCE(plain, name)
STEP_LIST(X)
#undef X
static const step_table plain_table = {
#define X(name) .name = name##_plain,
    STEP_LIST(X)
#undef X
};
#undef LEVEL_TARGET

#if defined(__x86_64__)
#define LEVEL_TARGET __attribute__((target("avx2,f16c")))
#define X(name)      INSTANCE(avx2, name)
STEP_LIST(X)
#undef X
static const step_table avx2_table = {
#define X(name) .name = name##_avx2,
    STEP_LIST(X)
#undef X
};
#undef LEVEL_TARGET

#if defined(__clang__) /* it chooses the width of vectors by itself */
#define LEVEL_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c")))
#else
#define LEVEL_TARGET                                                                                         \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c,prefer-vector-width=512")))
#endif
#define X(name) INSTANCE(avx512, name)
STEP_LIST(X)
#undef X
static const step_table avx512_table = {
#define X(name) .name = name##_avx512,
    STEP_LIST(X)
#undef X
};
#undef LEVEL_TARGET
#endif

static const step_table *steps = &plain_table;
static pthread_once_t steps_once = PTHREAD_ONCE_INIT;

static void choose_steps(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) steps = &avx2_table;
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        steps = &avx512_table;
#endif
}

static const step_table *chosen_steps(void)
{
    pthread_once(&steps_once, choose_steps);
    return steps;
}

/* The step for most inputs and the one for the last: they differ in AVG alone. */
typedef struct chain {
    step each, last;
    step widen, round; /* of 16-bit dtypes */
} chain;

static chain choose_chain(lk_dtype dtype, lk_reduce reduce)
{
    const step_table *t = chosen_steps();
#define PICK(type)                                                                                           \
    (reduce == LK_REDUCE_MAX ? t->type##_max : reduce == LK_REDUCE_MIN ? t->type##_min : t->type##_sum)
    step each = NULL;
    switch (dtype) {
    case LK_F32: each = PICK(f32); break;
    case LK_F64: each = PICK(f64); break;
    case LK_BF16: return (chain){PICK(bf16), PICK(bf16), t->bf16_widen, t->bf16_round};
    case LK_F16: return (chain){PICK(f16), PICK(f16), t->f16_widen, t->f16_round};
    case LK_I64: each = PICK(i64); break;
    case LK_I32: each = PICK(i32); break;
    case LK_U8: each = PICK(u8); break;
    case LK_BOOL:
        each = reduce == LK_REDUCE_MIN ? t->u8_min : t->u8_max;
        break; /* the sum of truths is "any" */
    }
#undef PICK
    step last = each;
    if (reduce == LK_REDUCE_AVG) last = dtype == LK_F64 ? t->f64_avg : t->f32_avg;
    return (chain){each, last, NULL, NULL};
}

static const void *at(const void *data, int64_t index, size_t nbytes)
{
    return (const char *)data + (size_t)index * nbytes;
}

/* 16 bits: acc = widen(in[0]); acc op= in[1], ...; out = round(acc * scale) */
static void reduce_half(const chain *chain, void *out, const void *const *in, int in_count, int64_t count,
                        double scale)
{
    float acc[BLOCK_COUNT];
    for (int64_t begin = 0; begin < count; begin += BLOCK_COUNT) {
        int64_t n = count - begin < BLOCK_COUNT ? count - begin : BLOCK_COUNT;
        chain->widen(acc, at(in[0], begin, 2), at(in[0], begin, 2), n, 1);
        for (int i = 1; i < in_count; i++) chain->each(acc, acc, at(in[i], begin, 2), n, 1);
        chain->round((uint16_t *)out + begin, acc, acc, n, scale);
    }
}

/* Only the last step writes `out`, which may be any of the inputs. */
static void reduce_many(const chain *chain, void *out, const void *const *in, int in_count, int64_t count,
                        size_t nbytes, double scale)
{
    double acc[BLOCK_COUNT];
    for (int64_t begin = 0; begin < count; begin += BLOCK_COUNT) {
        int64_t n = count - begin < BLOCK_COUNT ? count - begin : BLOCK_COUNT;
        chain->each(acc, at(in[0], begin, nbytes), at(in[1], begin, nbytes), n, 1);
        for (int i = 2; i < in_count - 1; i++) chain->each(acc, acc, at(in[i], begin, nbytes), n, 1);
        chain->last((char *)out + (size_t)begin * nbytes, acc, at(in[in_count - 1], begin, nbytes), n, scale);
    }
}

void lki_reduce(void *out, const void *const *in, int in_count, int64_t count, lk_dtype dtype,
                lk_reduce reduce, int divisor)
{
    size_t nbytes = lki_dtype_nbytes(dtype);
    chain chain = choose_chain(dtype, reduce);
    double scale = reduce == LK_REDUCE_AVG ? 1.0 / divisor : 1.0;
    lki_float_mode mode = lki_float_mode_flush();
    if (in_count == 1) {
        if (out != in[0]) memcpy(out, in[0], (size_t)count * nbytes);
        if (reduce == LK_REDUCE_AVG) lki_scale(out, count, dtype, divisor);
    } else if (chain.widen) {
        reduce_half(&chain, out, in, in_count, count, scale);
    } else if (in_count == 2) {
        chain.last(out, in[0], in[1], count, scale);
    } else {
        reduce_many(&chain, out, in, in_count, count, nbytes, scale);
    }
    lki_float_mode_restore(mode);
}

void lki_scale(void *data, int64_t count, lk_dtype dtype, int divisor)
{
    const step_table *t = chosen_steps();
    const void *in[] = {data};
    double scale = 1.0 / divisor;
    chain chain = choose_chain(dtype, LK_REDUCE_SUM);
    lki_float_mode mode = lki_float_mode_flush();
    if (dtype == LK_F32) t->f32_scale(data, data, data, count, scale);
    if (dtype == LK_F64) t->f64_scale(data, data, data, count, scale);
    if (chain.widen) reduce_half(&chain, data, in, 1, count, scale);
    lki_float_mode_restore(mode);
}

#if defined(__x86_64__)
void lki_stream(void *to_data, const void *from_data, size_t nbytes)
{
    char *to = to_data;
    const char *from = from_data;
    size_t at = (16 - ((uintptr_t)to & 15)) & 15;
    if (nbytes < 64 + at) {
        memcpy(to, from, nbytes);
        return;
    }
    memcpy(to, from, at);
    for (; at + 64 <= nbytes; at += 64)
        for (size_t i = 0; i < 64; i += 16)
            _mm_stream_si128((__m128i *)(to + at + i), _mm_loadu_si128((const __m128i *)(from + at + i)));
    memcpy(to + at, from + at, nbytes - at);
    _mm_sfence(); /* before the flag that says it is there */
}
#else
void lki_stream(void *to, const void *from, size_t nbytes)
{
    memcpy(to, from, nbytes);
}
#endif
