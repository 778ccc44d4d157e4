#include "checkpoint/npz.h"

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/torch_zip.h"
#include "checkpoint/zip_write.h"
#include "tensor/npy.h"

#include <string.h>

static void release_whole(void *data, void *context)
{
    (void)data;
    lki_buffer_release(context);
}

/* A part of a buffer as one of its own. */
static lk_buffer *part_of(lk_buffer *whole, const uint8_t *data, size_t nbytes)
{
    lk_buffer *part = lki_buffer_adopt((void *)data, nbytes, release_whole, lki_buffer_share(whole));
    if (!part) lki_buffer_release(whole);
    return part;
}

static lk_status read_array(lki_zip *zip, lk_buffer *bytes, const char *entry, lk_state_dict *dict)
{
    const uint8_t *data;
    size_t nbytes, length = strlen(entry);
    LKI_TRY(lki_zip_entry(zip, entry, &data, &nbytes));
    LKI_SCOPED char *name = lki_strndup(entry, length - strlen(".npy"));
    LKI_SCOPED char *what = lki_format("%s: %s", zip->path, entry);
    if (!name || !what) return LK_ERR_NOMEM;
    lk_buffer *part = part_of(bytes, data, nbytes);
    if (!part) return lki_last_status();
    lk_tensor *tensor = lki_npy_from(what, part);
    lki_buffer_release(part);
    return lk_state_dict_put(dict, name, tensor);
}

static lk_status read_arrays(lki_zip *zip, lk_buffer *bytes, lk_state_dict *dict)
{
    for (int i = 0; i < zip->count; i++) {
        LKI_SCOPED char *entry = lki_strndup(zip->items[i].name, zip->items[i].name_length);
        if (!entry) return LK_ERR_NOMEM;
        size_t length = strlen(entry);
        if (length <= 4 || strcmp(entry + length - 4, ".npy") != 0 || !lki_is_utf8(entry))
            return lki_fail(LK_ERR_FORMAT, "%s: neither a file of PyTorch's nor of NumPy's", zip->path);
        LKI_TRY(read_array(zip, bytes, entry, dict));
    }
    return zip->count ? LK_OK : lki_fail(LK_ERR_FORMAT, "%s: there is no array in it", zip->path);
}

lk_state_dict *lki_npz_load(const char *path, lk_buffer *bytes)
{
    lki_zip zip;
    if (lki_zip_open(&zip, path, lki_buffer_data(bytes), lki_buffer_nbytes(bytes))) return NULL;
    lk_state_dict *dict = lk_state_dict_create();
    lk_status status = dict ? read_arrays(&zip, bytes, dict) : LK_ERR_NOMEM;
    lki_zip_close(&zip);
    if (status == LK_OK) return dict;
    lk_state_dict_free(dict);
    return NULL;
}

/* NumPy has no bf16: those become f32. */
static lk_status add_array(lki_zip_writer *writer, const char *name, const lk_tensor *tensor)
{
    char header[512];
    lk_tensor *copy = NULL;
    LKI_SCOPED char *entry = lki_format("%s.npy", name);
    if (!entry) return LK_ERR_NOMEM;
    if (tensor->dtype == LK_BF16)
        tensor = copy = lk_tensor_cast(tensor, LK_F32);
    else if (!lk_tensor_is_contiguous(tensor))
        tensor = copy = lk_tensor_clone(tensor);
    if (!tensor) return lki_last_status();
    size_t nbytes = lki_npy_format_header(header, sizeof header, tensor);
    lk_status status =
        lki_zip_writer_add(writer, entry, header, nbytes, tensor->data, lk_tensor_nbytes(tensor));
    lk_tensor_free(copy);
    return status;
}

static lk_status add_arrays(lki_zip_writer *writer, const lk_state_dict *dict)
{
    for (int64_t i = 0; i < lk_state_dict_count(dict); i++)
        LKI_TRY(add_array(writer, lk_state_dict_name(dict, i), lk_state_dict_tensor(dict, i)));
    return LK_OK;
}

lk_status lk_save_npz(const char *path, const lk_state_dict *dict)
{
    lki_zip_writer writer;
    if (!path || !dict) return lki_fail(LK_ERR_INVALID, "save: NULL was passed");
    for (int64_t i = 0; i < lk_state_dict_count(dict); i++) {
        const char *name = lk_state_dict_name(dict, i);
        if (!*name || strchr(name, '/') || strchr(name, '\\') || !lki_is_utf8(name))
            return lki_fail(LK_ERR_INVALID, "%s: a tensor named \"%s\" cannot stand in a .npz file", path,
                            name);
    }
    LKI_TRY(lki_zip_writer_begin(&writer, path));
    return lki_zip_writer_end(&writer, add_arrays(&writer, dict));
}
