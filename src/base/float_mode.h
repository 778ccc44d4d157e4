/* How a thread treats denormals: numbers below the smallest normal one (1.2e-38 in f32), which cost Intel's
 * cores a hundred cycles each. Moments of an optimizer decay into them wherever a gradient stays zero.
 *
 * Whoever runs kernels enters the mode that flushes them, and leaves it on every way out:
 *
 *     lki_float_mode mode = lki_float_mode_flush();
 *     ... kernels ...
 *     lki_float_mode_restore(mode);
 *
 * The mode belongs to the thread. Rounding and exceptions stay as they are, and the flags that exceptions
 * raise in between stay raised. Machines other than x86-64 and arm64 keep denormals. */
#ifndef LKI_BASE_FLOAT_MODE_H
#define LKI_BASE_FLOAT_MODE_H

#include <stdint.h>

#if defined(__x86_64__)
#include <immintrin.h>

/* MXCSR: results below the normal numbers become zero, operands are read as zero; the low six bits are the
 * exceptions' flags. */
enum { LKI_FLOAT_FLUSH = 0x8040, LKI_FLOAT_FLAGS = 0x3f };

static inline uint64_t lki_float_control(void)
{
    return _mm_getcsr();
}

static inline void lki_float_set_control(uint64_t control)
{
    _mm_setcsr((unsigned)control);
}

#elif defined(__aarch64__)

/* FPCR.FZ. The exceptions' flags lie in another register. */
enum { LKI_FLOAT_FLUSH = 1 << 24, LKI_FLOAT_FLAGS = 0 };

static inline uint64_t lki_float_control(void)
{
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control;
}

static inline void lki_float_set_control(uint64_t control)
{
    __asm__ volatile("msr fpcr, %0" : : "r"(control) : "memory");
}

#else

enum { LKI_FLOAT_FLUSH = 0, LKI_FLOAT_FLAGS = 0 };

static inline uint64_t lki_float_control(void)
{
    return 0;
}

static inline void lki_float_set_control(uint64_t control)
{
    (void)control;
}

#endif

typedef struct lki_float_mode {
    uint64_t control;
} lki_float_mode;

/* The calling thread's mode. */
static inline lki_float_mode lki_float_mode_now(void)
{
    return (lki_float_mode){lki_float_control() & ~(uint64_t)LKI_FLOAT_FLAGS};
}

/* Sets the mode; writing it costs more than reading it, so an equal one is left alone. */
static inline void lki_float_mode_restore(lki_float_mode mode)
{
    uint64_t now = lki_float_control(), flags = now & (uint64_t)LKI_FLOAT_FLAGS;
    if ((now ^ flags) != mode.control) lki_float_set_control(mode.control | flags);
}

/* Flushes denormals from here on. Returns the mode before, for lki_float_mode_restore. */
static inline lki_float_mode lki_float_mode_flush(void)
{
    lki_float_mode before = lki_float_mode_now();
    lki_float_mode_restore((lki_float_mode){before.control | (uint64_t)LKI_FLOAT_FLUSH});
    return before;
}

#endif
