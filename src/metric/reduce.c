#include "metric/reduce.h"

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

static lk_status sum_parts(const parts_list *list, const lki_metric_collectives *with)
{
    int64_t count = 0, at = 0;
    for (int i = 0; i < list->count; i++)
        if (list->items[i].kind != LKI_METRIC_JOIN) count += list->items[i].count;
    if (count == 0) return LK_OK;
    LKI_SCOPED double *sums = LKI_NEW_ARRAY(double, count);
    if (!sums) return LK_ERR_NOMEM;
    for (int i = 0; i < list->count; i++) {
        const lki_metric_part *part = &list->items[i];
        for (int64_t j = 0; part->kind != LKI_METRIC_JOIN && j < part->count; j++)
            sums[at++] = part->kind == LKI_METRIC_SUM_F64 ? ((double *)part->data)[j]
                                                          : (double)((int64_t *)part->data)[j];
    }
    LKI_TRY(with->allreduce_sum_f64(with->context, sums, count));
    at = 0;
    for (int i = 0; i < list->count; i++) {
        const lki_metric_part *part = &list->items[i];
        for (int64_t j = 0; part->kind != LKI_METRIC_JOIN && j < part->count; j++, at++) {
            if (part->kind == LKI_METRIC_SUM_F64)
                ((double *)part->data)[j] = sums[at];
            else
                ((int64_t *)part->data)[j] = (int64_t)sums[at];
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
    LKI_TRY(join_parts(&list, collectives));
    for (int i = 0; i < count; i++) pending[i]->reduced = true;
    return LK_OK;
}
