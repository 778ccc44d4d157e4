/* bf16 and int8 weights, rounded after the training.
 *
 * int8: each row of a weight (each output of a layer) has its scale, the largest magnitude / 127. A row is
 * the rounded quotients plus 128, as u8, which every format of files has; "NAME.int8_scale" has the scales,
 * and tells that NAME is such a weight. Biases and statistics stay as they are: they are small. */
#include "checkpoint/small_weights.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <string.h>

enum { LEAST_ROW = 4, ZERO_POINT = 128, LARGEST = 127 };

static const char scale_suffix[] = ".int8_scale";

static int64_t row_length(const lk_tensor *t)
{
    return t->shape.rank && t->shape.dim[0] ? lk_tensor_count(t) / t->shape.dim[0] : 0;
}

/* A weight is what a layer multiplies with: two dimensions or more. */
static bool is_weight(const lk_tensor *t)
{
    return lk_dtype_is_float(t->dtype) && t->shape.rank >= 2 && row_length(t) >= LEAST_ROW;
}

static bool quantise_row(const float *row, int64_t count, float *scale, uint8_t *out)
{
    float largest = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!isfinite(row[i])) return false;
        largest = fmaxf(largest, fabsf(row[i]));
    }
    *scale = largest / LARGEST;
    for (int64_t i = 0; i < count; i++) {
        double steps = *scale > 0 ? nearbyint((double)row[i] / (double)*scale) : 0;
        steps = steps > LARGEST ? LARGEST : steps < -LARGEST ? -LARGEST : steps;
        out[i] = (uint8_t)((int)steps + ZERO_POINT);
    }
    return true;
}

static lk_status put_int8(lk_state_dict *out, const char *name, const lk_tensor *weight)
{
    int64_t rows = weight->shape.dim[0], length = row_length(weight);
    LKI_SCOPED char *scale_name = lki_format("%s%s", name, scale_suffix);
    lk_tensor *wide = lk_tensor_cast(weight, LK_F32), *small = lk_tensor_create(LK_U8, weight->shape);
    lk_tensor *scales = lk_tensor_create(LK_F32, LK_SHAPE(rows));
    lk_status status = scale_name && wide && small && scales ? LK_OK : LK_ERR_NOMEM;
    for (int64_t i = 0; !status && i < rows; i++)
        if (!quantise_row((const float *)wide->data + i * length, length, (float *)scales->data + i,
                          (uint8_t *)small->data + i * length))
            status = lki_fail(LK_ERR_NAN, "int8: %s has a weight that is not finite", name);
    lk_tensor_free(wide);
    if (status) {
        lk_tensor_free(small);
        lk_tensor_free(scales);
        return status;
    }
    status = lk_state_dict_put(out, name, small);
    if (!status) return lk_state_dict_put(out, scale_name, scales);
    lk_tensor_free(scales);
    return status;
}

static lk_status put_small(lk_state_dict *out, const char *name, const lk_tensor *t, lk_weight_format format)
{
    if (!is_weight(t)) return lk_state_dict_put(out, name, lk_tensor_view(t));
    if (format == LK_WEIGHTS_INT8) return put_int8(out, name, t);
    return lk_state_dict_put(out, name, lk_tensor_cast(t, LK_BF16));
}

lk_state_dict *lk_state_dict_shrink(const lk_state_dict *dict, lk_weight_format format)
{
    if (!dict) return lki_fail_null(LK_ERR_INVALID, "shrink: NULL was passed");
    if (format != LK_WEIGHTS_BF16 && format != LK_WEIGHTS_INT8)
        return lki_fail_null(LK_ERR_INVALID, "shrink: there is no format %d", (int)format);
    lk_state_dict *out = lk_state_dict_create();
    lk_status status = out ? LK_OK : LK_ERR_NOMEM;
    for (int64_t i = 0; !status && i < lk_state_dict_count(dict); i++)
        status = put_small(out, lk_state_dict_name(dict, i), lk_state_dict_tensor(dict, i), format);
    if (!status) return out;
    lk_state_dict_free(out);
    return NULL;
}

/* ---- Reading ---- */

static const char *suffix_of(const char *name)
{
    size_t length = strlen(name), tail = sizeof scale_suffix - 1;
    return length > tail && !strcmp(name + length - tail, scale_suffix) ? name + length - tail : NULL;
}

static lk_status put_wide(lk_state_dict *out, const char *name, const lk_tensor *small,
                          const lk_tensor *scales, const char *path)
{
    if (small->dtype != LK_U8 || small->shape.rank < 2 || scales->dtype != LK_F32 ||
        scales->shape.rank != 1 || scales->shape.dim[0] != small->shape.dim[0] ||
        !lk_tensor_is_contiguous(small))
        return lki_fail(LK_ERR_FORMAT, "%s: %s: the int8 weights and their scales do not fit", path, name);
    lk_tensor *wide = lk_tensor_create(LK_F32, small->shape);
    if (!wide) return lki_last_status();
    int64_t length = row_length(small);
    const uint8_t *from = small->data;
    float *to = wide->data;
    for (int64_t i = 0; i < lk_tensor_count(small); i++)
        to[i] = (float)((int)from[i] - ZERO_POINT) * ((const float *)scales->data)[i / length];
    return lk_state_dict_put(out, name, wide);
}

static lk_status widen_one(lk_state_dict *out, const lk_state_dict *dict, int64_t index, const char *path)
{
    const char *name = lk_state_dict_name(dict, index), *suffix = suffix_of(name);
    const lk_tensor *tensor = lk_state_dict_tensor(dict, index);
    if (suffix) {
        LKI_SCOPED char *weight = lki_strndup(name, (size_t)(suffix - name));
        if (!weight) return LK_ERR_NOMEM;
        if (lk_state_dict_has(dict, weight)) return LK_OK;
        return lki_fail(LK_ERR_FORMAT, "%s: %s: the weights of these scales are missing", path, name);
    }
    LKI_SCOPED char *scales = lki_format("%s%s", name, scale_suffix);
    if (!scales) return LK_ERR_NOMEM;
    if (lk_state_dict_has(dict, scales))
        return put_wide(out, name, tensor, lk_state_dict_get(dict, scales), path);
    return lk_state_dict_put(out, name, lk_tensor_view(tensor));
}

lk_state_dict *lki_widen_weights(lk_state_dict *dict, const char *path)
{
    bool has_scales = false;
    for (int64_t i = 0; dict && i < lk_state_dict_count(dict); i++)
        has_scales = has_scales || suffix_of(lk_state_dict_name(dict, i));
    if (!has_scales) return dict;
    lk_state_dict *out = lk_state_dict_create();
    lk_status status = out ? LK_OK : LK_ERR_NOMEM;
    for (int64_t i = 0; !status && i < lk_state_dict_count(dict); i++) status = widen_one(out, dict, i, path);
    for (int64_t i = 0; !status && i < lk_state_dict_string_count(dict); i++) {
        const char *name = lk_state_dict_string_name(dict, i);
        status = lk_state_dict_put_string(out, name, lk_state_dict_get_string(dict, name));
    }
    lk_state_dict_free(dict);
    if (!status) return out;
    lk_state_dict_free(out);
    return NULL;
}
