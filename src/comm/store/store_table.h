/* The keys of a store's server: a hash table of strings of bytes. Used by the server's thread alone. */
#ifndef LKI_COMM_STORE_STORE_TABLE_H
#define LKI_COMM_STORE_STORE_TABLE_H

#include "comm/store/store_wire.h"

typedef struct lki_table_entry lki_table_entry;

/* Zero is empty. */
typedef struct lki_table {
    lki_table_entry **buckets;
    size_t bucket_count, entry_count, nbytes;
} lki_table;

enum { LKI_TABLE_MAX_ENTRIES = 1 << 18, LKI_TABLE_MAX_NBYTES = 1 << 28 };

/* NULL where there is none; the bytes are the table's until the key is set again. */
const lki_bytes *lki_table_get(const lki_table *table, const char *key, size_t key_nbytes);
/* LK_ERR_RANGE where the store is full. */
lk_status lki_table_set(lki_table *table, const char *key, size_t key_nbytes, const void *value,
                        size_t nbytes);
void lki_table_fini(lki_table *table);

#endif
