#include <lockstep/checkpoint.h>

#include "base/memory.h"
#include "base/status.h"
#include "tensor/element.h"
#include "tensor/mapped.h"

#include <stdio.h>
#include <string.h>

typedef struct entry {
    char *name;
    uint64_t hash;
    lk_tensor *tensor; /* one of the two */
    char *text;
} entry;

typedef struct entry_list {
    entry *items;
    int64_t count, capacity;
    int64_t *slots; /* open addressing: index + 1, or 0; twice as many as the capacity, a power of two */
    int64_t slot_count;
} entry_list;

struct lk_state_dict {
    entry_list tensors, strings;
};

static uint64_t hash_name(const char *name)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (; *name; name++) hash = (hash ^ (uint8_t)*name) * UINT64_C(1099511628211);
    return hash;
}

/* The slot that holds the name, or the free one where it would go. */
static int64_t find_slot(const entry_list *list, const char *name, uint64_t hash)
{
    int64_t mask = list->slot_count - 1, slot = (int64_t)(hash & (uint64_t)mask);
    for (; list->slots[slot]; slot = (slot + 1) & mask) {
        const entry *found = &list->items[list->slots[slot] - 1];
        if (found->hash == hash && strcmp(found->name, name) == 0) break;
    }
    return slot;
}

static entry *find(const entry_list *list, const char *name)
{
    if (!name || list->count == 0) return NULL;
    int64_t index = list->slots[find_slot(list, name, hash_name(name))];
    return index ? &list->items[index - 1] : NULL;
}

static lk_status grow(entry_list *list)
{
    if (list->count < list->capacity) return LK_OK;
    int64_t capacity = list->capacity ? list->capacity * 2 : 16;
    entry *items = lki_realloc(list->items, sizeof *items * (size_t)capacity, "a state dict");
    if (!items) return LK_ERR_NOMEM;
    list->items = items;
    int64_t *slots = LKI_NEW_ARRAY(int64_t, capacity * 2);
    if (!slots) return LK_ERR_NOMEM;
    lki_free(list->slots);
    list->slots = slots;
    list->slot_count = capacity * 2;
    list->capacity = capacity;
    for (int64_t i = 0; i < list->count; i++) slots[find_slot(list, items[i].name, items[i].hash)] = i + 1;
    return LK_OK;
}

/* The entry under a name, made where there is none. */
static lk_status claim(entry_list *list, const char *name, entry **out)
{
    *out = find(list, name);
    if (*out) return LK_OK;
    LKI_TRY(grow(list));
    char *copy = lki_strdup(name);
    if (!copy) return LK_ERR_NOMEM;
    uint64_t hash = hash_name(name);
    list->slots[find_slot(list, name, hash)] = list->count + 1;
    *out = &list->items[list->count++];
    **out = (entry){copy, hash, NULL, NULL};
    return LK_OK;
}

static void fini_list(entry_list *list)
{
    for (int64_t i = 0; i < list->count; i++) {
        lki_free(list->items[i].name);
        lki_free(list->items[i].text);
        lk_tensor_free(list->items[i].tensor);
    }
    lki_free(list->items);
    lki_free(list->slots);
}

lk_state_dict *lk_state_dict_create(void)
{
    return LKI_NEW(lk_state_dict);
}

void lk_state_dict_free(lk_state_dict *dict)
{
    if (!dict) return;
    fini_list(&dict->tensors);
    fini_list(&dict->strings);
    lki_free(dict);
}

lk_status lk_state_dict_put(lk_state_dict *dict, const char *name, lk_tensor *tensor)
{
    entry *found;
    if (!tensor)
        return lki_last_status() ? lki_last_status() : lki_fail(LK_ERR_INVALID, "state dict: NULL tensor");
    lk_status status = LK_OK;
    if (!dict || !name || strcmp(name, "__metadata__") == 0)
        status = lki_fail(LK_ERR_INVALID, "state dict: a tensor cannot be named %s", name ? name : "NULL");
    if (status == LK_OK) status = claim(&dict->tensors, name, &found);
    if (status != LK_OK) {
        lk_tensor_free(tensor);
        return status;
    }
    lk_tensor_free(found->tensor);
    found->tensor = tensor;
    return LK_OK;
}

bool lk_state_dict_has(const lk_state_dict *dict, const char *name)
{
    return dict && (find(&dict->tensors, name) || find(&dict->strings, name));
}

