/* Random numbers by key instead of by turn: the stream of (seed, epoch, index, stream) is the same whoever
 * asks first.
 *
 * The generator is splitmix64: word n of a stream is mix(start + (n + 1) * golden ratio), where `start` is
 * the four keys folded through the same mix one after the other. Streams are 64-bit counters with unrelated
 * starting points. */
#ifndef LKI_DATA_KEYED_H
#define LKI_DATA_KEYED_H

#include <stdint.h>

typedef struct lki_keyed {
    uint64_t counter;
} lki_keyed;

#define LKI_GOLDEN UINT64_C(0x9e3779b97f4a7c15)

static inline uint64_t lki_mix64(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static inline lki_keyed lki_keyed_make(uint64_t seed, uint64_t epoch, uint64_t index, uint64_t stream)
{
    uint64_t x = lki_mix64(seed + LKI_GOLDEN);
    x = lki_mix64((x ^ epoch) + LKI_GOLDEN);
    x = lki_mix64((x ^ index) + LKI_GOLDEN);
    x = lki_mix64((x ^ stream) + LKI_GOLDEN);
    return (lki_keyed){x};
}

static inline uint64_t lki_keyed_u64(lki_keyed *random)
{
    return lki_mix64(random->counter += LKI_GOLDEN);
}

/* In [0, 1), 53 bits. */
static inline double lki_keyed_f64(lki_keyed *random)
{
    return (double)(lki_keyed_u64(random) >> 11) * 0x1p-53;
}

/* In [0, high). */
static inline int64_t lki_keyed_below(lki_keyed *random, int64_t high)
{
    return (int64_t)(((unsigned __int128)lki_keyed_u64(random) * (uint64_t)high) >> 64);
}

#endif
