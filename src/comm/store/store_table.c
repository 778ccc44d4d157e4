#include "comm/store/store_table.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

struct lki_table_entry {
    lki_table_entry *next;
    size_t key_nbytes;
    char *key;
    lki_bytes value;
};

static size_t hash_of(const char *key, size_t nbytes)
{
    uint64_t hash = 1469598103934665603ULL;
    for (size_t i = 0; i < nbytes; i++) hash = (hash ^ (unsigned char)key[i]) * 1099511628211ULL;
    return (size_t)hash;
}

static lki_table_entry *find(const lki_table *table, const char *key, size_t nbytes)
{
    if (table->bucket_count == 0) return NULL;
    lki_table_entry *entry = table->buckets[hash_of(key, nbytes) % table->bucket_count];
    while (entry && (entry->key_nbytes != nbytes || memcmp(entry->key, key, nbytes) != 0))
        entry = entry->next;
    return entry;
}

const lki_bytes *lki_table_get(const lki_table *table, const char *key, size_t key_nbytes)
{
    const lki_table_entry *entry = find(table, key, key_nbytes);
    return entry ? &entry->value : NULL;
}

static lk_status grow(lki_table *table)
{
    size_t count = table->bucket_count ? table->bucket_count * 2 : 64;
    lki_table_entry **buckets = LKI_NEW_ARRAY(lki_table_entry *, count);
    if (!buckets) return LK_ERR_NOMEM;
    for (size_t b = 0; b < table->bucket_count; b++) {
        for (lki_table_entry *entry = table->buckets[b], *next; entry; entry = next) {
            size_t to = hash_of(entry->key, entry->key_nbytes) % count;
            next = entry->next;
            entry->next = buckets[to];
            buckets[to] = entry;
        }
    }
    lki_free(table->buckets);
    table->buckets = buckets;
    table->bucket_count = count;
    return LK_OK;
}

static lki_table_entry *insert(lki_table *table, const char *key, size_t nbytes)
{
    if (table->entry_count >= table->bucket_count && grow(table) != LK_OK) return NULL;
    lki_table_entry *entry = LKI_NEW(lki_table_entry);
    if (!entry) return NULL;
    entry->key = lki_strndup(key, nbytes);
    if (!entry->key) {
        lki_free(entry);
        return NULL;
    }
    entry->key_nbytes = nbytes;
    size_t bucket = hash_of(key, nbytes) % table->bucket_count;
    entry->next = table->buckets[bucket];
    table->buckets[bucket] = entry;
    table->entry_count++;
    table->nbytes += nbytes;
    return entry;
}

lk_status lki_table_set(lki_table *table, const char *key, size_t key_nbytes, const void *value,
                        size_t nbytes)
{
    lki_table_entry *entry = find(table, key, key_nbytes);
    if ((!entry && table->entry_count >= LKI_TABLE_MAX_ENTRIES) ||
        table->nbytes + nbytes > LKI_TABLE_MAX_NBYTES)
        return lki_fail(LK_ERR_RANGE, "the store is full");
    if (!entry) entry = insert(table, key, key_nbytes);
    if (!entry) return LK_ERR_NOMEM;
    table->nbytes -= entry->value.length;
    entry->value.length = 0;
    LKI_TRY(lki_bytes_append(&entry->value, value, nbytes));
    table->nbytes += nbytes;
    return LK_OK;
}

void lki_table_fini(lki_table *table)
{
    for (size_t b = 0; b < table->bucket_count; b++) {
        for (lki_table_entry *entry = table->buckets[b], *next; entry; entry = next) {
            next = entry->next;
            lki_free(entry->key);
            lki_bytes_fini(&entry->value);
            lki_free(entry);
        }
    }
    lki_free(table->buckets);
    *table = (lki_table){0};
}
