#include "metric/rank.h"

#include "base/memory.h"

#include <float.h>
#include <string.h>

enum { RADIX_BITS = 11, RADIX_COUNT = 1 << RADIX_BITS, SMALL = 48, BLOCK = 256, MAX_BUCKETS = 1 << 22 };

void lki_rank_workspace_fini(lki_rank_workspace *workspace)
{
    lki_free(workspace->keys);
    lki_free(workspace->table);
    *workspace = (lki_rank_workspace){0};
}

static void insertion_sort(float *values, int64_t count)
{
    for (int64_t i = 1; i < count; i++) {
        float value = values[i];
        int64_t j = i;
        for (; j > 0 && values[j - 1] > value; j--) values[j] = values[j - 1];
        values[j] = value;
    }
}

/* An unsigned number that orders as the float does: negative ones are flipped, positive ones lie above. */
static inline uint32_t key_of(uint32_t bits)
{
    return bits ^ ((uint32_t)((int32_t)bits >> 31) | 0x80000000u);
}

static inline uint32_t bits_of(uint32_t key)
{
    return key ^ ((key >> 31) - 1u) ^ ((key >> 31) << 31);
}

static void scatter(uint32_t *to, const uint32_t *from, int64_t count, uint32_t *starts, int shift)
{
    for (int64_t i = 0; i < count; i++) to[starts[(from[i] >> shift) & (RADIX_COUNT - 1)]++] = from[i];
}

void lki_sort_f32(float *values, int64_t count, uint32_t *keys)
{
    if (count <= SMALL) {
        insertion_sort(values, count);
        return;
    }
    uint32_t starts[3][RADIX_COUNT] = {{0}};
    uint32_t *other = keys + count;
    memcpy(keys, values, sizeof *keys * (size_t)count);
    for (int64_t i = 0; i < count; i++) {
        uint32_t key = key_of(keys[i]);
        keys[i] = key;
        starts[0][key & (RADIX_COUNT - 1)]++;
        starts[1][(key >> RADIX_BITS) & (RADIX_COUNT - 1)]++;
        starts[2][key >> (2 * RADIX_BITS)]++;
    }
    for (int pass = 0; pass < 3; pass++)
        for (uint32_t digit = 0, sum = 0; digit < RADIX_COUNT; digit++) {
            uint32_t here = starts[pass][digit];
            starts[pass][digit] = sum;
            sum += here;
        }
    scatter(other, keys, count, starts[0], 0);
    scatter(keys, other, count, starts[1], RADIX_BITS);
    scatter(other, keys, count, starts[2], 2 * RADIX_BITS);
    for (int64_t i = 0; i < count; i++) other[i] = bits_of(other[i]);
    memcpy(values, other, sizeof *values * (size_t)count);
}

/* Buckets of equal width over the range of the sorted set. A bucket number never falls while the score rises,
 * whatever the rounding, so scores of different buckets need no comparison. Scores outside of the range go to
 * the first and the last bucket. */
typedef struct buckets {
    float low, scale, last;
} buckets;

static inline int32_t bucket_of(const buckets *by, float score)
{
    float place = (score - by->low) * by->scale + 1;
    place = place < 0 ? 0 : place;
    return (int32_t)(place > by->last ? by->last : place);
}

/* The range leaves infinities and the far ends out: so the width is finite, low is finite and the scale is
 * positive and finite, and no score that is a number becomes NaN above. */
static buckets choose_buckets(const float *sorted, int64_t count, int64_t bucket_count)
{
    float low = sorted[0] < -FLT_MAX / 4 ? -FLT_MAX / 4 : sorted[0] > FLT_MAX / 4 ? FLT_MAX / 4 : sorted[0];
    float high = sorted[count - 1] > FLT_MAX / 4 ? FLT_MAX / 4 : sorted[count - 1];
    float scale = high > low ? (float)(bucket_count - 2) / (high - low) : 1;
    return (buckets){low, scale < 1e30f ? scale : 1e30f, (float)(bucket_count - 1)};
}

