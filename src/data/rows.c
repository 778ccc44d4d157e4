#include "data/rows.h"

#include "base/status.h"

#include <lockstep/data.h>

#include <string.h>

/* A row of a shuffled batch is far from the one before, so the processor cannot guess it: ask for it while
 * the row before is being converted. */
enum { CACHE_LINE = 64, MAX_PREFETCHED_LINES = 32 };

static inline void prefetch_row(const char *row, size_t nbytes)
{
    size_t lines = (nbytes + CACHE_LINE - 1) / CACHE_LINE;
    if (lines > MAX_PREFETCHED_LINES) lines = MAX_PREFETCHED_LINES;
    for (size_t i = 0; i < lines; i++) __builtin_prefetch(row + i * CACHE_LINE);
}

/* The conversions, written once and compiled for each instruction set. The three forms give the same bits;
 * the shorter ones leave out steps that change nothing. */
typedef void (*convert_row)(float *restrict out, const uint8_t *restrict in, int64_t width,
                            const lki_rows *rows);

#define DEFINE_CONVERSIONS(suffix, attributes)                                                               \
    attributes static void divide_##suffix(float *restrict out, const uint8_t *restrict in, int64_t width,   \
                                           const lki_rows *rows)                                             \
    {                                                                                                        \
        const float divisor = rows->divisor;                                                                 \
        for (int64_t i = 0; i < width; i++) out[i] = (float)in[i] / divisor;                                 \
    }                                                                                                        \
    attributes static void widen_##suffix(float *restrict out, const uint8_t *restrict in, int64_t width,    \
                                          const lki_rows *rows)                                              \
    {                                                                                                        \
        (void)rows;                                                                                          \
        for (int64_t i = 0; i < width; i++) out[i] = (float)in[i];                                           \
    }                                                                                                        \
    attributes static void normalize_##suffix(float *restrict out, const uint8_t *restrict in,               \
                                              int64_t width, const lki_rows *rows)                           \
    {                                                                                                        \
        const float divisor = rows->divisor, mean = rows->mean, std = rows->std;                             \
        for (int64_t i = 0; i < width; i++) out[i] = ((float)in[i] / divisor - mean) / std;                  \
    }

DEFINE_CONVERSIONS(plain, )
#if defined(__x86_64__)
DEFINE_CONVERSIONS(avx2, __attribute__((target("avx2"))))
DEFINE_CONVERSIONS(avx512, __attribute__((target("avx512f,avx512bw"))))
#endif

static convert_row choose(const lki_rows *rows)
{
    int form = rows->mean != 0 || rows->std != 1 ? 2 : rows->divisor != 1 ? 1 : 0;
#if defined(__x86_64__)
    static const convert_row avx2[] = {widen_avx2, divide_avx2, normalize_avx2};
    static const convert_row avx512[] = {widen_avx512, divide_avx512, normalize_avx512};
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")) return avx512[form];
    if (__builtin_cpu_supports("avx2")) return avx2[form];
#endif
    static const convert_row plain[] = {widen_plain, divide_plain, normalize_plain};
    return plain[form];
}

static void gather_bytes_to_f32(const lki_rows *rows, const int64_t *indices, int64_t count, float *out)
{
    const uint8_t *data = rows->data;
    const convert_row convert = choose(rows);
    const int64_t width = rows->width;
    for (int64_t i = 0; i < count; i++) {
        if (i + 1 < count) prefetch_row((const char *)data + indices[i + 1] * width, (size_t)width);
        convert(out + i * width, data + indices[i] * width, width, rows);
    }
}

static void gather_bytes_to_i64(const lki_rows *rows, const int64_t *indices, int64_t count, int64_t *out)
{
    const uint8_t *data = rows->data;
    const int64_t width = rows->width;
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < width; j++) out[i * width + j] = data[indices[i] * width + j];
}

lk_status lki_row_fields_gather(void *context, const lk_pass *pass, const int64_t *indices, int64_t count,
                                void *const *destinations)
{
    (void)pass;
    const lki_row_fields *fields = context;
    for (int f = 0; f < fields->count; f++)
        lki_rows_gather(&fields->rows[f], indices, count, destinations[f]);
    return LK_OK;
}

void lki_rows_gather_raw(const lki_rows *rows, const int64_t *indices, int64_t count, void *destination)
{
    const size_t nbytes = (size_t)rows->width * lk_dtype_nbytes(rows->stored);
    const char *data = rows->data;
    if (nbytes == sizeof(int64_t)) {
        for (int64_t i = 0; i < count; i++)
            memcpy((char *)destination + i * 8, data + indices[i] * 8, sizeof(int64_t));
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        if (i + 1 < count) prefetch_row(data + (size_t)indices[i + 1] * nbytes, nbytes);
        memcpy((char *)destination + (size_t)i * nbytes, data + (size_t)indices[i] * nbytes, nbytes);
    }
}

void lki_rows_gather(const lki_rows *rows, const int64_t *indices, int64_t count, void *destination)
{
    if (rows->stored == LK_U8 && rows->dtype == LK_F32)
        gather_bytes_to_f32(rows, indices, count, destination);
    else if (rows->stored == LK_U8 && rows->dtype == LK_I64)
        gather_bytes_to_i64(rows, indices, count, destination);
    else
        lki_rows_gather_raw(rows, indices, count, destination);
}

lk_status lki_rows_check(const lki_rows *rows, const char *name)
{
    if (rows->stored == rows->dtype) return LK_OK;
    if (rows->stored == LK_U8 && (rows->dtype == LK_F32 || rows->dtype == LK_I64)) return LK_OK;
    return lki_fail(LK_ERR_DTYPE, "field \"%s\": cannot convert %s to %s while gathering", name,
                    lk_dtype_name(rows->stored), lk_dtype_name(rows->dtype));
}

/* ---- Fields of a batch that are gathered when somebody asks for them ---- */

/* The slot of the ring has room for it, whoever fills it. */
static void gather(const lk_batch *batch, lk_batch_field *field)
{
    lki_rows rows = lki_rows_of(field->rows, field->tensor.dtype);
    lki_rows_gather(&rows, batch->indices, batch->count, field->tensor.data);
    field->rows = NULL;
}

lk_tensor *lk_batch_get(const lk_batch *batch, const char *name)
{
    for (int f = 0; batch && name && f < batch->field_count; f++) {
        lk_batch_field *field = &batch->fields[f];
        if (strcmp(field->name, name) != 0) continue;
        if (field->rows) gather(batch, field);
        return &field->tensor;
    }
    return NULL;
}
