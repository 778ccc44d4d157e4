#include "checkpoint/torch_load.h"

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/torch_file.h"

#include <stdio.h>
#include <string.h>

/* Values may contain themselves, or one value may stand in many places: without limits, a small file could
 * take forever to go through, or all memory. */
enum { MAX_DEPTH = 32, MAX_NAME = 2048, SMALL_NBYTES = 64 << 20, MAX_REPEATS = 16 };

typedef struct loader {
    lki_torch_file file;
    lk_state_dict *dict;
    int64_t visits_left;
    uint64_t nbytes_left; /* of tensors */
} loader;

static lk_status damaged(const loader *l)
{
    return lki_fail(LK_ERR_FORMAT, "%s: a tensor is described in a way that is not read here", l->file.path);
}

#define item lki_pickle_item

/* ---- Tensors ---- */

/* The numbers of a size or stride; they must not be negative. */
static lk_status read_numbers(const loader *l, const lki_pickle *list, int64_t *out, int *count)
{
    if (list && list->count > LK_MAX_DIMS)
        return lki_fail(LK_ERR_UNSUPPORTED, "%s: a tensor has %d dimensions, at most %d are read",
                        l->file.path, list->count, LK_MAX_DIMS);
    if (!list) return damaged(l);
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

/* Copies element by element, because the bytes may stand at any address. */
static void gather(const lk_tensor *view, const uint8_t *from, uint8_t *to, size_t size)
{
    int64_t index[LK_MAX_DIMS] = {0}, count = lk_shape_count(view->shape);
    for (int64_t i = 0; i < count; i++, to += size) {
        int64_t at = 0;
        for (int d = 0; d < view->shape.rank; d++) at += index[d] * view->stride[d];
        memcpy(to, from + (size_t)at * size, size);
        for (int d = view->shape.rank - 1; d >= 0 && ++index[d] == view->shape.dim[d]; d--) index[d] = 0;
    }
}

/* A view of the file, if the elements stand there in order and aligned; else a copy. */
static lk_tensor *make_tensor(const loader *l, const lk_tensor *view, size_t begin)
{
    size_t size = lk_dtype_nbytes(view->dtype);
    const uint8_t *bytes = lki_buffer_data(l->file.bytes);
    if (lk_tensor_is_contiguous(view) && (uintptr_t)(bytes + begin) % size == 0)
        return lki_tensor_over(l->file.bytes, begin, view->dtype, view->shape);
    lk_tensor *copy = lk_tensor_create(view->dtype, view->shape);
    if (copy) gather(view, bytes + begin, copy->data, size);
    return copy;
}

/* The storage that a persistent id names: ("storage", type, key, device, count), and before 1.6 perhaps a
 * part of it, (key, offset, count). */
static lk_status read_storage(loader *l, const lki_pickle *storage, lk_dtype *dtype, size_t *begin,
                              int64_t *available)
{
    const lki_pickle *id = storage ? item(storage, 0, LKI_PICKLE_TUPLE) : NULL;
    const lki_pickle *type = item(id, 1, LKI_PICKLE_GLOBAL), *key = item(id, 2, LKI_PICKLE_STRING);
    const lki_pickle *part = l->file.is_legacy ? item(id, 5, LKI_PICKLE_TUPLE) : NULL;
    size_t nbytes;
    if (!type || !key) return damaged(l);
    LKI_TRY(lki_torch_dtype(&l->file, type->text, dtype));
    LKI_TRY(lki_torch_file_storage(&l->file, key->text, begin, &nbytes));
    size_t size = lk_dtype_nbytes(*dtype);
    *available = (int64_t)(nbytes / size);
    if (!part) return LK_OK;
    const lki_pickle *offset = item(part, 1, LKI_PICKLE_INT), *count = item(part, 2, LKI_PICKLE_INT);
    if (!offset || !count || offset->number < 0 || count->number < 0 || offset->number > *available ||
        count->number > *available - offset->number)
        return damaged(l);
    *begin += (size_t)offset->number * size;
    *available = count->number;
    return LK_OK;
}

/* _rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks). */
static lk_status read_tensor(loader *l, const lki_pickle *arguments, lk_tensor **out)
{
    const lki_pickle *offset = item(arguments, 1, LKI_PICKLE_INT);
    lk_tensor view = {0};
    size_t begin = 0;
    int64_t available = 0;
    int strides = 0;
    if (!offset || offset->number < 0 || offset->number > INT64_C(1) << 48) return damaged(l);
    LKI_TRY(read_storage(l, item(arguments, 0, LKI_PICKLE_PERSISTENT), &view.dtype, &begin, &available));
    LKI_TRY(read_numbers(l, item(arguments, 2, LKI_PICKLE_TUPLE), view.shape.dim, &view.shape.rank));
    LKI_TRY(read_numbers(l, item(arguments, 3, LKI_PICKLE_TUPLE), view.stride, &strides));
    if (strides != view.shape.rank || lki_shape_check(view.dtype, view.shape)) return damaged(l);
    if (!fits(&view, offset->number, available))
        return lki_fail(LK_ERR_FORMAT, "%s: a tensor lies outside of its storage", l->file.path);
    uint64_t nbytes = (uint64_t)lk_shape_count(view.shape) * lk_dtype_nbytes(view.dtype);
    if (nbytes > l->nbytes_left)
        return lki_fail(LK_ERR_FORMAT, "%s: its tensors are more than %d times as large as the file",
                        l->file.path, MAX_REPEATS);
    l->nbytes_left -= nbytes;
    if (nbytes) begin += (size_t)offset->number * lk_dtype_nbytes(view.dtype);
    *out = nbytes ? make_tensor(l, &view, begin) : lk_tensor_create(view.dtype, view.shape);
    return *out ? LK_OK : lki_last_status();
}

/* ---- What contains them ---- */

static lk_status walk(loader *l, const lki_pickle *value, const char *path, int depth);

static bool is_printable(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 127) return false;
    return true;
}

