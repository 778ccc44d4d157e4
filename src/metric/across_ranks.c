#include "metric/across_ranks.h"

#include "metric/exact.h"
#include "metric/metric.h"

#include <string.h>

typedef struct parts_list {
    lki_metric_part *items;
    int count;
} parts_list;

/* A rank that saw no batch learns the number of classes from the others, so that all lists of parts are
 * alike. */
static lk_status agree_on_classes(lk_metric *const *metrics, int count, const lki_metric_collectives *with)
{
    size_t nbytes = sizeof(int64_t) * (size_t)count;
    LKI_SCOPED int64_t *mine = LKI_NEW_ARRAY(int64_t, count);
    LKI_SCOPED int64_t *all = LKI_NEW_ARRAY(int64_t, count * with->world_size);
    if (!mine || !all) return LK_ERR_NOMEM;
    for (int i = 0; i < count; i++) mine[i] = metrics[i]->class_count;
    LKI_TRY(with->allgather(with->context, all, mine, nbytes));
    for (int i = 0; i < count; i++)
        for (int r = 0; r < with->world_size; r++) {
            int64_t theirs = all[r * count + i];
            if (theirs == 0 || theirs == metrics[i]->class_count) continue;
            if (metrics[i]->class_count)
                return lki_fail(LK_ERR_SHAPE, "%s: rank %d has %lld classes, rank %d has %lld",
                                metrics[i]->kind->name, with->rank, (long long)metrics[i]->class_count, r,
                                (long long)theirs);
            if (metrics[i]->kind->set_classes) LKI_TRY(metrics[i]->kind->set_classes(metrics[i], theirs));
        }
    return LK_OK;
}

static lk_status list_parts(lk_metric *const *metrics, int count, parts_list *list)
{
    list->items = LKI_NEW_ARRAY(lki_metric_part, count * LKI_METRIC_MAX_PARTS);
    if (!list->items) return LK_ERR_NOMEM;
    for (int i = 0; i < count; i++)
        list->count += metrics[i]->kind->parts(metrics[i], list->items + list->count);
    return LK_OK;
}

static bool is_sum(const lki_metric_part *part)
{
    return part->kind == LKI_METRIC_SUM_I64 || part->kind == LKI_METRIC_EXACT;
}

static bool is_gathered(const lki_metric_part *part)
{
    return !is_sum(part) && part->kind != LKI_METRIC_JOIN;
}

static void normalize(const lki_metric_part *part)
{
    for (int64_t i = 0; part->kind == LKI_METRIC_EXACT && i < part->count; i++)
        lki_exact_normalize((lk_exact_sum *)part->data + i);
}

/* Copies the parts that `wanted` chooses, one after the other, into `block` or back. Returns how many words.
 */
static int64_t copy_parts(const parts_list *list, bool (*wanted)(const lki_metric_part *part), int64_t *block,
                          bool back)
{
    int64_t at = 0;
    for (int i = 0; i < list->count; i++) {
        const lki_metric_part *part = &list->items[i];
        size_t nbytes = wanted(part) ? lki_metric_part_nbytes(part) : 0;
        if (block && nbytes && back) memcpy(part->data, block + at, nbytes);
        if (block && nbytes && !back) memcpy(block + at, part->data, nbytes);
        at += (int64_t)(nbytes / sizeof *block);
    }
    return at;
}

/* Integers, and exact sums, which are integers too: the order in which the ranks are added does not show. */
static lk_status sum_parts(const parts_list *list, const lki_metric_collectives *with)
{
    int64_t count = copy_parts(list, is_sum, NULL, false);
    if (count == 0) return LK_OK;
    LKI_SCOPED int64_t *sums = LKI_NEW_ARRAY(int64_t, count);
    if (!sums) return LK_ERR_NOMEM;
    for (int i = 0; i < list->count; i++) normalize(&list->items[i]);
    copy_parts(list, is_sum, sums, false);
    LKI_TRY(with->allreduce_sum_i64(with->context, sums, count));
    copy_parts(list, is_sum, sums, true);
    for (int i = 0; i < list->count; i++) normalize(&list->items[i]);
    return LK_OK;
}

/* A NaN stays, whoever has it. */
static bool replaces_f64(double theirs, double mine, bool highest)
{
    return theirs != theirs || (highest ? theirs > mine : theirs < mine);
}

/* All ranks' numbers, without rounding in between. */
static void add_numbers(const lki_metric_part *part, int64_t i, const int64_t *words, int64_t stride,
                        int ranks)
{
    lk_exact_sum sum = {0};
    for (int r = 0; r < ranks; r++) {
        double theirs;
        memcpy(&theirs, &words[r * stride], sizeof theirs);
        lk_exact_sum_add(&sum, theirs);
    }
    ((double *)part->data)[i] = lk_exact_sum_value(&sum);
}

static void take_extreme(const lki_metric_part *part, int64_t i, int64_t word)
{
    bool highest = part->kind == LKI_METRIC_MAX_I64 || part->kind == LKI_METRIC_MAX_F64;
    if (part->kind == LKI_METRIC_MAX_I64 || part->kind == LKI_METRIC_MIN_I64) {
        int64_t *mine = (int64_t *)part->data + i;
        if (highest ? word > *mine : word < *mine) *mine = word;
        return;
    }
    double *mine = (double *)part->data + i, theirs;
    memcpy(&theirs, &word, sizeof theirs);
    if (replaces_f64(theirs, *mine, highest)) *mine = theirs;
}