/* Up to three names that share the longest beginning with the one that is missing. */
static void *not_found(const entry_list *list, const char *name, const char *what)
{
    char near[400] = "";
    size_t used = 0, longest = 0;
    for (int64_t i = 0; i < list->count; i++) {
        size_t same = 0;
        while (name[same] && name[same] == list->items[i].name[same]) same++;
        if (same > longest) longest = same;
    }
    int shown = 0;
    for (int64_t i = 0; i < list->count && shown < 3 && used < sizeof near; i++) {
        if (strncmp(name, list->items[i].name, longest) != 0) continue;
        used += (size_t)snprintf(near + used, sizeof near - used, "%s\"%s\"", shown ? ", " : "",
                                 list->items[i].name);
        shown++;
    }
    return lki_fail_null(LK_ERR_NOT_FOUND, "no %s named \"%s\"%s%s", what, name, shown ? "; there are " : "",
                         near);
}

lk_tensor *lk_state_dict_get(const lk_state_dict *dict, const char *name)
{
    if (!dict || !name) return lki_fail_null(LK_ERR_INVALID, "state dict: NULL was passed");
    entry *found = find(&dict->tensors, name);
    return found ? found->tensor : not_found(&dict->tensors, name, "tensor");
}

lk_status lk_state_dict_copy_to(const lk_state_dict *dict, const char *name, lk_tensor *destination)
{
    lk_tensor *source = lk_state_dict_get(dict, name);
    if (!source) return lki_last_status();
    if (!lk_shape_equal(source->shape, destination->shape)) {
        char from[160], to[160];
        return lki_fail(LK_ERR_SHAPE, "tensor \"%s\": shape %s does not fit into %s", name,
                        lk_shape_format(from, sizeof from, source->shape),
                        lk_shape_format(to, sizeof to, destination->shape));
    }
    LKI_TRY(lk_tensor_copy(destination, source));
    return lki_mapped_check();
}

lk_status lk_state_dict_put_i64(lk_state_dict *dict, const char *name, int64_t value)
{
    return lk_state_dict_put(dict, name, lk_tensor_from(LK_I64, lk_scalar_shape(), &value));
}

lk_status lk_state_dict_put_f64(lk_state_dict *dict, const char *name, double value)
{
    return lk_state_dict_put(dict, name, lk_tensor_from(LK_F64, lk_scalar_shape(), &value));
}

lk_status lk_state_dict_put_string(lk_state_dict *dict, const char *name, const char *value)
{
    entry *found;
    if (!dict || !name || !value) return lki_fail(LK_ERR_INVALID, "state dict: NULL was passed");
    char *copy = lki_strdup(value);
    if (!copy) return LK_ERR_NOMEM;
    lk_status status = claim(&dict->strings, name, &found);
    if (status != LK_OK) {
        lki_free(copy);
        return status;
    }
    lki_free(found->text);
    found->text = copy;
    return LK_OK;
}

static lk_status get_number(const lk_state_dict *dict, const char *name, lk_tensor **out)
{
    *out = lk_state_dict_get(dict, name);
    if (!*out) return lki_last_status();
    if (lk_tensor_count(*out) == 1) return LK_OK;
    char text[160];
    return lki_fail(LK_ERR_SHAPE, "\"%s\": expected one number, found shape %s", name,
                    lk_shape_format(text, sizeof text, (*out)->shape));
}

lk_status lk_state_dict_get_i64(const lk_state_dict *dict, const char *name, int64_t *out)
{
    lk_tensor *tensor;
    LKI_TRY(get_number(dict, name, &tensor));
    if (lk_dtype_is_float(tensor->dtype))
        return lki_fail(LK_ERR_DTYPE, "\"%s\": expected an integer, found %s", name,
                        lk_dtype_name(tensor->dtype));
    *out = tensor->dtype == LK_I64 ? *(int64_t *)tensor->data : (int64_t)lk_tensor_get(tensor, 0);
    return LK_OK;
}

lk_status lk_state_dict_get_f64(const lk_state_dict *dict, const char *name, double *out)
{
    lk_tensor *tensor;
    LKI_TRY(get_number(dict, name, &tensor));
    *out = lk_tensor_get(tensor, 0);
    return LK_OK;
}

const char *lk_state_dict_get_string(const lk_state_dict *dict, const char *name)
{
    if (!dict || !name) return lki_fail_null(LK_ERR_INVALID, "state dict: NULL was passed");
    entry *found = find(&dict->strings, name);
    return found ? found->text : not_found(&dict->strings, name, "string");
}

int64_t lk_state_dict_count(const lk_state_dict *dict)
{
    return dict ? dict->tensors.count : 0;
}

const char *lk_state_dict_name(const lk_state_dict *dict, int64_t index)
{
    return dict->tensors.items[index].name;
}

lk_tensor *lk_state_dict_tensor(const lk_state_dict *dict, int64_t index)
{
    return dict->tensors.items[index].tensor;
}

int64_t lk_state_dict_string_count(const lk_state_dict *dict)
{
    return dict ? dict->strings.count : 0;
}

const char *lk_state_dict_string_name(const lk_state_dict *dict, int64_t index)
{
    return dict->strings.items[index].name;
}
