#include "data/shard.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "data/sampler.h"

#include <string.h>

static int64_t units_of(const lki_shard *shard, int64_t unit_count)
{
    int64_t whole = unit_count / shard->world, rest = unit_count % shard->world;
    switch (shard->ends) {
    case LKI_SHARD_EXACT: return whole + (shard->rank < rest);
    case LKI_SHARD_PAD: return whole + (rest > 0);
    case LKI_SHARD_CUT: return whole;
    }
    return 0;
}

int64_t lki_shard_count(const lki_shard *shard, int64_t count)
{
    if (shard->ends != LKI_SHARD_EXACT || shard->unit == 1)
        return units_of(shard, (count + shard->unit - 1) / shard->unit) * shard->unit;
    int64_t units = (count + shard->unit - 1) / shard->unit;
    int64_t mine = units_of(shard, units);
    bool has_short_last = count % shard->unit && (units - 1) % shard->world == shard->rank;
    return mine * shard->unit - (has_short_last ? shard->unit - count % shard->unit : 0);
}

int64_t lki_shard_total(const lki_shard *shard, int64_t count)
{
    if (shard->ends == LKI_SHARD_EXACT) return count;
    return lki_shard_count(shard, count) * shard->world;
}

/* Of the whole order, before it is wrapped around. */
static int64_t position(const lki_shard *shard, int64_t i)
{
    return (shard->rank + i / shard->unit * shard->world) * shard->unit + i % shard->unit;
}

int64_t lki_shard_padding(const lki_shard *shard, int64_t count)
{
    int64_t mine = lki_shard_count(shard, count), padding = 0;
    while (padding < mine && position(shard, mine - 1 - padding) >= count) padding++;
    return padding;
}

void lki_shard_take(const lki_shard *shard, const int64_t *indices, int64_t count, int64_t *out)
{
    int64_t mine = lki_shard_count(shard, count);
    for (int64_t i = 0; i < mine; i++)
        out[i] = indices[position(shard, i) % count]; /* past the end: from the front again */
}

/* ---- DistributedSampler, and the one that wraps another sampler ---- */

typedef struct distributed {
    lk_distributed_sampler_options options;
    lk_sampler *inner; /* NULL: 0..length-1 */
    int64_t length;
} distributed;

static lki_shard shard_of(const distributed *self, int rank, int world)
{
    bool fixed = self->options.num_replicas > 0;
    return (lki_shard){.rank = fixed ? self->options.rank : rank,
                       .world = fixed ? self->options.num_replicas : world,
                       .unit = self->inner && self->inner->batch_size ? self->inner->batch_size : 1,
                       .ends = self->options.drop_last ? LKI_SHARD_CUT : LKI_SHARD_PAD};
}

static int64_t distributed_length(const lk_sampler *sampler, int rank, int world)
{
    const distributed *self = sampler->context;
    lki_shard shard = shard_of(self, rank, world);
    if (self->inner) memcpy(self->inner->state, sampler->state, sizeof sampler->state);
    int64_t length = self->inner ? lki_sampler_next_length(self->inner, rank, world) : self->length;
    return lki_shard_count(&shard, length);
}

/* Permutes the units of the order with seed + epoch, as DistributedSampler permutes positions. */
static lk_status permute_units(int64_t *order, int64_t count, int64_t unit, uint64_t seed)
{
    int64_t unit_count = count / unit;
    int64_t *positions = LKI_NEW_ARRAY(int64_t, unit_count);
    int64_t *copy = LKI_NEW_ARRAY(int64_t, count);
    if (positions && copy) {
        lk_generator generator;
        lk_generator_seed(&generator, seed);
        lk_randperm(positions, unit_count, &generator);
        memcpy(copy, order, (size_t)count * sizeof *copy);
        for (int64_t i = 0; i < unit_count * unit; i++)
            order[i] = copy[positions[i / unit] * unit + i % unit];
    }
    lk_status status = positions && copy ? LK_OK : LK_ERR_NOMEM;
    lki_free(positions);
    lki_free(copy);
    return status;
}