static lk_status walk_child(loader *l, const lki_pickle *value, const char *path, const char *key, int depth)
{
    if (strlen(path) + strlen(key) > MAX_NAME)
        return lki_fail(LK_ERR_FORMAT, "%s: a name of more than %d letters", l->file.path, MAX_NAME);
    if (!is_printable(key) || !lki_is_utf8(key))
        return lki_fail(LK_ERR_FORMAT, "%s: a name that cannot be printed", l->file.path);
    LKI_SCOPED char *below = lki_format("%s%s%s", path, *path ? "." : "", key);
    return below ? walk(l, value, below, depth + 1) : LK_ERR_NOMEM;
}

static bool is_container(const lki_pickle *value)
{
    return value->kind == LKI_PICKLE_CALL || value->kind == LKI_PICKLE_DICT ||
           value->kind == LKI_PICKLE_TUPLE;
}

static lk_status walk_dict(loader *l, const lki_pickle *dict, const char *path, int depth)
{
    for (int i = 0; i + 1 < dict->count; i += 2) {
        const lki_pickle *key = dict->items[i];
        char number[24];
        if (!is_container(dict->items[i + 1])) continue;
        if (key->kind == LKI_PICKLE_INT) snprintf(number, sizeof number, "%lld", (long long)key->number);
        if (key->kind != LKI_PICKLE_INT && key->kind != LKI_PICKLE_STRING) continue;
        if (key->kind == LKI_PICKLE_STRING && key->number != (int64_t)strlen(key->text)) return damaged(l);
        LKI_TRY(
            walk_child(l, dict->items[i + 1], path, key->kind == LKI_PICKLE_INT ? number : key->text, depth));
    }
    return LK_OK;
}

static bool calls(const lki_pickle *function, const char *name)
{
    return function && strcmp(function->text, name) == 0;
}

static lk_status put(loader *l, const char *path, lk_tensor *tensor)
{
    if (!lk_state_dict_has(l->dict, path)) return lk_state_dict_put(l->dict, path, tensor);
    lk_tensor_free(tensor);
    return lki_fail(LK_ERR_FORMAT, "%s: two tensors are named \"%s\"", l->file.path, path);
}

