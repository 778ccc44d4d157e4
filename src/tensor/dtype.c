#include <lockstep/tensor.h>

#include "base/status.h"
#include "tensor/layout.h"

#include <string.h>

size_t lk_dtype_nbytes(lk_dtype dtype)
{
    return lki_dtype_nbytes(dtype);
}

const char *lk_dtype_name(lk_dtype dtype)
{
    static const char *const names[] = {
#define X(symbol, name, nbytes) name,
        LK_DTYPE_LIST(X)
#undef X
    };
    return names[dtype];
}

bool lk_dtype_is_float(lk_dtype dtype)
{
    return lki_dtype_is_float(dtype);
}

lk_status lk_dtype_parse(lk_dtype *out, const char *name)
{
    static const struct {
        const char *name;
        lk_dtype dtype;
    } known[] = {
        {"f32", LK_F32},    {"float32", LK_F32}, {"float", LK_F32},     {"f64", LK_F64},  {"float64", LK_F64},
        {"double", LK_F64}, {"bf16", LK_BF16},   {"bfloat16", LK_BF16}, {"f16", LK_F16},  {"float16", LK_F16},
        {"half", LK_F16},   {"i64", LK_I64},     {"int64", LK_I64},     {"long", LK_I64}, {"i32", LK_I32},
        {"int32", LK_I32},  {"int", LK_I32},     {"u8", LK_U8},         {"uint8", LK_U8}, {"bool", LK_BOOL},
    };
    const char *plain = strncmp(name, "torch.", 6) == 0 ? name + 6 : name;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(known[i].name, plain) == 0) {
            *out = known[i].dtype;
            return LK_OK;
        }
    }
    return lki_fail(LK_ERR_NOT_FOUND,
                    "unknown dtype \"%s\": known are f32, f64, bf16, f16, i64, i32, u8, bool", name);
}
