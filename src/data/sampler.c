#include "data/sampler.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "data/multinomial.h"

#include <string.h>

/* ---- What all samplers share ---- */

static lk_sampler no_memory_sampler = {.status = LK_ERR_NOMEM};

lk_sampler *lki_sampler_broken(void)
{
    lk_sampler *sampler = LKI_NEW(lk_sampler);
    if (!sampler) return &no_memory_sampler;
    sampler->status = lki_last_status();
    sampler->error = lki_strdup(lk_error());
    return sampler;
}

lk_status lki_sampler_check(const lk_sampler *sampler)
{
    if (sampler->status == LK_OK) return LK_OK;
    return lki_fail(sampler->status, "%s", sampler->error ? sampler->error : "out of memory: a sampler");
}

lk_sampler *lki_sampler_create(int64_t length, lki_sampler_draw draw, void *context,
                               void (*free_context)(void *))
{
    lk_sampler *sampler = LKI_NEW(lk_sampler);
    if (!sampler) {
        if (free_context)
            free_context(context);
        else
            lki_free(context);
        return &no_memory_sampler;
    }
    sampler->length = length;
    sampler->draw = draw;
    sampler->context = context;
    sampler->free_context = free_context;
    return sampler;
}

void lk_sampler_free(lk_sampler *sampler)
{
    if (!sampler || sampler == &no_memory_sampler) return;
    if (sampler->free_context)
        sampler->free_context(sampler->context);
    else
        lki_free(sampler->context);
    lki_free(sampler->error);
    lki_free(sampler);
}

int64_t lk_sampler_length(const lk_sampler *sampler)
{
    if (!sampler) return 0;
    /* A distributed sampler's own length leaves room for padding; what a rank gets is its share. */
    return sampler->is_distributed ? lki_sampler_next_length(sampler, 0, 1) : sampler->length;
}

int64_t lki_sampler_next_length(const lk_sampler *sampler, int rank, int world)
{
    return sampler->next_length ? sampler->next_length(sampler, rank, world) : sampler->length;
}

lk_status lki_sampler_draw_pass(lk_sampler *sampler, const lki_draw *draw, int64_t *indices, int64_t *count)
{
    LKI_TRY(lki_sampler_check(sampler));
    *count = 0;
    return sampler->draw(sampler, draw, indices, count);
}

/* A copy of an array in one block behind its own length. */
typedef struct index_list {
    int64_t count;
    int64_t indices[];
} index_list;

/* ---- Sequential ---- */

static lk_status draw_sequential(lk_sampler *sampler, const lki_draw *draw, int64_t *indices, int64_t *count)
{
    (void)draw;
    for (int64_t i = 0; i < sampler->length; i++) indices[i] = i;
    *count = sampler->length;
    return LK_OK;
}

lk_sampler *lk_sequential_sampler(int64_t length)
{
    if (length < 0) {
        lki_fail(LK_ERR_INVALID, "sampler: expected a length of at least 0, found %lld", (long long)length);
        return lki_sampler_broken();
    }
    return lki_sampler_create(length, draw_sequential, NULL, NULL);
}

/* ---- Random ---- */

typedef struct random_context {
    int64_t length;
    bool replacement;
} random_context;

/* PyTorch's RandomSampler: without a generator of its own it draws a seed and permutes with a fresh one. */
static lk_generator *permuting_generator(const lki_draw *draw, lk_generator *fresh)
{
    if (draw->own_generator) return draw->generator;
    lk_generator_seed(fresh, lki_draw_seed(draw->generator));
    return fresh;
}

lk_status lki_draw_permutations(int64_t length, const lki_draw *draw, int64_t *indices, int64_t count)
{
    lk_generator fresh;
    lk_generator *generator = permuting_generator(draw, &fresh);
    int64_t done = 0;
    for (; done + length <= count; done += length) lk_randperm(indices + done, length, generator);
    /* PyTorch permutes once more for the rest, also where there is none: the generator is the user's to see.
     */
    if (done == count && !draw->own_generator) return LK_OK;
    int64_t *whole = LKI_NEW_ARRAY(int64_t, length);
    if (!whole) return LK_ERR_NOMEM;
    lk_randperm(whole, length, generator);
    memcpy(indices + done, whole, (size_t)(count - done) * sizeof *whole);
    lki_free(whole);
    return LK_OK;
}

static lk_status draw_random(lk_sampler *sampler, const lki_draw *draw, int64_t *indices, int64_t *count)
{
    const random_context *self = sampler->context;
    *count = sampler->length;
    if (!self->replacement) return lki_draw_permutations(self->length, draw, indices, sampler->length);
    lk_generator fresh;
    lk_generator *generator = permuting_generator(draw, &fresh);
    for (int64_t i = 0; i < sampler->length; i++) indices[i] = lk_randint(self->length, generator);
    return LK_OK;
}

