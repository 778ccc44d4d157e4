#include "checkpoint/torch_load.h"

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/pickle.h"
#include "checkpoint/torch_zip.h"
#include "tensor/mapped.h"

#include <stdio.h>
#include <string.h>

/* Values may contain themselves. */
enum { MAX_DEPTH = 32 };

typedef struct loader {
    lki_zip zip;
    lk_state_dict *dict;
} loader;

static const struct {
    const char *storage;
    lk_dtype dtype;
} storages[] = {
    {"torch FloatStorage", LK_F32},     {"torch DoubleStorage", LK_F64}, {"torch HalfStorage", LK_F16},
    {"torch BFloat16Storage", LK_BF16}, {"torch LongStorage", LK_I64},   {"torch IntStorage", LK_I32},
    {"torch ByteStorage", LK_U8},       {"torch BoolStorage", LK_BOOL},
};

static lk_status damaged(const loader *l)
{
    return lki_fail(LK_ERR_FORMAT, "%s: a tensor is described in a way that is not read here", l->zip.path);
}

static const lki_pickle *item(const lki_pickle *list, int index, lki_pickle_kind kind)
{
    if (!list || index >= list->count || list->items[index]->kind != kind) return NULL;
    return list->items[index];
}

static lk_status find_dtype(const loader *l, const char *storage, lk_dtype *out)
{
    for (size_t i = 0; i < sizeof storages / sizeof *storages; i++)
        if (!strcmp(storages[i].storage, storage)) return *out = storages[i].dtype, LK_OK;
    return lki_fail(LK_ERR_UNSUPPORTED, "%s: a tensor's storage is %s, which is not read here", l->zip.path,
                    storage);
}

/* The numbers of a size or stride; they must not be negative. */
static lk_status read_numbers(const loader *l, const lki_pickle *list, int64_t *out, int *count)
{
    if (!list || list->count > LK_MAX_DIMS) return damaged(l);
    for (int i = 0; i < list->count; i++) {
        const lki_pickle *number = item(list, i, LKI_PICKLE_INT);
        if (!number || number->number < 0 || number->number > INT64_C(1) << 48) return damaged(l);
        out[i] = number->number;
    }
    *count = list->count;
    return LK_OK;
}

/* Whether all elements, from `offset` on, lie within `available` of them. */
static bool fits(const lk_tensor *tensor, int64_t offset, int64_t available)
{
    int64_t last = offset;
    if (lk_shape_count(tensor->shape) == 0) return true;
    for (int i = 0; i < tensor->shape.rank; i++) {
        int64_t steps = tensor->shape.dim[i] - 1;
        if (steps && tensor->stride[i] > (INT64_MAX - last) / steps) return false;
        last += steps * tensor->stride[i];
    }
    return last < available;
}

/* A copy of the view, from bytes that may stand at any address. */
static lk_tensor *copy_view(lk_tensor *view, const uint8_t *data, size_t nbytes, int64_t offset)
{
    size_t size = lk_dtype_nbytes(view->dtype);
    void *aligned = (uintptr_t)data % size ? lki_calloc_aligned(nbytes, "a tensor") : NULL;
    if ((uintptr_t)data % size && !aligned) return NULL;
    if (aligned) memcpy(aligned, data, nbytes);
    view->data = (uint8_t *)(aligned ? aligned : (void *)data) + (size_t)offset * size;
    lk_tensor *copy = lk_tensor_clone(view);
    lki_free(aligned);
    return copy;
}

/* _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks) with the storage's name as a
 * persistent id:
 * ("storage", type, key, device, count). */
static lk_status read_tensor(loader *l, const lki_pickle *arguments, lk_tensor **out)
{
    const lki_pickle *storage = item(arguments, 0, LKI_PICKLE_PERSISTENT);
    const lki_pickle *id = storage ? item(storage, 0, LKI_PICKLE_TUPLE) : NULL;
    const lki_pickle *type = item(id, 1, LKI_PICKLE_GLOBAL), *key = item(id, 2, LKI_PICKLE_STRING);
    const lki_pickle *offset = item(arguments, 1, LKI_PICKLE_INT);
    lk_tensor view = {0};
    const uint8_t *data;
    size_t nbytes;
    int strides = 0;
    if (!type || !key || !offset || offset->number < 0 || offset->number > INT64_C(1) << 48)
        return damaged(l);
    LKI_TRY(find_dtype(l, type->text, &view.dtype));
    LKI_TRY(read_numbers(l, item(arguments, 2, LKI_PICKLE_TUPLE), view.shape.dim, &view.shape.rank));
    LKI_TRY(read_numbers(l, item(arguments, 3, LKI_PICKLE_TUPLE), view.stride, &strides));
    if (strides != view.shape.rank || lki_shape_check(view.dtype, view.shape)) return damaged(l);
    LKI_SCOPED char *name = lki_format("data/%s", key->text);
    if (!name) return LK_ERR_NOMEM;
    LKI_TRY(lki_zip_entry(&l->zip, name, &data, &nbytes));
    if (!fits(&view, offset->number, (int64_t)(nbytes / lk_dtype_nbytes(view.dtype))))
        return lki_fail(LK_ERR_FORMAT, "%s: a tensor lies outside of its storage %s", l->zip.path, key->text);
    *out = copy_view(&view, data, nbytes, offset->number);
    return *out ? LK_OK : lki_last_status();
}