static lk_status walk_function(loader *l, const lki_pickle *function, const lki_pickle *arguments,
                               const char *path, int depth)
{
    lk_tensor *tensor = NULL;
    if (calls(function, "torch._utils _rebuild_tensor_v2") ||
        calls(function, "torch._utils _rebuild_tensor")) {
        LKI_TRY(read_tensor(l, arguments, &tensor));
        return put(l, path, tensor);
    }
    if (calls(function, "torch._tensor _rebuild_from_type_v2") && arguments->count >= 3 && depth < MAX_DEPTH)
        return walk_function(l, item(arguments, 0, LKI_PICKLE_GLOBAL), arguments->items[2], path, depth + 1);
    bool is_parameter = calls(function, "torch._utils _rebuild_parameter") ||
                        calls(function, "torch._utils _rebuild_parameter_with_state");
    if (is_parameter && arguments->count) return walk(l, arguments->items[0], path, depth + 1);
    if (function && strncmp(function->text, "torch._utils _rebuild", 21) == 0)
        return lki_fail(LK_ERR_UNSUPPORTED, "%s: tensors of torch.%s are not read here", l->file.path,
                        function->text + strlen("torch._utils _rebuild_"));
    return LK_OK;
}

static lk_status walk_call(loader *l, const lki_pickle *call, const char *path, int depth)
{
    const lki_pickle *function = item(call, 0, LKI_PICKLE_GLOBAL);
    const lki_pickle *arguments = item(call, 1, LKI_PICKLE_TUPLE);
    if (function && arguments) LKI_TRY(walk_function(l, function, arguments, path, depth));
    return call->extra ? walk(l, call->extra, path, depth + 1) : LK_OK;
}

static lk_status walk(loader *l, const lki_pickle *value, const char *path, int depth)
{
    char number[24];
    if (depth > MAX_DEPTH)
        return lki_fail(LK_ERR_FORMAT, "%s: nested more than %d levels deep", l->file.path, MAX_DEPTH);
    l->visits_left -= 1 + value->count;
    if (l->visits_left < 0)
        return lki_fail(LK_ERR_FORMAT, "%s: a value stands in too many places", l->file.path);
    if (value->kind == LKI_PICKLE_CALL) return walk_call(l, value, path, depth);
    if (value->kind == LKI_PICKLE_DICT) return walk_dict(l, value, path, depth);
    for (int i = 0; value->kind == LKI_PICKLE_TUPLE && i < value->count; i++) {
        if (!is_container(value->items[i])) continue;
        snprintf(number, sizeof number, "%d", i);
        LKI_TRY(walk_child(l, value->items[i], path, number, depth));
    }
    return LK_OK;
}

/* ---- Weights ---- */

/* The items of a dict, an OrderedDict or the like; NULL for other values. Python 2 wrote OrderedDict([[key,
 * value], ...]). */
static const lki_pickle *as_dict(loader *l, const lki_pickle *value)
{
    if (value->kind == LKI_PICKLE_DICT) return value;
    const lki_pickle *function = item(value, 0, LKI_PICKLE_GLOBAL);
    bool is_dict = calls(function, "collections OrderedDict") || calls(function, "collections defaultdict");
    if (value->kind != LKI_PICKLE_CALL || !is_dict) return NULL;
    if (value->extra) return value->extra->kind == LKI_PICKLE_DICT ? value->extra : NULL;
    const lki_pickle *pairs = item(item(value, 1, LKI_PICKLE_TUPLE), 0, LKI_PICKLE_TUPLE);
    lki_pickle *dict = LKI_ARENA_NEW(&l->file.arena, lki_pickle);
    lki_pickle **items =
        pairs ? LKI_ARENA_NEW_ARRAY(&l->file.arena, lki_pickle *, 2 * (size_t)pairs->count) : NULL;
    if (!dict || (pairs && !items)) return NULL;
    dict->kind = LKI_PICKLE_DICT;
    dict->items = items;
    for (int i = 0; pairs && i < pairs->count; i++) {
        const lki_pickle *pair = item(pairs, i, LKI_PICKLE_TUPLE);
        if (!pair || pair->count != 2) return NULL;
        items[dict->count++] = pair->items[0];
        items[dict->count++] = pair->items[1];
    }
    return dict;
}