lk_sampler *lk_random_sampler_with(int64_t length, const lk_random_sampler_options *given)
{
    LKI_TAKE(lk_random_sampler_options, options, given, lki_sampler_broken());
    if (length < 1 || options.num_samples < 0) {
        lki_fail(LK_ERR_INVALID, "random sampler: %s: expected at least 1 sample, found %lld",
                 length < 1 ? "length" : "num_samples",
                 (long long)(length < 1 ? length : options.num_samples));
        return lki_sampler_broken();
    }
    random_context *context = LKI_NEW(random_context);
    if (!context) return lki_sampler_broken();
    *context = (random_context){length, options.replacement};
    return lki_sampler_create(options.num_samples ? options.num_samples : length, draw_random, context, NULL);
}

/* ---- Subset ---- */

static lk_status draw_subset(lk_sampler *sampler, const lki_draw *draw, int64_t *indices, int64_t *count)
{
    const index_list *list = sampler->context;
    lk_randperm(indices, list->count, draw->generator);
    for (int64_t i = 0; i < list->count; i++) indices[i] = list->indices[indices[i]];
    *count = list->count;
    return LK_OK;
}

lk_sampler *lk_subset_random_sampler(const int64_t *indices, int64_t count)
{
    if (count < 1 || !indices) {
        lki_fail(LK_ERR_INVALID, "subset sampler: no indices");
        return lki_sampler_broken();
    }
    index_list *list = lki_calloc(sizeof *list + (size_t)count * sizeof *indices, "the indices of a sampler");
    if (!list) return lki_sampler_broken();
    list->count = count;
    memcpy(list->indices, indices, (size_t)count * sizeof *indices);
    return lki_sampler_create(count, draw_subset, list, NULL);
}

/* ---- Weighted ---- */

typedef struct weighted_context {
    bool replacement;
    int64_t count;
    double weights[];
} weighted_context;

static lk_status draw_weighted(lk_sampler *sampler, const lki_draw *draw, int64_t *indices, int64_t *count)
{
    const weighted_context *self = sampler->context;
    *count = sampler->length;
    return lki_multinomial(self->weights, self->count, sampler->length, self->replacement, draw->generator,
                           indices);
}

lk_sampler *lk_weighted_random_sampler_with(const double *weights, int64_t count, int64_t num_samples,
                                            const lk_weighted_random_sampler_options *given)
{
    LKI_TAKE(lk_weighted_random_sampler_options, options, given, lki_sampler_broken());
    if (lki_multinomial_check(weights, count, num_samples, !options.no_replacement))
        return lki_sampler_broken();
    weighted_context *context =
        lki_calloc(sizeof *context + (size_t)count * sizeof *weights, "weights of a sampler");
    if (!context) return lki_sampler_broken();
    context->replacement = !options.no_replacement;
    context->count = count;
    memcpy(context->weights, weights, (size_t)count * sizeof *weights);
    return lki_sampler_create(num_samples, draw_weighted, context, NULL);
}

/* ---- A user's own ---- */

typedef struct custom_context {
    lk_sampler_draw draw;
    void *context;
    void (*free_context)(void *context);
} custom_context;

static lk_status draw_custom(lk_sampler *sampler, const lki_draw *draw, int64_t *indices, int64_t *count)
{
    const custom_context *self = sampler->context;
    LKI_TRY(self->draw(self->context, draw->generator, draw->epoch, indices, sampler->length, count));
    if (*count < 0 || *count > sampler->length)
        return lki_fail(LK_ERR_RANGE, "a sampler of at most %lld indices says it wrote %lld",
                        (long long)sampler->length, (long long)*count);
    return LK_OK;
}

static void free_custom(void *context)
{
    custom_context *self = context;
    if (self->free_context) self->free_context(self->context);
    lki_free(self);
}

lk_sampler *lk_custom_sampler(int64_t capacity, lk_sampler_draw draw, void *context,
                              void (*free_context)(void *))
{
    custom_context *self = NULL;
    if (capacity < 0 || !draw)
        lki_fail(LK_ERR_INVALID, "custom sampler: it needs a draw function and a capacity");
    else
        self = LKI_NEW(custom_context);
    if (!self) {
        if (free_context) free_context(context);
        return lki_sampler_broken();
    }
    *self = (custom_context){draw, context, free_context};
    return lki_sampler_create(capacity, draw_custom, self, free_custom);
}
