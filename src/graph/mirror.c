#include "graph/mirror.h"

#include "base/memory.h"
#include "base/status.h"

typedef struct block {
    char *host, *device;
    size_t nbytes;
    bool scratch;
} block;

struct lki_mirror {
    lk_engine *engine;
    block *blocks;
    int count, capacity;
    bool host_is_behind, device_is_behind;
};

lk_status lki_mirror_create(lki_mirror **out, lk_engine *engine)
{
    *out = NULL;
    if (!engine->ops->alloc) return LK_OK;
    lki_mirror *mirror = LKI_NEW(lki_mirror);
    if (!mirror) return LK_ERR_NOMEM;
    mirror->engine = engine;
    *out = mirror;
    return LK_OK;
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

lk_status lki_mirror_add(lki_mirror *mirror, void *host, size_t nbytes, bool scratch, const char *what)
{
    if (!mirror || !host) return LK_OK;
    LKI_TRY(reserve(mirror));
    char *device = mirror->engine->ops->alloc(mirror->engine, nbytes, what);
    if (!device) return LK_ERR_NOMEM;
    mirror->blocks[mirror->count++] = (block){host, device, nbytes, scratch};
    mirror->device_is_behind = true;
    return LK_OK;
}

static const block *find(const lki_mirror *mirror, const char *host)
{
    for (int i = 0; mirror && i < mirror->count; i++) {
        const block *b = &mirror->blocks[i];
        if (host >= b->host && host < b->host + b->nbytes) return b;
    }
    return NULL;
}

void *lki_mirror_address(const lki_mirror *mirror, void *host)
{
    const block *b = find(mirror, host);
    return b ? b->device + ((char *)host - b->host) : host;
}

lk_engine *lki_mirror_engine(const lki_mirror *mirror)
{
    return mirror ? mirror->engine : NULL;
}

lk_status lki_mirror_pull_block(lki_mirror *mirror, void *host)
{
    const block *b = find(mirror, host);
    return b ? mirror->engine->ops->download(mirror->engine, b->host, b->device, b->nbytes) : LK_OK;
}

lk_status lki_mirror_push_block(lki_mirror *mirror, void *host)
{
    const block *b = find(mirror, host);
    return b ? mirror->engine->ops->upload(mirror->engine, b->device, b->host, b->nbytes) : LK_OK;
}

lk_status lki_mirror_pull(lki_mirror *mirror)
{
    if (!mirror || !mirror->host_is_behind) return LK_OK;
    for (int i = 0; i < mirror->count; i++)
        if (!mirror->blocks[i].scratch) LKI_TRY(lki_mirror_pull_block(mirror, mirror->blocks[i].host));
    mirror->host_is_behind = false;
    return LK_OK;
}

lk_status lki_mirror_push(lki_mirror *mirror)
{
    if (!mirror || !mirror->device_is_behind) return LK_OK;
    for (int i = 0; i < mirror->count; i++)
        if (!mirror->blocks[i].scratch) LKI_TRY(lki_mirror_push_block(mirror, mirror->blocks[i].host));
    mirror->device_is_behind = false;
    return LK_OK;
}

void lki_mirror_device_changed(lki_mirror *mirror)
{
    if (mirror) mirror->host_is_behind = true;
}

void lki_mirror_host_changed(lki_mirror *mirror)
{
    if (mirror) mirror->device_is_behind = true;
}

lk_status lki_param_pull(const lk_param *param)
{
    return lki_mirror_pull(param->mirror);
}

void lki_param_push(const lk_param *param)
{
    lki_mirror_host_changed(param->mirror);
}
