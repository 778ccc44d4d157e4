#define _GNU_SOURCE
#include "engine/cpu/machine.h"

#include "base/trial.h"
#include "tensor/half.h"

#include <math.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* ---- A small product with odd sizes, and a sum that goes on ---- */

enum { ROWS = 37, COLUMNS = 51, DEPTH = 75 };

static uint16_t sample(int64_t i)
{
    return lki_f32_to_bf16((float)((i * 37 + 11) % 41 - 20) * 0.125f);
}

bool lki_bf16_kernels_work(const lki_bf16_kernels *kernels)
{
    static uint16_t a[ROWS * DEPTH], b[DEPTH * COLUMNS];
    static float c[ROWS * COLUMNS];
    static uint16_t packed_a[2 * 3 * 2 * LKI_BF16_TILE] __attribute__((aligned(64)));
    static uint16_t packed_b[2 * 3 * 2 * LKI_BF16_TILE] __attribute__((aligned(64)));
    for (int64_t i = 0; i < ROWS * DEPTH; i++) a[i] = sample(i);
    for (int64_t i = 0; i < DEPTH * COLUMNS; i++) b[i] = sample(3 * i + 5);
    for (int64_t i = 0; i < ROWS * COLUMNS; i++) c[i] = NAN;
    lki_bf16_gemm g = {
        .m = ROWS,
        .n = COLUMNS,
        .k = DEPTH,
        .a = a,
        .b = b,
        .a_row = DEPTH,
        .a_col = 1,
        .b_row = COLUMNS,
        .b_col = 1,
        .c = c,
        .c_row = COLUMNS,
        .c_dtype = LK_F32,
        .packed_a = packed_a,
        .packed_b = packed_b,
    };
    kernels->pack_a(&g, 0, lki_bf16_parts(ROWS));
    kernels->pack_b(&g, 0, lki_bf16_parts(COLUMNS));
    kernels->multiply(&g, 0, lki_bf16_parts(ROWS) * lki_bf16_parts(COLUMNS));
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t j = 0; j < COLUMNS; j++) {
            float sum = 0; /* eighths and their products: every sum is exact */
            for (int64_t p = 0; p < DEPTH; p++)
                sum += lki_bf16_to_f32(a[i * DEPTH + p]) * lki_bf16_to_f32(b[p * COLUMNS + j]);
            if (c[i * COLUMNS + j] != sum) return false;
        }
    return true;
}

#if defined(__x86_64__)

static bool has_avx2(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void)
{
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
}

/* What the processor and the operating system say of AMX. Virtual machines may leave out the leaf that
 * describes the tiles; where it is there, it has to describe those that the kernels use. */
static bool announces_amx(void)
{
    enum { TILE_STATE = 3 << 17, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24, OSXSAVE = 1 << 27 };
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & OSXSAVE)) return false;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (AMX_BF16 | AMX_TILE)) != (AMX_BF16 | AMX_TILE))
        return false;
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & TILE_STATE) != TILE_STATE) return false;
    if (!__get_cpuid_count(0x1d, 0, &a, &b, &c, &d) || a < 1) return true;
    __get_cpuid_count(0x1d, 1, &a, &b, &c, &d);
    return a >> 16 >= 1024 && (b & 0xffff) >= 64 && b >> 16 >= 8 && (c & 0xffff) >= 16;
}

/* Linux gives a process the tiles' state when it asks for it. */
static bool may_use_tiles(void)
{
    enum { REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

static bool try_avx512bf16(void *context)
{
    (void)context;
    return lki_bf16_kernels_work(&lki_bf16_kernels_avx512bf16);
}

static bool try_amx(void *context)
{
    (void)context;
    return may_use_tiles() && lki_bf16_kernels_work(&lki_bf16_kernels_amx);
}

static bool bf16_works, amx_works;

static void try_bf16(void)
{
    bf16_works =
        has_avx512() && __builtin_cpu_supports("avx512bf16") && lki_trial_passes(try_avx512bf16, NULL);
}

static void try_tiles(void)
{
    amx_works = announces_amx() && lki_trial_passes(try_amx, NULL) && may_use_tiles();
}

lki_cpu_level lki_machine_level(lki_cpu_level highest)
{
    static pthread_once_t bf16_once = PTHREAD_ONCE_INIT, amx_once = PTHREAD_ONCE_INIT;
    if (highest < LKI_CPU_LEVEL_AVX2 || !has_avx2()) return LKI_CPU_LEVEL_BASE;
    if (highest < LKI_CPU_LEVEL_AVX512 || !has_avx512()) return LKI_CPU_LEVEL_AVX2;
    if (highest < LKI_CPU_LEVEL_AVX512BF16) return LKI_CPU_LEVEL_AVX512;
    pthread_once(&bf16_once, try_bf16);
    if (!bf16_works) return LKI_CPU_LEVEL_AVX512;
    if (highest < LKI_CPU_LEVEL_AMX) return LKI_CPU_LEVEL_AVX512BF16;
    pthread_once(&amx_once, try_tiles);
    if (amx_works) return LKI_CPU_LEVEL_AMX;
    return __builtin_cpu_is("intel") ? LKI_CPU_LEVEL_AVX512 : LKI_CPU_LEVEL_AVX512BF16;
}

const lki_bf16_kernels *lki_bf16_kernels_of(lki_cpu_level level)
{
    if (level == LKI_CPU_LEVEL_AMX) return &lki_bf16_kernels_amx;
    return level == LKI_CPU_LEVEL_AVX512BF16 ? &lki_bf16_kernels_avx512bf16 : NULL;
}

#else

lki_cpu_level lki_machine_level(lki_cpu_level highest)
{
    (void)highest;
    return LKI_CPU_LEVEL_BASE;
}

const lki_bf16_kernels *lki_bf16_kernels_of(lki_cpu_level level)
{
    (void)level;
    return NULL;
}

#endif
