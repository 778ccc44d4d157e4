/* The Python version of CIFAR: a pickled dict of a NumPy array of pixels and of lists of labels, as Python 2
 * wrote it. */
#include "data/cifar.h"

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/pickle.h"
#include "data/file.h"
#include "tensor/buffer.h"

#include <string.h>

static const lki_pickle *find(const lki_pickle *dict, const char *key)
{
    for (int i = 0; i + 1 < dict->count; i += 2)
        if (dict->items[i]->kind == LKI_PICKLE_STRING && strcmp(dict->items[i]->text, key) == 0)
            return dict->items[i + 1];
    return NULL;
}

static lk_status read_dict(const lki_pickle **out, lki_arena *arena, const char *path)
{
    lk_buffer *buffer = NULL;
    lki_pickled pickled;
    int left = LKI_PICKLE_INSTRUCTIONS;
    LKI_TRY(lki_file_read(&buffer, path));
    /* Texts are copied into the arena, so the file may go. */
    lk_status status =
        lki_unpickle(arena, path, lki_buffer_data(buffer), lki_buffer_nbytes(buffer), &left, &pickled);
    lki_buffer_release(buffer);
    LKI_TRY(status);
    if (pickled.root->kind != LKI_PICKLE_DICT)
        return lki_fail(LK_ERR_FORMAT, "%s: no file of CIFAR: expected a dict", path);
    *out = pickled.root;
    return LK_OK;
}

/* The bytes of the array `data`, which is built with (version, shape, dtype, is Fortran's, bytes). */
static lk_status find_pixels(const uint8_t **out, int64_t *count, const lki_pickle *dict, const char *path)
{
    const lki_pickle *array = find(dict, "data");
    const lki_pickle *state = array && array->kind == LKI_PICKLE_CALL ? array->state : NULL;
    bool fits = state && state->kind == LKI_PICKLE_TUPLE && state->count == 5 &&
                state->items[4]->kind == LKI_PICKLE_STRING && state->items[3]->number == 0;
    int64_t nbytes = fits ? state->items[4]->number : 0;
    if (!fits || nbytes % LKI_CIFAR_PIXELS != 0)
        return lki_fail(LK_ERR_FORMAT,
                        "%s: data: expected an array of %d bytes per picture, as Python 2 pickled it", path,
                        LKI_CIFAR_PIXELS);
    *out = (const uint8_t *)state->items[4]->text;
    *count = nbytes / LKI_CIFAR_PIXELS;
    return LK_OK;
}

static lk_status copy_labels(uint8_t *records, size_t record, int64_t count, const lki_pickle *dict,
                             const char *key, const char *path)
{
    const lki_pickle *labels = find(dict, key);
    if (!labels || labels->kind != LKI_PICKLE_TUPLE || labels->count != count)
        return lki_fail(LK_ERR_FORMAT, "%s: %s: expected a list of %lld labels", path, key, (long long)count);
    for (int64_t i = 0; i < count; i++) {
        const lki_pickle *label = labels->items[i];
        if (label->kind != LKI_PICKLE_INT || label->number < 0 || label->number > UINT8_MAX)
            return lki_fail(LK_ERR_FORMAT, "%s: %s: label %lld is no number from 0 to 255", path, key,
                            (long long)i);
        records[(size_t)i * record] = (uint8_t)label->number;
    }
    return LK_OK;
}

static lk_status make_records(lk_buffer **out, const lki_pickle *dict, const char *path,
                              const char *const *keys)
{
    const uint8_t *pixels = NULL;
    int64_t count = 0;
    int labels = 0;
    while (keys[labels]) labels++;
    size_t record = (size_t)labels + LKI_CIFAR_PIXELS;
    LKI_TRY(find_pixels(&pixels, &count, dict, path));
    lk_buffer *buffer = lki_buffer_create((size_t)count * record, "the pictures of CIFAR");
    if (!buffer) return LK_ERR_NOMEM;
    uint8_t *records = lki_buffer_data(buffer);
    lk_status status = LK_OK;
    for (int k = 0; status == LK_OK && k < labels; k++)
        status = copy_labels(records + k, record, count, dict, keys[k], path);
    for (int64_t i = 0; i < count; i++)
        memcpy(records + (size_t)i * record + labels, pixels + i * LKI_CIFAR_PIXELS, LKI_CIFAR_PIXELS);
    if (status == LK_OK)
        *out = buffer;
    else
        lki_buffer_release(buffer);
    return status;
}

lk_status lki_cifar_unpickle(lk_buffer **out, const char *path, const char *const *keys)
{
    lki_arena arena = {0};
    const lki_pickle *dict = NULL;
    lk_status status = read_dict(&dict, &arena, path);
    if (status == LK_OK) status = make_records(out, dict, path, keys);
    lki_arena_fini(&arena);
    return status;
}

static lk_status join_names(char **out, const lki_pickle *names, const char *path, const char *key)
{
    char *text = lki_strdup("");
    for (int i = 0; text && names && i < names->count; i++) {
        if (names->items[i]->kind != LKI_PICKLE_STRING) names = NULL;
        char *longer = names ? lki_format("%s%s\n", text, names->items[i]->text) : NULL;
        lki_free(text);
        text = longer;
    }
    if (names) {
        *out = text;
        return text ? LK_OK : LK_ERR_NOMEM;
    }
    lki_free(text);
    return lki_fail(LK_ERR_FORMAT, "%s: %s: expected a list of names", path, key);
}

lk_status lki_cifar_unpickle_names(char **out, const char *path, const char *key)
{
    lki_arena arena = {0};
    const lki_pickle *dict = NULL;
    lk_status status = read_dict(&dict, &arena, path);
    if (status == LK_OK) {
        const lki_pickle *names = find(dict, key);
        status = join_names(out, names && names->kind == LKI_PICKLE_TUPLE ? names : NULL, path, key);
    }
    lki_arena_fini(&arena);
    return status;
}
