#include "data/order.h"

#include "base/memory.h"
#include "base/status.h"
#include "data/shard.h"

static bool is_sharded_here(const lki_order *order)
{
    return order->world > 1 && !(order->sampler && order->sampler->is_distributed);
}

static lki_shard shard_of(const lki_order *order)
{
    return (lki_shard){.rank = order->rank,
                       .world = order->world,
                       .unit = order->sampler && order->sampler->batch_size ? order->sampler->batch_size : 1,
                       .ends = order->train ? LKI_SHARD_PAD : LKI_SHARD_EXACT};
}

static int64_t whole_length(const lki_order *order)
{
    return order->sampler ? lki_sampler_next_length(order->sampler, order->rank, order->world)
                          : order->length;
}

void lki_order_size(const lki_order *order, int64_t *mine, int64_t *total)
{
    int64_t whole = whole_length(order);
    if (is_sharded_here(order)) {
        lki_shard shard = shard_of(order);
        *mine = lki_shard_count(&shard, whole);
        *total = lki_shard_total(&shard, whole);
    } else {
        *mine = whole;
        *total = order->sampler && order->sampler->is_distributed ? whole * order->world : whole;
    }
}

int64_t lki_order_room(const lki_order *order)
{
    int64_t whole = order->sampler ? order->sampler->length : order->length;
    if (!is_sharded_here(order)) return whole;
    lki_shard shard = shard_of(order);
    return lki_shard_count(&shard, whole);
}

static lk_status draw_whole(const lki_order *order, const lki_draw *draw, bool shuffled, int64_t *indices,
                            int64_t *count)
{
    if (order->sampler) return lki_sampler_draw_pass(order->sampler, draw, indices, count);
    *count = order->length;
    if (shuffled) return lki_draw_permutations(order->length, draw, indices, order->length);
    for (int64_t i = 0; i < order->length; i++) indices[i] = i;
    return LK_OK;
}

/* All ranks must draw the same order before it is dealt out, whatever their default generators went through.
 */
static lk_status draw_share(const lki_order *order, lki_draw draw, bool shuffled, int64_t *indices,
                            int64_t *count, int64_t *padding)
{
    lki_shard shard = shard_of(order);
    int64_t whole_count = 0, room = order->sampler ? order->sampler->length : order->length;
    int64_t *whole = LKI_NEW_ARRAY(int64_t, room);
    if (!whole) return LK_ERR_NOMEM;
    lk_generator common;
    if (!order->sampler || !draw.own_generator) {
        lk_generator_seed(&common, order->seed + (uint64_t)order->epoch);
        draw.generator = &common;
        draw.own_generator = true;
    }
    lk_status status = draw_whole(order, &draw, shuffled, whole, &whole_count);
    if (status == LK_OK) {
        *count = whole_count ? lki_shard_count(&shard, whole_count) : 0;
        *padding = whole_count ? lki_shard_padding(&shard, whole_count) : 0;
        lki_shard_take(&shard, whole, whole_count, indices);
    }
    lki_free(whole);
    return status;
}

lk_status lki_order_draw(const lki_order *order, lk_generator *generator, bool is_users, int64_t *indices,
                         int64_t *count, int64_t *padding)
{
    lki_draw draw = {.generator = generator,
                     .own_generator = is_users,
                     .epoch = order->epoch,
                     .rank = order->rank,
                     .world = order->world};
    *padding = 0;
    if (!is_sharded_here(order)) {
        LKI_TRY(draw_whole(order, &draw, order->shuffle, indices, count));
        if (order->sampler) *padding = order->sampler->padding;
        return LK_OK;
    }
    bool shuffled = order->train ? !order->no_shuffle : order->shuffle;
    return draw_share(order, draw, shuffled, indices, count, padding);
}