/* Extremes, and sums of numbers that each rank has rounded. */
static lk_status join_gathered(const parts_list *list, const lki_metric_collectives *with)
{
    int64_t count = copy_parts(list, is_gathered, NULL, false);
    if (count == 0) return LK_OK;
    LKI_SCOPED int64_t *mine = LKI_NEW_ARRAY(int64_t, count);
    LKI_SCOPED int64_t *all = LKI_NEW_ARRAY(int64_t, count * with->world_size);
    if (!mine || !all) return LK_ERR_NOMEM;
    copy_parts(list, is_gathered, mine, false);
    LKI_TRY(with->allgather(with->context, all, mine, sizeof *mine * (size_t)count));
    int64_t at = 0;
    for (int p = 0; p < list->count; p++) {
        const lki_metric_part *part = &list->items[p];
        for (int64_t i = 0; is_gathered(part) && i < part->count; i++, at++) {
            if (part->kind == LKI_METRIC_SUM_F64) add_numbers(part, i, all + at, count, with->world_size);
            for (int r = 0; part->kind != LKI_METRIC_SUM_F64 && r < with->world_size; r++)
                take_extreme(part, i, all[r * count + at]);
        }
    }
    return LK_OK;
}

/* What each rank brings: counts is (ranks, arrays) elements; nbytes the longest rank's bytes. */
typedef struct join {
    lki_metric_array **arrays;
    int array_count;
    int64_t *counts;
    size_t nbytes;
} join;

static lk_status exchange_counts(join *join, const lki_metric_collectives *with)
{
    LKI_SCOPED int64_t *mine = LKI_NEW_ARRAY(int64_t, join->array_count);
    join->counts = LKI_NEW_ARRAY(int64_t, join->array_count * with->world_size);
    if (!mine || !join->counts) return LK_ERR_NOMEM;
    for (int i = 0; i < join->array_count; i++) mine[i] = join->arrays[i]->count;
    LKI_TRY(with->allgather(with->context, join->counts, mine, sizeof *mine * (size_t)join->array_count));
    for (int r = 0; r < with->world_size; r++) {
        size_t nbytes = 0;
        for (int i = 0; i < join->array_count; i++)
            nbytes += (size_t)join->counts[r * join->array_count + i] * join->arrays[i]->element_nbytes;
        if (nbytes > join->nbytes) join->nbytes = nbytes;
    }
    return LK_OK;
}

/* Lays rank after rank into each array; `blocks` holds one block of join->nbytes a rank. */
static lk_status unpack(join *join, int world_size, const char *blocks)
{
    for (int i = 0; i < join->array_count; i++) {
        int64_t total = 0;
        for (int r = 0; r < world_size; r++) total += join->counts[r * join->array_count + i];
        join->arrays[i]->count = 0;
        LKI_TRY(lki_metric_array_reserve(join->arrays[i], total));
    }
    for (int r = 0; r < world_size; r++) {
        const char *from = blocks + (size_t)r * join->nbytes;
        for (int i = 0; i < join->array_count; i++) {
            lki_metric_array *array = join->arrays[i];
            int64_t count = join->counts[r * join->array_count + i];
            size_t nbytes = (size_t)count * array->element_nbytes;
            if (nbytes)
                memcpy((char *)array->data + (size_t)array->count * array->element_nbytes, from, nbytes);
            array->count += count;
            from += nbytes;
        }
    }
    return LK_OK;
}

static lk_status join_parts(const parts_list *list, const lki_metric_collectives *with)
{
    join join = {0};
    char *block = NULL, *blocks = NULL;
    lk_status status = LK_ERR_NOMEM;
    join.arrays = LKI_NEW_ARRAY(lki_metric_array *, list->count);
    if (!join.arrays) goto out;
    for (int i = 0; i < list->count; i++)
        if (list->items[i].kind == LKI_METRIC_JOIN) join.arrays[join.array_count++] = list->items[i].data;
    status = LK_OK;
    if (join.array_count == 0) goto out;
    LKI_TRY_OUT(exchange_counts(&join, with));
    if (join.nbytes == 0) goto out;
    block = lki_calloc(join.nbytes, "a metric's state");
    blocks = lki_calloc(join.nbytes * (size_t)with->world_size, "the metrics' states of all ranks");
    if (!block || !blocks) {
        status = LK_ERR_NOMEM;
        goto out;
    }
    char *to = block;
    for (int i = 0; i < join.array_count; i++) {
        size_t nbytes = (size_t)join.arrays[i]->count * join.arrays[i]->element_nbytes;
        if (nbytes) memcpy(to, join.arrays[i]->data, nbytes);
        to += nbytes;
    }
    LKI_TRY_OUT(with->allgather(with->context, blocks, block, join.nbytes));
    status = unpack(&join, with->world_size, blocks);
out:
    lki_free(join.arrays);
    lki_free(join.counts);
    lki_free(block);
    lki_free(blocks);
    return status;
}

lk_status lki_metric_reduce(lk_metric *const *metrics, int metric_count,
                            const lki_metric_collectives *collectives)
{
    if (!collectives || collectives->world_size <= 1 || metric_count == 0) return LK_OK;
    LKI_SCOPED lk_metric **pending = LKI_NEW_ARRAY(lk_metric *, metric_count);
    LKI_SCOPED lki_metric_part *items = NULL;
    int count = 0;
    if (!pending) return LK_ERR_NOMEM;
    for (int i = 0; i < metric_count; i++)
        if (!metrics[i]->reduced) pending[count++] = metrics[i];
    if (count == 0) return LK_OK;
    parts_list list = {0};
    LKI_TRY(agree_on_classes(pending, count, collectives));
    LKI_TRY(list_parts(pending, count, &list));
    items = list.items;
    LKI_TRY(sum_parts(&list, collectives));
    LKI_TRY(join_gathered(&list, collectives));
    LKI_TRY(join_parts(&list, collectives));
    for (int i = 0; i < count; i++) pending[i]->reduced = true;
    return LK_OK;
}
