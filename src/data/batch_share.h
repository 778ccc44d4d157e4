/* The shares of several ranks in one batch.
 *
 * A loader that takes the shares of several ranks at once hands out one batch, in which the ranks' batches
 * follow one another. Samples that only make shares equal (lk_batch.padding) lie together at the end of it,
 * so that whoever counts samples counts the first ones. */
#ifndef LKI_DATA_BATCH_SHARE_H
#define LKI_DATA_BATCH_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* One rank's batch: rows [first, first + count), then [pad_first, pad_first + pad_count). */
typedef struct lki_batch_share {
    int64_t first, count, pad_first, pad_count;
} lki_batch_share;

/* What a pass holds for one rank: so many samples, those from padded_from on being padding. */
typedef struct lki_pass_share {
    int64_t count, padded_from;
} lki_pass_share;

static inline int64_t lki_share_rows(const lki_batch_share *share)
{
    return share->count + share->pad_count;
}

/* Whether its rows follow one another, from lki_share_begin on. */
static inline bool lki_share_is_whole(const lki_batch_share *share)
{
    return share->pad_count == 0 || share->count == 0 || share->first + share->count == share->pad_first;
}

static inline int64_t lki_share_begin(const lki_batch_share *share)
{
    return share->count ? share->first : share->pad_first;
}

/* A rank's samples in batch `number` of batches of at most batch_size; *pads of them are padding. */
static inline int64_t lki_pass_share_count(const lki_pass_share *share, int64_t number, int64_t batch_size,
                                           int64_t *pads)
{
    int64_t begin = number * batch_size, count = share->count - begin;
    if (count < 0) count = 0;
    if (count > batch_size) count = batch_size;
    *pads = begin + count - share->padded_from;
    if (*pads < 0) *pads = 0;
    if (*pads > count) *pads = count;
    return count;
}

/* Where each of `share_count` ranks' samples lie in batch `number`. */
static inline void lki_place_shares(const lki_pass_share *shares, int share_count, int64_t number,
                                    int64_t batch_size, lki_batch_share *out)
{
    int64_t at = 0, pads;
    for (int i = 0; i < share_count; i++) {
        int64_t count = lki_pass_share_count(&shares[i], number, batch_size, &pads);
        out[i] = (lki_batch_share){.first = at, .count = count - pads, .pad_count = pads};
        at += count - pads;
    }
    for (int i = 0; i < share_count; i++) {
        out[i].pad_first = at;
        at += out[i].pad_count;
    }
}

/* One share's rows, back to back, out of a batch and into it. */
static inline void lki_share_gather(const lki_batch_share *share, const void *batch, size_t row_nbytes,
                                    void *out)
{
    const char *from = batch;
    size_t nbytes = (size_t)share->count * row_nbytes;
    if (share->count) memcpy(out, from + (size_t)share->first * row_nbytes, nbytes);
    if (share->pad_count)
        memcpy((char *)out + nbytes, from + (size_t)share->pad_first * row_nbytes,
               (size_t)share->pad_count * row_nbytes);
}

static inline void lki_share_scatter(const lki_batch_share *share, const void *rows, size_t row_nbytes,
                                     void *batch)
{
    char *to = batch;
    size_t nbytes = (size_t)share->count * row_nbytes;
    if (share->count) memcpy(to + (size_t)share->first * row_nbytes, rows, nbytes);
    if (share->pad_count)
        memcpy(to + (size_t)share->pad_first * row_nbytes, (const char *)rows + nbytes,
               (size_t)share->pad_count * row_nbytes);
}

#endif
