#include "step/device/mirror.h"

#include "base/memory.h"
#include "base/status.h"

typedef enum side { NEITHER, HOST, DEVICE } side;

typedef struct block {
    char *host, *device;
    size_t nbytes;
    const void *owner; /* who has joined; NULL: it was added, and stays */
    bool scratch;
    side newer;
} block;

struct lki_mirror {
    lk_engine *engine;
    block *blocks;
    int count, capacity;
    bool host_has_newer, device_has_newer; /* of any block */
    uint64_t version;
};

lki_mirror *lki_mirror_create(lk_engine *engine)
{
    lki_mirror *mirror = LKI_NEW(lki_mirror);
    if (!mirror) return NULL;
    mirror->engine = engine;
    mirror->version = 1;
    return mirror;
}

void lki_mirror_free(lki_mirror *mirror)
{
    if (!mirror) return;
    lki_mirror_pull(mirror); /* a device that has failed has nothing to give */
    for (int i = 0; i < mirror->count; i++)
        mirror->engine->ops->release(mirror->engine, mirror->blocks[i].device);
    lki_free(mirror->blocks);
    lki_free(mirror);
}

static lk_status reserve(lki_mirror *mirror)
{
    if (mirror->count < mirror->capacity) return LK_OK;
    int capacity = mirror->capacity ? 2 * mirror->capacity : 16;
    block *grown = lki_realloc(mirror->blocks, sizeof *grown * (size_t)capacity, "copies on the device");
    if (!grown) return LK_ERR_NOMEM;
    mirror->blocks = grown;
    mirror->capacity = capacity;
    return LK_OK;
}

static lk_status add(lki_mirror *mirror, block fresh, const char *what)
{
    if (!fresh.host) return LK_OK;
    LKI_TRY(reserve(mirror));
    fresh.device = mirror->engine->ops->alloc(mirror->engine, fresh.nbytes, what);
    if (!fresh.device) return LK_ERR_NOMEM;
    fresh.newer = HOST;
    mirror->blocks[mirror->count++] = fresh;
    mirror->host_has_newer = true;
    mirror->version++;
    return LK_OK;
}

lk_status lki_mirror_add(lki_mirror *mirror, void *host, size_t nbytes, bool scratch, const char *what)
{
    return add(mirror, (block){.host = host, .nbytes = nbytes, .scratch = scratch}, what);
}

static block *find(const lki_mirror *mirror, const char *host)
{
    for (int i = 0; mirror && i < mirror->count; i++) {
        block *b = &mirror->blocks[i];
        if (host >= b->host && host < b->host + b->nbytes) return b;
    }
    return NULL;
}

void *lki_mirror_address(const lki_mirror *mirror, void *host)
{
    const block *b = find(mirror, host);
    return b ? b->device + ((char *)host - b->host) : host;
}

uint64_t lki_mirror_version(const lki_mirror *mirror)
{
    return mirror->version;
}

static lk_status pull(const lki_mirror *mirror, block *b)
{
    LKI_TRY(mirror->engine->ops->download(mirror->engine, b->host, b->device, b->nbytes));
    b->newer = NEITHER;
    return LK_OK;
}

static lk_status push(const lki_mirror *mirror, block *b)
{
    LKI_TRY(mirror->engine->ops->upload(mirror->engine, b->device, b->host, b->nbytes));
    b->newer = NEITHER;
    return LK_OK;
}

lk_status lki_mirror_pull_block(lki_mirror *mirror, void *host)
{
    block *b = find(mirror, host);
    return b ? pull(mirror, b) : LK_OK;
}

lk_status lki_mirror_push_block(lki_mirror *mirror, void *host)
{
    block *b = find(mirror, host);
    return b ? push(mirror, b) : LK_OK;
}

lk_status lki_mirror_pull(lki_mirror *mirror)
{
    if (!mirror->device_has_newer) return LK_OK;
    for (int i = 0; i < mirror->count; i++)
        if (mirror->blocks[i].newer == DEVICE && !mirror->blocks[i].scratch)
            LKI_TRY(pull(mirror, &mirror->blocks[i]));
    mirror->device_has_newer = false;
    return LK_OK;
}

lk_status lki_mirror_push(lki_mirror *mirror)
{
    if (!mirror->host_has_newer) return LK_OK;
    for (int i = 0; i < mirror->count; i++)
        if (mirror->blocks[i].newer == HOST && !mirror->blocks[i].scratch)
            LKI_TRY(push(mirror, &mirror->blocks[i]));
    mirror->host_has_newer = false;
    return LK_OK;
}

/* What the host has written and not pushed yet stays the newer. */
static void device_changed(lki_mirror *mirror, block *b)
{
    if (b->newer != HOST) b->newer = DEVICE;
    mirror->device_has_newer = true;
    mirror->version++;
}

static void host_changed(lki_mirror *mirror, block *b)
{
    b->newer = HOST;
    mirror->host_has_newer = true;
    mirror->version++;
}

void lki_mirror_device_changed(lki_mirror *mirror)
{
    for (int i = 0; i < mirror->count; i++) device_changed(mirror, &mirror->blocks[i]);
}

void lki_mirror_host_changed(lki_mirror *mirror)
{
    for (int i = 0; i < mirror->count; i++) host_changed(mirror, &mirror->blocks[i]);
}

/* ---- One block ---- */

lk_status lki_mirror_pull_newer(lki_mirror *mirror, void *host)
{
    block *b = find(mirror, host);
    return b && b->newer == DEVICE ? pull(mirror, b) : LK_OK;
}

void lki_mirror_device_changed_block(lki_mirror *mirror, void *host)
{
    block *b = find(mirror, host);
    if (b) device_changed(mirror, b);
}

void lki_mirror_host_changed_block(lki_mirror *mirror, void *host)
{
    block *b = find(mirror, host);
    if (b) host_changed(mirror, b);
}

lk_status lki_mirror_join(lki_mirror *mirror, void *host, size_t nbytes, const void *owner, const char *what)
{
    return add(mirror, (block){.host = host, .nbytes = nbytes, .owner = owner}, what);
}

void lki_mirror_remove(lki_mirror *mirror, void *host, const void *owner)
{
    block *b = find(mirror, host);
    if (!b || b->owner != owner) return;
    mirror->engine->ops->release(mirror->engine, b->device);
    *b = mirror->blocks[--mirror->count];
    mirror->version++;
}