/* table[q]: how many of the sorted set lie in buckets below q; bucket_count + 1 entries. */
static void fill_table(uint32_t *table, int64_t bucket_count, const buckets *by, const float *sorted,
                       int64_t count)
{
    memset(table, 0, sizeof *table * (size_t)(bucket_count + 1));
    for (int64_t i = 0; i < count; i++) table[bucket_of(by, sorted[i]) + 1]++;
    for (int64_t q = 0; q < bucket_count; q++) table[q + 1] += table[q];
}

/* How many of sorted[begin, end) are below `score` (or, with `or_equal`, not above it). */
static int64_t count_below(const float *sorted, int64_t begin, int64_t end, float score, int or_equal)
{
    while (begin < end) {
        int64_t middle = begin + (end - begin) / 2;
        if (sorted[middle] < score || (or_equal && sorted[middle] == score))
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

/* 2 [a > score] + [a == score], summed over sorted[begin, end). */
static int64_t pairs_within(const float *sorted, int64_t begin, int64_t end, float score)
{
    return 2 * end - count_below(sorted, begin, end, score, 0) - count_below(sorted, begin, end, score, 1);
}

static inline int64_t pair(float a, float b)
{
    return (a > b) + (a >= b);
}

/* Most buckets hold none, one or two of `a`: those are counted without a branch, which nothing could predict.
 * `a` has two readable elements more than a_count. */
static int64_t count_pairs(const float *a, int64_t a_count, const float *b, int64_t b_count,
                           const uint32_t *table, const buckets *by)
{
    int64_t pairs = 0;
    int32_t places[BLOCK];
    for (int64_t begin = 0; begin < b_count; begin += BLOCK) {
        int64_t count = b_count - begin < BLOCK ? b_count - begin : BLOCK;
        for (int64_t i = 0; i < count; i++) places[i] = bucket_of(by, b[begin + i]);
        for (int64_t i = 0; i < count; i++) {
            int64_t from = table[places[i]], to = table[places[i] + 1];
            float score = b[begin + i];
            pairs += 2 * (a_count - to);
            if (__builtin_expect(to - from > 2, 0))
                pairs += pairs_within(a, from, to, score);
            else
                pairs += (pair(a[from], score) & -(int64_t)(to > from)) +
                         (pair(a[from + 1], score) & -(int64_t)(to > from + 1));
        }
    }
    return pairs;
}

static lk_status reserve(uint32_t **block, int64_t *capacity, int64_t needed)
{
    if (needed <= *capacity) return LK_OK;
    uint32_t *grown = lki_realloc(*block, sizeof *grown * (size_t)needed, "sorting scores");
    if (!grown) return LK_ERR_NOMEM;
    *block = grown;
    *capacity = needed;
    return LK_OK;
}

lk_status lki_rank_pairs(int64_t *out, float *a, int64_t a_count, const float *b, int64_t b_count,
                         lki_rank_workspace *workspace)
{
    *out = 0;
    if (a_count == 0 || b_count == 0) return LK_OK;
    /* More would not be told apart by an f32. */
    int64_t bucket_count = 2 * a_count + 64 < MAX_BUCKETS ? 2 * a_count + 64 : MAX_BUCKETS;
    if (reserve(&workspace->keys, &workspace->key_capacity, 2 * a_count + 2) ||
        reserve(&workspace->table, &workspace->table_capacity, bucket_count + 1))
        return LK_ERR_NOMEM;
    lki_sort_f32(a, a_count, workspace->keys);
    buckets by = choose_buckets(a, a_count, bucket_count);
    fill_table(workspace->table, bucket_count, &by, a, a_count);
    float *padded = memcpy(workspace->keys, a, sizeof *a * (size_t)a_count);
    padded[a_count] = padded[a_count + 1] = 0;
    *out = count_pairs(padded, a_count, b, b_count, workspace->table, &by);
    return LK_OK;
}