static lk_status walk(loader *l, const lki_pickle *value, const char *path, int depth);

static lk_status walk_child(loader *l, const lki_pickle *value, const char *path, const char *key, int depth)
{
    LKI_SCOPED char *below = lki_format("%s%s%s", path, *path ? "." : "", key);
    return below ? walk(l, value, below, depth + 1) : LK_ERR_NOMEM;
}

static lk_status walk_dict(loader *l, const lki_pickle *dict, const char *path, int depth)
{
    for (int i = 0; i + 1 < dict->count; i += 2) {
        const lki_pickle *key = dict->items[i];
        char number[24];
        if (key->kind == LKI_PICKLE_INT) snprintf(number, sizeof number, "%lld", (long long)key->number);
        if (key->kind != LKI_PICKLE_INT && key->kind != LKI_PICKLE_STRING) continue;
        LKI_TRY(
            walk_child(l, dict->items[i + 1], path, key->kind == LKI_PICKLE_INT ? number : key->text, depth));
    }
    return LK_OK;
}

static lk_status walk_call(loader *l, const lki_pickle *call, const char *path, int depth)
{
    const lki_pickle *function = item(call, 0, LKI_PICKLE_GLOBAL),
                     *arguments = item(call, 1, LKI_PICKLE_TUPLE);
    lk_tensor *tensor = NULL;
    if (function && arguments && !strcmp(function->text, "torch._utils _rebuild_tensor_v2")) {
        LKI_TRY(read_tensor(l, arguments, &tensor));
        return lk_state_dict_put(l->dict, path, tensor);
    }
    if (function && arguments && arguments->count &&
        !strcmp(function->text, "torch._utils _rebuild_parameter"))
        return walk(l, arguments->items[0], path, depth + 1);
    return call->extra ? walk(l, call->extra, path, depth) : LK_OK;
}

static lk_status walk(loader *l, const lki_pickle *value, const char *path, int depth)
{
    char number[24];
    if (depth > MAX_DEPTH)
        return lki_fail(LK_ERR_FORMAT, "%s: nested more than %d levels deep", l->zip.path, MAX_DEPTH);
    if (value->kind == LKI_PICKLE_CALL) return walk_call(l, value, path, depth);
    if (value->kind == LKI_PICKLE_DICT) return walk_dict(l, value, path, depth);
    for (int i = 0; value->kind == LKI_PICKLE_TUPLE && i < value->count; i++) {
        snprintf(number, sizeof number, "%d", i);
        LKI_TRY(walk_child(l, value->items[i], path, number, depth));
    }
    return LK_OK;
}

static lk_status load(loader *l, const char *path, const lk_buffer *file)
{
    lki_arena arena = {0};
    lki_pickle *root = NULL;
    const uint8_t *data;
    size_t nbytes;
    lk_status status;
    LKI_TRY(lki_zip_open(&l->zip, path, lki_buffer_data(file), lki_buffer_nbytes(file)));
    LKI_TRY(lki_zip_entry(&l->zip, "data.pkl", &data, &nbytes));
    LKI_TRY_OUT(lki_unpickle(&arena, path, data, nbytes, &root));
    LKI_TRY_OUT(walk(l, root, "", 0));
    if (lk_state_dict_count(l->dict) == 0)
        status = lki_fail(LK_ERR_FORMAT, "%s: there is no tensor in it", path);
out:
    lki_arena_fini(&arena);
    return status;
}

lk_state_dict *lki_torch_load(const char *path)
{
    lk_buffer *file = NULL;
    if (lki_map_file(&file, path)) return NULL;
    loader l = {.dict = lk_state_dict_create()};
    lk_status status = l.dict ? load(&l, path, file) : LK_ERR_NOMEM;
    lki_buffer_release(file);
    if (status == LK_OK) return l.dict;
    lk_state_dict_free(l.dict);
    return NULL;
}
