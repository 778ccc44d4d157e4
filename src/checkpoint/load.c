/* Files of weights, whoever wrote them. */
#include <lockstep/checkpoint.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/npz.h"
#include "checkpoint/small_weights.h"
#include "checkpoint/torch_file.h"
#include "checkpoint/torch_load.h"
#include "tensor/mapped.h"

#include <string.h>

typedef enum format { FORMAT_SAFETENSORS, FORMAT_TORCH, FORMAT_NPZ, FORMAT_UNKNOWN } format;

static bool ends_with(const char *path, const char *end)
{
    size_t length = strlen(path), tail = strlen(end);
    return length >= tail && strcmp(path + length - tail, end) == 0;
}

/* The beginning tells, not the name; the name only tells what a damaged file was meant to be. */
static format format_of(const char *path, const lk_buffer *file)
{
    const uint8_t *bytes = lki_buffer_data(file);
    size_t nbytes = lki_buffer_nbytes(file);
    bool is_zip = nbytes >= 4 && !memcmp(bytes, "PK\3\4", 4);
    if (lki_torch_is_legacy(bytes, nbytes)) return FORMAT_TORCH;
    if (is_zip && ends_with(path, ".npz")) return FORMAT_NPZ;
    if (is_zip) {
        lki_zip zip;
        if (lki_zip_open(&zip, path, bytes, nbytes)) return FORMAT_TORCH;
        bool is_npz =
            !lki_zip_has_in_folder(&zip, "data.pkl") && !lki_zip_has_in_folder(&zip, "constants.pkl");
        lki_zip_close(&zip);
        return is_npz ? FORMAT_NPZ : FORMAT_TORCH;
    }
    if (ends_with(path, ".safetensors")) return FORMAT_SAFETENSORS;
    bool is_torch = ends_with(path, ".pth") || ends_with(path, ".pt") || ends_with(path, ".npz");
    if (is_torch || (nbytes && bytes[0] == 0x80 && nbytes > 2 && bytes[nbytes - 1] == '.'))
        return FORMAT_UNKNOWN;
    return FORMAT_SAFETENSORS;
}

lk_state_dict *lk_load_checkpoint(const char *path)
{
    lk_buffer *file = NULL;
    lk_state_dict *dict = NULL;
    if (!path) return lki_fail_null(LK_ERR_INVALID, "load: NULL was passed");
    if (lki_load_file(&file, path)) return NULL;
    switch (format_of(path, file)) {
    case FORMAT_SAFETENSORS: dict = lk_load_safetensors(path); break;
    case FORMAT_TORCH: dict = lki_torch_load_weights(path); break;
    case FORMAT_NPZ: dict = lki_npz_load(path, file); break;
    case FORMAT_UNKNOWN:
        lki_fail(LK_ERR_FORMAT, "%s: neither a safetensors file nor one that torch.save or numpy.savez wrote",
                 path);
    }
    lki_buffer_release(file);
    return lki_widen_weights(dict, path);
}