static lk_status whole_order(const distributed *self, const lki_draw *draw, int64_t *order, int64_t *count)
{
    if (self->inner) return lki_sampler_draw_pass(self->inner, draw, order, count);
    for (int64_t i = 0; i < self->length; i++) order[i] = i;
    *count = self->length;
    return LK_OK;
}

static lk_status draw_distributed(lk_sampler *sampler, const lki_draw *draw, int64_t *indices, int64_t *count)
{
    const distributed *self = sampler->context;
    lki_shard shard = shard_of(self, draw->rank, draw->world);
    int64_t *order = LKI_NEW_ARRAY(int64_t, self->length), total = 0;
    if (!order) return LK_ERR_NOMEM;
    if (self->inner) memcpy(self->inner->state, sampler->state, sizeof sampler->state);
    lk_status status = whole_order(self, draw, order, &total);
    if (status == LK_OK && !self->options.no_shuffle && total > 0)
        status = permute_units(order, total, shard.unit, self->options.seed + (uint64_t)draw->epoch);
    if (status == LK_OK) {
        *count = total ? lki_shard_count(&shard, total) : 0;
        sampler->padding = total ? lki_shard_padding(&shard, total) : 0;
        lki_shard_take(&shard, order, total, indices);
    }
    if (self->inner) memcpy(sampler->state, self->inner->state, sizeof sampler->state);
    lki_free(order);
    return status;
}

static void free_distributed(void *context)
{
    distributed *self = context;
    lk_sampler_free(self->inner);
    lki_free(self);
}

static lk_sampler *make_distributed(int64_t length, lk_sampler *inner, lk_distributed_sampler_options options)
{
    distributed *self = NULL;
    if (options.num_replicas < 0 || options.rank < 0 ||
        (options.num_replicas && options.rank >= options.num_replicas))
        lki_fail(LK_ERR_INVALID, "distributed sampler: there is no rank %d of num_replicas %d", options.rank,
                 options.num_replicas);
    else if (length < 0) /* 0 if there is no data set: the loader's sentence says why */
        lki_fail(LK_ERR_INVALID, "distributed sampler: length: expected at least 0, found %lld",
                 (long long)length);
    else
        self = LKI_NEW(distributed);
    if (!self) {
        lk_sampler_free(inner);
        return lki_sampler_broken();
    }
    *self = (distributed){options, inner, length};
    /* The shard of one rank is the longest there can be: a padded one is never longer than all of it and one
     * unit. */
    int64_t unit = inner && inner->batch_size ? inner->batch_size : 1;
    lk_sampler *sampler = lki_sampler_create(length + unit, draw_distributed, self, free_distributed);
    if (sampler->status != LK_OK) return sampler;
    sampler->is_distributed = true;
    sampler->next_length = distributed_length;
    if (inner) sampler->batch_size = inner->batch_size;
    return sampler;
}

lk_sampler *lk_distributed_sampler_with(int64_t length, const lk_distributed_sampler_options *given)
{
    LKI_TAKE(lk_distributed_sampler_options, options, given, lki_sampler_broken());
    return make_distributed(length, NULL, options);
}

lk_sampler *lk_distributed_sampler_wrapper_with(lk_sampler *sampler,
                                                const lk_distributed_sampler_options *given)
{
    lk_distributed_sampler_options options;
    if (lki_take(&options, sizeof options, given, "lk_distributed_sampler_options") != LK_OK) {
        lk_sampler_free(sampler);
        return lki_sampler_broken();
    }
    if (!sampler) {
        lki_fail(LK_ERR_INVALID, "distributed sampler: there is no sampler to wrap");
        return lki_sampler_broken();
    }
    if (sampler->status != LK_OK) return sampler;
    return make_distributed(sampler->length, sampler, options);
}
