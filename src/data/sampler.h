/* Inside of a sampler: what it is asked for at each pass, and what the loader needs to know about it.
 *
 * A sampler is one function over one context. Its only state between passes is `state`, four numbers that a
 * checkpoint keeps. Samplers belong to the loader's thread. */
#ifndef LKI_DATA_SAMPLER_H
#define LKI_DATA_SAMPLER_H

#include <lockstep/data.h>

typedef struct lki_draw {
    lk_generator *generator;
    bool own_generator; /* given by the user: permute with it directly, as PyTorch does then */
    int64_t epoch;
    int rank, world;
} lki_draw;

/* Writes at most the sampler's length of indices, and how many. */
typedef lk_status (*lki_sampler_draw)(lk_sampler *sampler, const lki_draw *draw, int64_t *indices,
                                      int64_t *count);

struct lk_sampler {
    lk_status status; /* not LK_OK: it could not be built, and `error` says why */
    char *error;
    int64_t length;      /* indices of a pass; of the longest, where passes differ */
    int64_t batch_size;  /* not 0: it makes whole batches of this size */
    bool is_distributed; /* it shards by itself and must not be sharded again */
    int64_t state[4];
    int64_t padding; /* of the last pass: indices at its end that repeat others, so that ranks have as many */
    lki_sampler_draw draw;
    /* Optional: the indices of the next pass where that is not `length`. */
    int64_t (*next_length)(const lk_sampler *sampler, int rank, int world);
    void *context;
    void (*free_context)(void *context);
};

/* Takes over `context` (freed by free_context, or lki_free without one), also on failure. */
lk_sampler *lki_sampler_create(int64_t length, lki_sampler_draw draw, void *context,
                               void (*free_context)(void *));

/* A sampler that carries the current error sentence. */
lk_sampler *lki_sampler_broken(void);

/* LK_OK, or the failure that the sampler carries, set again. */
lk_status lki_sampler_check(const lk_sampler *sampler);

lk_status lki_sampler_draw_pass(lk_sampler *sampler, const lki_draw *draw, int64_t *indices, int64_t *count);
int64_t lki_sampler_next_length(const lk_sampler *sampler, int rank, int world);

/* torch.empty((), dtype=int64).random_(): how PyTorch draws the seeds of its samplers. */
static inline uint64_t lki_draw_seed(lk_generator *generator)
{
    return lk_generator_u64(generator) & (uint64_t)INT64_MAX;
}

/* Permutations of 0..length-1 as RandomSampler makes them: `count` indices, whole permutations and part of a
 * last one. */
lk_status lki_draw_permutations(int64_t length, const lki_draw *draw, int64_t *indices, int64_t count);

#endif
