/* Compiled into the plug-ins of comm: the names that they use of the library, over its table. */
#include "base/plugin.h"
#include "comm/comm_services.h"

static const lki_comm_services *library(void)
{
    return lki_inside_plugin_services;
}

void lki_comm_init(lk_comm *comm, lki_comm *own, const lk_comm_ops *ops, int rank, int size)
{
    library()->comm_init(comm, own, ops, rank, size);
}

void lki_reduce(void *out, const void *const *in, int in_count, int64_t count, lk_dtype dtype,
                lk_reduce reduce, int divisor)
{
    library()->reduce(out, in, in_count, count, dtype, reduce, divisor);
}

void lki_scale(void *data, int64_t count, lk_dtype dtype, int divisor)
{
    library()->scale(data, count, dtype, divisor);
}

lk_status lki_store_set(lki_store_client *store, const char *key, const void *value, size_t nbytes)
{
    return library()->store_set(store, key, value, nbytes);
}

lk_status lki_store_get(lki_store_client *store, const char *key, char **value, size_t *nbytes)
{
    return library()->store_get(store, key, value, nbytes);
}

lk_status lki_store_wait(lki_store_client *store, const char *key, int64_t timeout_ms, char **value,
                         size_t *nbytes)
{
    return library()->store_wait(store, key, timeout_ms, value, nbytes);
}

int lki_store_port(const lki_store_client *store)
{
    return library()->store_port(store);
}

void lki_monitor_fail(lki_monitor *monitor, const char *sentence)
{
    library()->monitor_fail(monitor, sentence);
}

bool lki_monitor_failure(lki_monitor *monitor, int wait_ms, char *text, size_t capacity)
{
    return library()->monitor_failure(monitor, wait_ms, text, capacity);
}

void lki_monitor_progress(lki_monitor *monitor, int rank, lk_comm_progress *out)
{
    library()->monitor_progress(monitor, rank, out);
}

void lki_monitor_on_failure(lki_monitor *monitor, void (*callback)(void *context, const char *sentence),
                            void *context)
{
    library()->monitor_on_failure(monitor, callback, context);
}
