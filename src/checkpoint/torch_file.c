#include "checkpoint/torch_file.h"

#include "base/memory.h"
#include "base/status.h"
#include "tensor/mapped.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *storage;
    lk_dtype dtype;
} storages[] = {
    {"torch FloatStorage", LK_F32},     {"torch DoubleStorage", LK_F64}, {"torch HalfStorage", LK_F16},
    {"torch BFloat16Storage", LK_BF16}, {"torch LongStorage", LK_I64},   {"torch IntStorage", LK_I32},
    {"torch ByteStorage", LK_U8},       {"torch BoolStorage", LK_BOOL},
};

/* Of storages that no tensor here can have, which must be stepped over nevertheless. */
static const struct {
    const char *storage;
    size_t element_nbytes;
} other_storages[] = {
    {"torch CharStorage", 1},           {"torch ShortStorage", 2},           {"torch ComplexFloatStorage", 8},
    {"torch ComplexDoubleStorage", 16}, {"torch QInt8Storage", 1},           {"torch QUInt8Storage", 1},
    {"torch QInt32Storage", 4},         {"torch.storage UntypedStorage", 1},
};

const lki_pickle *lki_pickle_item(const lki_pickle *list, int index, lki_pickle_kind kind)
{
    if (!list || index >= list->count || list->items[index]->kind != kind) return NULL;
    return list->items[index];
}

lk_status lki_torch_dtype(const lki_torch_file *file, const char *storage, lk_dtype *out)
{
    for (size_t i = 0; i < sizeof storages / sizeof *storages; i++)
        if (!strcmp(storages[i].storage, storage)) return *out = storages[i].dtype, LK_OK;
    return lki_fail(LK_ERR_UNSUPPORTED, "%s: a tensor's storage is %s, which is not read here", file->path,
                    storage);
}

static size_t element_nbytes(const char *storage)
{
    for (size_t i = 0; i < sizeof storages / sizeof *storages; i++)
        if (!strcmp(storages[i].storage, storage)) return lk_dtype_nbytes(storages[i].dtype);
    for (size_t i = 0; i < sizeof other_storages / sizeof *other_storages; i++)
        if (!strcmp(other_storages[i].storage, storage)) return other_storages[i].element_nbytes;
    return 0;
}

static lk_status damaged(const lki_torch_file *file)
{
    return lki_fail(LK_ERR_FORMAT, "%s: damaged or cut off", file->path);
}

/* ---- Since 1.6 ---- */

static lk_status check_byte_order(lki_torch_file *file)
{
    const uint8_t *data;
    size_t nbytes;
    if (!lki_zip_has(&file->zip, "byteorder")) return LK_OK;
    LKI_TRY(lki_zip_entry(&file->zip, "byteorder", &data, &nbytes));
    if (nbytes == 6 && !memcmp(data, "little", 6)) return LK_OK;
    return lki_fail(LK_ERR_UNSUPPORTED,
                    "%s: its numbers are big-endian: save it again on a little-endian machine", file->path);
}

static lk_status open_zip(lki_torch_file *file)
{
    const uint8_t *data;
    size_t nbytes;
    lki_pickled pickled;
    LKI_TRY(
        lki_zip_open(&file->zip, file->path, lki_buffer_data(file->bytes), lki_buffer_nbytes(file->bytes)));
    LKI_TRY(lki_zip_enter_folder(&file->zip));
    if (lki_zip_has(&file->zip, "constants.pkl"))
        return lki_fail(LK_ERR_UNSUPPORTED,
                        "%s: a program of TorchScript: save the model's state_dict() instead", file->path);
    if (!lki_zip_has(&file->zip, "data.pkl"))
        return lki_fail(LK_ERR_FORMAT, "%s: not a file of PyTorch's (it has no data.pkl)", file->path);
    LKI_TRY(check_byte_order(file));
    LKI_TRY(lki_zip_entry(&file->zip, "data.pkl", &data, &nbytes));
    LKI_TRY(lki_unpickle(&file->arena, file->path, data, nbytes, &file->instructions_left, &pickled));
    file->root = pickled.root;
    return LK_OK;
}

/* ---- Before ---- */

/* The number 0x1950a86a20f9469cfc6c as a pickle holds it. */
static const uint8_t magic[] = {0x8a, 10, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};

bool lki_torch_is_legacy(const uint8_t *bytes, size_t nbytes)
{
    size_t frame = nbytes > 2 && bytes[2] == 0x95 ? 9 : 0; /* of protocol 4 and later */
    return nbytes >= 2 + frame + sizeof magic && bytes[0] == 0x80 &&
           !memcmp(bytes + 2 + frame, magic, sizeof magic);
}

static int by_key(const void *left, const void *right)
{
    return strcmp(((const lki_torch_storage *)left)->key, ((const lki_torch_storage *)right)->key);
}

static lki_torch_storage *find(const lki_torch_file *file, const char *key)
{
    const lki_torch_storage wanted = {.key = key};
    if (!file->storage_count) return NULL;
    return bsearch(&wanted, file->storages, (size_t)file->storage_count, sizeof wanted, by_key);
}

static lk_status next_pickle(lki_torch_file *file, size_t *at, lki_pickled *out)
{
    const uint8_t *bytes = lki_buffer_data(file->bytes);
    LKI_TRY(lki_unpickle(&file->arena, file->path, bytes + *at, lki_buffer_nbytes(file->bytes) - *at,
                         &file->instructions_left, out));
    *at += out->nbytes;
    return LK_OK;
}