static const lki_pickle *value_of(const lki_pickle *dict, const char *name)
{
    for (int i = 0; i + 1 < dict->count; i += 2)
        if (dict->items[i]->kind == LKI_PICKLE_STRING && !strcmp(dict->items[i]->text, name))
            return dict->items[i + 1];
    return NULL;
}

static const lki_pickle *find_weights(loader *l)
{
    static const char *const names[] = {"state_dict", "model_state_dict", "model"};
    const lki_pickle *dict = as_dict(l, l->file.root);
    for (size_t i = 0; dict && i < sizeof names / sizeof *names; i++) {
        const lki_pickle *inside = value_of(dict, names[i]);
        const lki_pickle *found = inside ? as_dict(l, inside) : NULL;
        if (found) return found;
    }
    return dict;
}

/* Takes every "_orig_mod." that stands for a module of its own out of a name. */
static void drop_compiled(char *name)
{
    static const char word[] = "_orig_mod.";
    size_t length = sizeof word - 1;
    for (char *at = name; (at = strstr(at, word));) {
        if (at == name || at[-1] == '.')
            memmove(at, at + length, strlen(at + length) + 1);
        else
            at += length;
    }
}

static bool all_begin(char *const *names, int64_t count, const char *word)
{
    for (int64_t i = 0; i < count; i++)
        if (strncmp(names[i], word, strlen(word)) != 0) return false;
    return count > 0;
}

/* The same tensors under the names that the model itself has. */
static lk_status rename_all(loader *l)
{
    static const char word[] = "module.";
    int64_t count = lk_state_dict_count(l->dict), filled = 0;
    lk_status status = LK_OK;
    lk_state_dict *old = l->dict;
    l->dict = lk_state_dict_create();
    char **names = LKI_NEW_ARRAY(char *, count + 1);
    if (!l->dict || !names) LKI_TRY_OUT(LK_ERR_NOMEM);
    for (; filled < count; filled++) {
        names[filled] = lki_strdup(lk_state_dict_name(old, filled));
        if (!names[filled]) LKI_TRY_OUT(LK_ERR_NOMEM);
        drop_compiled(names[filled]);
    }
    while (all_begin(names, count, word))
        for (int64_t i = 0; i < count; i++)
            memmove(names[i], names[i] + strlen(word), strlen(names[i] + strlen(word)) + 1);
    for (int64_t i = 0; i < count; i++)
        LKI_TRY_OUT(put(l, names[i], lk_tensor_view(lk_state_dict_tensor(old, i))));
    status = lk_state_dict_put_string(l->dict, LKI_TORCH_ORIGIN, "yes");
out:
    for (int64_t i = 0; i < filled; i++) lki_free(names[i]);
    lki_free(names);
    lk_state_dict_free(old);
    return status;
}

/* ---- Files ---- */

static lk_status load(loader *l, const char *path, bool weights)
{
    LKI_TRY(lki_torch_file_open(&l->file, path));
    uint64_t nbytes = lki_buffer_nbytes(l->file.bytes);
    l->visits_left = (int64_t)(MAX_REPEATS * nbytes) + SMALL_NBYTES / 64;
    l->nbytes_left = MAX_REPEATS * nbytes + SMALL_NBYTES;
    const lki_pickle *root = weights ? find_weights(l) : l->file.root;
    if (!root)
        return lki_fail(LK_ERR_FORMAT, "%s: it holds no state dict: save the model's state_dict()", path);
    LKI_TRY(walk(l, root, "", 0));
    if (lk_state_dict_count(l->dict) == 0)
        return lki_fail(LK_ERR_FORMAT, "%s: there is no tensor in it", path);
    return weights ? rename_all(l) : LK_OK;
}

static lk_state_dict *load_file(const char *path, bool weights)
{
    loader l = {.dict = lk_state_dict_create()};
    lk_status status = l.dict ? load(&l, path, weights) : LK_ERR_NOMEM;
    lki_torch_file_close(&l.file);
    if (status == LK_OK) return l.dict;
    lk_state_dict_free(l.dict);
    return NULL;
}

lk_state_dict *lki_torch_load(const char *path)
{
    return load_file(path, false);
}

lk_state_dict *lki_torch_load_weights(const char *path)
{
    return load_file(path, true);
}
