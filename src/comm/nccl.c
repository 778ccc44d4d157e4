/* NCCL, as far as it concerns this library: the ranks meet in the store, the plugin does the rest, and the
 * monitor ends it where a rank dies: NCCL would wait for ever. */
#include "comm/comm.h"
#include "comm/comm_own.h"

#include "base/memory.h"
#include "base/settings.h"
#include "base/status.h"
#include "device/open_plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_JOIN_MS = 120000, MISSING_IN_ERRORS = 4 };

/* What a comm keeps here while it lives. */
typedef struct nccl_link {
    const lki_cuda_plugin *plugin;
    lk_comm *comm;
    lki_monitor *monitor;
    void (*on_free)(void *context);
    void *context;
} nccl_link;

static bool failure(void *context, int wait_ms, char *text, size_t capacity)
{
    nccl_link *self = context;
    return self->monitor && lki_monitor_failure(self->monitor, wait_ms, text, capacity);
}

static void tell(void *context, const char *sentence)
{
    nccl_link *self = context;
    if (self->monitor) lki_monitor_fail(self->monitor, sentence);
}

static void progress(void *context, int rank, lk_comm_progress *out)
{
    nccl_link *self = context;
    if (self->monitor) lki_monitor_progress(self->monitor, rank, out);
}

static void forward(void *context, const char *sentence)
{
    nccl_link *self = context;
    self->plugin->nccl_fail(self->comm, sentence);
}

static void ending(void *context)
{
    nccl_link *self = context;
    if (self->monitor) lki_monitor_on_failure(self->monitor, NULL, NULL);
    if (self->on_free) self->on_free(self->context);
    lki_free(self);
}

/* Rank 0 makes the id and publishes it, or why it could not: nobody shall wait for it in vain. */
static lk_status publish_id(const lki_cuda_plugin *plugin, const lki_comm_nccl_options *options, char *id)
{
    char key[LKI_STORE_MAX_KEY];
    lki_error first = {0};
    snprintf(key, sizeof key, "%sid", options->prefix);
    if (lki_error_keep(&first, plugin->nccl_id(id)) == LK_OK)
        return lki_store_set(options->store, key, id, LKI_NCCL_ID_NBYTES);
    lki_store_set(options->store, key, first.sentence, strnlen(first.sentence, LKI_NCCL_ID_NBYTES - 1));
    return lki_error_restore(&first);
}

static lk_status share_id(const lki_cuda_plugin *plugin, const lki_comm_nccl_options *options, char *id)
{
    char key[LKI_STORE_MAX_KEY];
    size_t nbytes = 0;
    if (options->rank == 0) return publish_id(plugin, options, id);
    LKI_SCOPED char *value = NULL;
    snprintf(key, sizeof key, "%sid", options->prefix);
    lk_status status = lki_store_wait(options->store, key,
                                      options->join_timeout_ms ? options->join_timeout_ms : DEFAULT_JOIN_MS,
                                      &value, &nbytes);
    if (status != LK_OK) return lki_fail_prefix(status, "rank 0 did not come");
    if (nbytes != LKI_NCCL_ID_NBYTES) return lki_fail(LK_ERR_PEER, "rank 0: %s", value);
    memcpy(id, value, LKI_NCCL_ID_NBYTES);
    return LK_OK;
}

/* NCCL does not say for whom it waits: the ranks that have not come as far as this one have left no key. */
static lk_status name_missing(const lki_comm_nccl_options *options)
{
    char key[LKI_STORE_MAX_KEY], missing[128] = "";
    lki_error first = {0};
    size_t length = 0;
    int count = 0;
    lki_error_keep(&first, lki_last_status());
    for (int rank = 0; rank < options->size; rank++) {
        LKI_SCOPED char *value = NULL;
        snprintf(key, sizeof key, "%shere/%d", options->prefix, rank);
        if (lki_store_get(options->store, key, &value, NULL) == LK_OK) continue;
        if (count++ < MISSING_IN_ERRORS)
            length += (size_t)snprintf(missing + length, sizeof missing - length, "%s rank %d",
                                       count > 1 ? "," : "", rank);
    }
    if (count == 0) return lki_fail(LK_ERR_TIMEOUT, "%s; all have tried", first.sentence);
    return lki_fail(LK_ERR_TIMEOUT, "%s; not come:%s%s", first.sentence, missing,
                    count > MISSING_IN_ERRORS ? " and more" : "");
}

/* NCCL's own connections go where Gloo's would. */
static void choose_interface(void)
{
    const char *interface = lki_setting_text(LKI_SETTING_INTERFACE);
    if (interface) setenv("NCCL_SOCKET_IFNAME", interface, 0);
}

static lk_status join(nccl_link *self, const lki_comm_nccl_options *options)
{
    char key[LKI_STORE_MAX_KEY];
    lki_nccl_options nccl = {.rank = options->rank,
                             .size = options->size,
                             .device = options->device,
                             .shares_gpu = options->shares_gpu,
                             .join_timeout_ms = options->join_timeout_ms,
                             .timeout_ms = options->timeout_ms,
                             .failure = failure,
                             .tell = tell,
                             .progress = progress,
                             .ending = ending,
                             .context = self};
    self->plugin = lki_cuda_plugin_get();
    if (!self->plugin) return lki_last_status();
    choose_interface();
    LKI_TRY(share_id(self->plugin, options, nccl.id));
    snprintf(key, sizeof key, "%shere/%d", options->prefix, options->rank);
    LKI_TRY(lki_store_set(options->store, key, "1", 1));
    lk_status status = self->plugin->nccl_create(&self->comm, &nccl);
    return status == LK_ERR_TIMEOUT ? name_missing(options) : status;
}

lk_status lki_comm_nccl_create(lk_comm **out, const lki_comm_nccl_options *options)
{
    *out = NULL;
    nccl_link *self = LKI_NEW(nccl_link);
    if (!self) return LK_ERR_NOMEM;
    self->monitor = options->monitor;
    lk_status status = join(self, options);
    if (status != LK_OK) {
        lki_free(self);
        return lki_fail_prefix(status, "comm nccl");
    }
    self->on_free = options->on_free;
    self->context = options->context;
    if (self->monitor) lki_monitor_on_failure(self->monitor, forward, self);
    *out = self->comm;
    return LK_OK;
}

void lki_comm_progress_of(lk_comm *comm, lk_comm_progress *out)
{
    uint64_t last = __atomic_load_n(&comm->own->last_seq, __ATOMIC_RELAXED);
    *out = (lk_comm_progress){.started = last,
                              .finished = __atomic_load_n(&comm->own->finished_seq, __ATOMIC_RELAXED),
                              .known = true};
    const lki_comm_record *record = &comm->own->records[last % LKI_COMM_RECORD_COUNT];
    if (last) out->kind = record->kind;
    if (last) out->count = record->count;
}
