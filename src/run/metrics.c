#include "run/metrics.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

typedef struct entry {
    char *name;
    double value;
    bool present;
} entry;

/* Entries stay sorted by name. A name once seen keeps its place, so in the steady state setting a value is a
 * look-up. */
struct lk_metrics {
    entry *entries;
    int count, capacity, present_count;
};

lk_metrics *lki_metrics_create(void)
{
    return LKI_NEW(lk_metrics);
}

void lki_metrics_free(lk_metrics *metrics)
{
    if (!metrics) return;
    for (int i = 0; i < metrics->count; i++) lki_free(metrics->entries[i].name);
    lki_free(metrics->entries);
    lki_free(metrics);
}

void lki_metrics_clear(lk_metrics *metrics)
{
    for (int i = 0; i < metrics->count; i++) metrics->entries[i].present = false;
    metrics->present_count = 0;
}

/* The first entry whose name is not before `name`. */
static int lower_bound(const lk_metrics *metrics, const char *name)
{
    int low = 0, high = metrics->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (strcmp(metrics->entries[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static entry *find(const lk_metrics *metrics, const char *name)
{
    int place = lower_bound(metrics, name);
    if (place < metrics->count && strcmp(metrics->entries[place].name, name) == 0)
        return &metrics->entries[place];
    return NULL;
}

static entry *insert(lk_metrics *metrics, const char *name)
{
    if (metrics->count == metrics->capacity) {
        int capacity = metrics->capacity ? 2 * metrics->capacity : 16;
        entry *grown = lki_realloc(metrics->entries, sizeof *grown * (size_t)capacity, "a table of metrics");
        if (!grown) return NULL;
        metrics->entries = grown;
        metrics->capacity = capacity;
    }
    char *copy = lki_strdup(name);
    if (!copy) return NULL;
    int place = lower_bound(metrics, name);
    memmove(&metrics->entries[place + 1], &metrics->entries[place],
            sizeof(entry) * (size_t)(metrics->count - place));
    metrics->entries[place] = (entry){.name = copy};
    metrics->count++;
    return &metrics->entries[place];
}

lk_status lk_metrics_set(lk_metrics *metrics, const char *name, double value)
{
    entry *found = find(metrics, name);
    if (!found) found = insert(metrics, name);
    if (!found) return LK_ERR_NOMEM;
    metrics->present_count += !found->present;
    found->present = true;
    found->value = value;
    return LK_OK;
}

double lk_metrics_get(const lk_metrics *metrics, const char *name)
{
    const entry *found = metrics ? find(metrics, name) : NULL;
    return found && found->present ? found->value : NAN;
}

bool lk_metrics_has(const lk_metrics *metrics, const char *name)
{
    const entry *found = metrics ? find(metrics, name) : NULL;
    return found && found->present;
}

int lk_metrics_count(const lk_metrics *metrics)
{
    return metrics ? metrics->present_count : 0;
}

static const entry *present_entry(const lk_metrics *metrics, int index)
{
    for (int i = 0; i < metrics->count; i++) {
        if (!metrics->entries[i].present) continue;
        if (index-- == 0) return &metrics->entries[i];
    }
    return NULL;
}

const char *lk_metrics_name(const lk_metrics *metrics, int index)
{
    const entry *found = present_entry(metrics, index);
    return found ? found->name : NULL;
}

double lk_metrics_value(const lk_metrics *metrics, int index)
{
    const entry *found = present_entry(metrics, index);
    return found ? found->value : NAN;
}

lk_status lki_metrics_copy(lk_metrics *destination, const lk_metrics *source)
{
    lki_metrics_clear(destination);
    for (int i = 0; i < source->count; i++) {
        if (!source->entries[i].present) continue;
        lk_status status = lk_metrics_set(destination, source->entries[i].name, source->entries[i].value);
        if (status) return status;
    }
    return LK_OK;
}