static lk_status check_system(const lki_torch_file *file, const lki_pickle *system)
{
    for (int i = 0; system->kind == LKI_PICKLE_DICT && i + 1 < system->count; i += 2) {
        const lki_pickle *key = system->items[i], *value = system->items[i + 1];
        if (key->kind != LKI_PICKLE_STRING || strcmp(key->text, "little_endian") != 0) continue;
        if (value->kind == LKI_PICKLE_BOOL && value->number) return LK_OK;
        return lki_fail(LK_ERR_UNSUPPORTED,
                        "%s: its numbers are big-endian: save it again on a little-endian machine",
                        file->path);
    }
    return damaged(file);
}

/* The file says a storage's length in elements; how large they are stands where a tensor names it. */
static lk_status find_element_sizes(lki_torch_file *file, const lki_pickle *persistent)
{
    for (int i = 0; i < persistent->count; i++) {
        const lki_pickle *id = lki_pickle_item(persistent->items[i], 0, LKI_PICKLE_TUPLE);
        const lki_pickle *type = lki_pickle_item(id, 1, LKI_PICKLE_GLOBAL);
        const lki_pickle *key = lki_pickle_item(id, 2, LKI_PICKLE_STRING);
        lki_torch_storage *storage = key ? find(file, key->text) : NULL;
        if (!type || !storage) return damaged(file);
        size_t nbytes = element_nbytes(type->text);
        if (!nbytes || (storage->element_nbytes && storage->element_nbytes != nbytes)) return damaged(file);
        storage->element_nbytes = nbytes;
    }
    return LK_OK;
}

static lk_status place_storages(lki_torch_file *file, const lki_pickle *keys, size_t at)
{
    const uint8_t *bytes = lki_buffer_data(file->bytes);
    size_t end = lki_buffer_nbytes(file->bytes);
    for (int i = 0; i < keys->count; i++) {
        lki_torch_storage *storage = find(file, keys->items[i]->text);
        uint64_t count = 0;
        if (!storage || !storage->element_nbytes || end - at < 8) return damaged(file);
        for (int b = 7; b >= 0; b--) count = count << 8 | bytes[at + (size_t)b];
        at += 8;
        if (count > (end - at) / storage->element_nbytes) return damaged(file);
        storage->begin = at;
        storage->nbytes = (size_t)count * storage->element_nbytes;
        at += storage->nbytes;
    }
    return LK_OK;
}

static lk_status list_storages(lki_torch_file *file, const lki_pickle *keys)
{
    if (keys->kind != LKI_PICKLE_TUPLE) return damaged(file);
    file->storages = LKI_NEW_ARRAY(lki_torch_storage, keys->count + 1);
    if (!file->storages) return LK_ERR_NOMEM;
    for (int i = 0; i < keys->count; i++) {
        if (!lki_pickle_item(keys, i, LKI_PICKLE_STRING)) return damaged(file);
        file->storages[file->storage_count++].key = keys->items[i]->text;
    }
    qsort(file->storages, (size_t)file->storage_count, sizeof *file->storages, by_key);
    for (int i = 1; i < file->storage_count; i++)
        if (by_key(&file->storages[i - 1], &file->storages[i]) == 0) return damaged(file);
    return LK_OK;
}

/* The magic number, the version, the system, the values, the storages' keys; then the storages. */
static lk_status open_legacy(lki_torch_file *file)
{
    size_t at = 0;
    lki_pickled number, version, system, values, keys;
    file->is_legacy = true;
    LKI_TRY(next_pickle(file, &at, &number));
    LKI_TRY(next_pickle(file, &at, &version));
    if (version.root->kind != LKI_PICKLE_INT || version.root->number != 1001)
        return lki_fail(LK_ERR_UNSUPPORTED, "%s: a version of PyTorch's format that is not known here",
                        file->path);
    LKI_TRY(next_pickle(file, &at, &system));
    LKI_TRY(check_system(file, system.root));
    LKI_TRY(next_pickle(file, &at, &values));
    LKI_TRY(next_pickle(file, &at, &keys));
    LKI_TRY(list_storages(file, keys.root));
    LKI_TRY(find_element_sizes(file, values.persistent));
    LKI_TRY(place_storages(file, keys.root, at));
    file->root = values.root;
    return LK_OK;
}

/* ---- Both ---- */

lk_status lki_torch_file_open(lki_torch_file *file, const char *path)
{
    *file = (lki_torch_file){.path = path, .instructions_left = LKI_PICKLE_INSTRUCTIONS};
    LKI_TRY(lki_load_file(&file->bytes, path));
    const uint8_t *bytes = lki_buffer_data(file->bytes);
    if (lki_torch_is_legacy(bytes, lki_buffer_nbytes(file->bytes))) return open_legacy(file);
    return open_zip(file);
}

void lki_torch_file_close(lki_torch_file *file)
{
    lki_zip_close(&file->zip);
    lki_free(file->storages);
    lki_arena_fini(&file->arena);
    lki_buffer_release(file->bytes);
    *file = (lki_torch_file){0};
}

lk_status lki_torch_file_storage(lki_torch_file *file, const char *key, size_t *begin, size_t *nbytes)
{
    if (file->is_legacy) {
        const lki_torch_storage *storage = find(file, key);
        if (!storage) return damaged(file);
        *begin = storage->begin;
        *nbytes = storage->nbytes;
        return LK_OK;
    }
    const uint8_t *data;
    LKI_SCOPED char *name = lki_format("data/%s", key);
    if (!name) return LK_ERR_NOMEM;
    LKI_TRY(lki_zip_entry(&file->zip, name, &data, nbytes));
    *begin = (size_t)(data - (const uint8_t *)lki_buffer_data(file->bytes));
    return LK_OK;
}
