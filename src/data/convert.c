#include "data/convert.h"

#include "base/number_text.h"
#include "base/status.h"
#include "tensor/element.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>

static bool is_integer(lk_dtype dtype)
{
    return !lk_dtype_is_float(dtype);
}

static int64_t load_integer(lk_dtype dtype, const void *in, int64_t i)
{
    return dtype == LK_I64 ? ((const int64_t *)in)[i] : (int64_t)lki_load(dtype, in, i);
}

/* ---- To floats ---- */

static int64_t f64_to_f32(float *out, const double *in, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        out[i] = (float)in[i];
        if (isinf(out[i]) && !isinf(in[i])) return i;
    }
    return -1;
}

/* Straight from the integer: by way of a double, a large one would be rounded twice. */
static int64_t i64_to_f32(float *out, const int64_t *in, int64_t count)
{
    for (int64_t i = 0; i < count; i++) out[i] = (float)in[i];
    return -1;
}

static int64_t to_float(void *out, lk_dtype to, const void *in, lk_dtype from, int64_t count)
{
    if (to == LK_F32 && from == LK_F64) return f64_to_f32(out, in, count);
    if (to == LK_F32 && from == LK_I64) return i64_to_f32(out, in, count);
    for (int64_t i = 0; i < count; i++) {
        double value = lki_load(from, in, i);
        lki_store(to, out, i, value);
        if (isfinite(value) && !isfinite(lki_load(to, out, i))) return i;
    }
    return -1;
}

/* ---- To integers ---- */

static bool fits(int64_t value, lk_dtype to)
{
    if (to == LK_I32) return value >= INT32_MIN && value <= INT32_MAX;
    if (to == LK_U8) return value >= 0 && value <= UINT8_MAX;
    if (to == LK_BOOL) return value == 0 || value == 1;
    return true;
}

static void store_integer(lk_dtype to, void *out, int64_t i, int64_t value)
{
    if (to == LK_I64)
        ((int64_t *)out)[i] = value;
    else
        lki_store(to, out, i, (double)value);
}

/* 2^63 is the first double that is too large for an i64. */
static bool is_whole(double value)
{
    return value == floor(value) && value >= -0x1p63 && value < 0x1p63;
}

static int64_t to_integer(void *out, lk_dtype to, const void *in, lk_dtype from, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (lk_dtype_is_float(from) && !is_whole(lki_load(from, in, i))) return i;
        int64_t value = lk_dtype_is_float(from) ? (int64_t)lki_load(from, in, i) : load_integer(from, in, i);
        if (!fits(value, to)) return i;
        store_integer(to, out, i, value);
    }
    return -1;
}

int64_t lki_convert(void *out, lk_dtype to, const void *in, lk_dtype from, int64_t count)
{
    return is_integer(to) ? to_integer(out, to, in, from, count) : to_float(out, to, in, from, count);
}

/* ---- Words ---- */

const char *lki_dtype_long_name(lk_dtype dtype)
{
    switch (dtype) {
    case LK_F32: return "float32";
    case LK_F64: return "float64";
    case LK_BF16: return "bfloat16";
    case LK_F16: return "float16";
    case LK_I64: return "int64";
    case LK_I32: return "int32";
    case LK_U8: return "uint8";
    case LK_BOOL: return "bool";
    }
    return "?";
}

lk_status lki_convert_fail(const char *field, int64_t sample, lk_dtype to, const void *in, lk_dtype from,
                           int64_t position)
{
    char value[64];
    if (lk_dtype_is_float(from))
        lki_snprintf(value, sizeof value, "%.9g", lki_load(from, in, position));
    else
        snprintf(value, sizeof value, "%lld", (long long)load_integer(from, in, position));
    return lki_fail(LK_ERR_RANGE, "field \"%s\", sample %lld: %s (%s) cannot be held by %s", field,
                    (long long)sample, value, lki_dtype_long_name(from), lki_dtype_long_name(to));
}
