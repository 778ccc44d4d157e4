/* Dropout's draws: PyTorch's Mersenne twister, a block of 624 words at a time. */
#ifndef LKI_CPU_KERNELS_RANDOM_H
#define LKI_CPU_KERNELS_RANDOM_H

#include "base/independent.h"
#include "engine/cpu/kernels.h"

enum { MT_COUNT = 624, MT_SHIFT = 397 };

static inline uint32_t mt_mixed(uint32_t high, uint32_t low)
{
    uint32_t joined = (high & 0x80000000u) | (low & 0x7fffffffu);
    return (joined >> 1) ^ (-(low & 1) & 0x9908b0dfu);
}

/* No word within a run of 227 depends on another of the run, so the compiler can take many at once. */
static void mt_twist(uint32_t *s)
{
    for (int i = 0; i < MT_COUNT - MT_SHIFT; i++) s[i] = s[i + MT_SHIFT] ^ mt_mixed(s[i], s[i + 1]);
    for (int begin = MT_COUNT - MT_SHIFT; begin < MT_COUNT - 1; begin += MT_COUNT - MT_SHIFT) {
        int end = begin + MT_COUNT - MT_SHIFT < MT_COUNT - 1 ? begin + MT_COUNT - MT_SHIFT : MT_COUNT - 1;
        const uint32_t *back = s + MT_SHIFT - MT_COUNT;
        LKI_INDEPENDENT for (int i = begin; i < end; i++) s[i] = back[i] ^ mt_mixed(s[i], s[i + 1]);
    }
    s[MT_COUNT - 1] = s[MT_SHIFT - 1] ^ mt_mixed(s[MT_COUNT - 1], s[0]);
}

static inline uint32_t mt_temper(uint32_t y)
{
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    return y ^ (y >> 18);
}

/* mask[i] = 1 where the next draw of 53 bits lies below `limit`. A draw is two words, the first the higher.
 */
static void draw_mask(uint8_t *mask, lk_generator *generator, uint64_t limit, int64_t n)
{
    const uint64_t low53 = (UINT64_C(1) << 53) - 1;
    uint32_t words[MT_COUNT];
    int next = generator->left > 1 ? generator->next : MT_COUNT, have = 0; /* have: a high word that waits */
    uint64_t high = 0;
    for (int64_t i = 0; i < n;) {
        if (next == MT_COUNT) {
            mt_twist(generator->state);
            next = 0;
        }
        int count = MT_COUNT - next, at = 0;
        for (int j = 0; j < count; j++) words[j] = mt_temper(generator->state[next + j]);
        if (have) {
            mask[i++] = (((high << 32) | words[at++]) & low53) < limit;
            have = 0;
        }
        int64_t pairs = (count - at) / 2 < n - i ? (count - at) / 2 : n - i;
        for (int64_t j = 0; j < pairs; j++)
            mask[i + j] = ((((uint64_t)words[at + 2 * j] << 32) | words[at + 2 * j + 1]) & low53) < limit;
        i += pairs;
        at += 2 * (int)pairs;
        if (i < n && at < count) {
            high = words[at++];
            have = 1;
        }
        next += at;
    }
    generator->next = next;
    generator->left = MT_COUNT + 1 - next;
}

/* Leaves the generator as draw_mask of n does. */
static void skip_draws(lk_generator *generator, int64_t n)
{
    int next = generator->left > 1 ? generator->next : MT_COUNT;
    for (int64_t words = 2 * n; words > 0;) {
        if (next == MT_COUNT) {
            mt_twist(generator->state);
            next = 0;
        }
        int64_t count = MT_COUNT - next < words ? MT_COUNT - next : words;
        next += (int)count;
        words -= count;
    }
    generator->next = next;
    generator->left = MT_COUNT + 1 - next;
}

#endif
