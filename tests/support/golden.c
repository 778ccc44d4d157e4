#include "golden.h"

#include "lktest.h"

#include <stdarg.h>

struct lkt_golden {
    int count;
    char **names;
    lk_tensor **tensors;
};

static void read_exactly(FILE *file, void *data, size_t nbytes, const char *path)
{
    if (fread(data, 1, nbytes, file) != nbytes) fail_msg("%s: the file ends too early", path);
}

static lk_tensor *read_tensor(FILE *file, char **name, const char *path)
{
    uint16_t length;
    uint8_t head[2];
    read_exactly(file, &length, sizeof length, path);
    *name = calloc(1, (size_t)length + 1);
    read_exactly(file, *name, length, path);
    read_exactly(file, head, sizeof head, path);
    lk_shape shape = {.rank = head[1]};
    for (int i = 0; i < shape.rank; i++) {
        uint32_t dim;
        read_exactly(file, &dim, sizeof dim, path);
        shape.dim[i] = dim;
    }
    lk_tensor *tensor = lk_tensor_create((lk_dtype)head[0], shape);
    lkt_not_null(tensor);
    read_exactly(file, tensor->data, lk_tensor_nbytes(tensor), path);
    return tensor;
}

lkt_golden *lkt_golden_open(const char *name)
{
    char path[1024], magic[4];
    uint32_t count;
    const char *folder = getenv("LOCKSTEP_GOLDEN");
    snprintf(path, sizeof path, "%s/%s", folder ? folder : LK_SOURCE_DIR "/tests/golden", name);
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s: cannot be read", path);
    read_exactly(file, magic, sizeof magic, path);
    if (memcmp(magic, "LKG1", 4) != 0) fail_msg("%s: not a golden file", path);
    read_exactly(file, &count, sizeof count, path);
    lkt_golden *golden = calloc(1, sizeof *golden);
    golden->names = calloc(count, sizeof *golden->names);
    golden->tensors = calloc(count, sizeof *golden->tensors);
    for (; golden->count < (int)count; golden->count++)
        golden->tensors[golden->count] = read_tensor(file, &golden->names[golden->count], path);
    fclose(file);
    return golden;
}

void lkt_golden_free(lkt_golden *golden)
{
    for (int i = 0; i < golden->count; i++) {
        free(golden->names[i]);
        lk_tensor_free(golden->tensors[i]);
    }
    free(golden->names);
    free(golden->tensors);
    free(golden);
}

static const lk_tensor *find(const lkt_golden *golden, const char *name)
{
    for (int i = 0; i < golden->count; i++)
        if (strcmp(golden->names[i], name) == 0) return golden->tensors[i];
    return NULL;
}

const lk_tensor *lkt_golden_find(const lkt_golden *golden, const char *format, ...)
{
    char name[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    return find(golden, name);
}

const lk_tensor *lkt_golden_get(const lkt_golden *golden, const char *format, ...)
{
    char name[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    const lk_tensor *tensor = find(golden, name);
    if (!tensor) fail_msg("the golden file has no \"%s\"", name);
    return tensor;
}

int lkt_golden_count(const lkt_golden *golden)
{
    return golden->count;
}

const char *lkt_golden_name(const lkt_golden *golden, int index)
{
    return golden->names[index];
}

double lkt_largest(const lk_tensor *tensor)
{
    double largest = 0;
    int64_t count = lk_tensor_count(tensor);
    for (int64_t i = 0; i < count; i++) largest = fmax(largest, fabs(lk_tensor_get(tensor, i)));
    return largest;
}

static void same_shape(const lk_tensor *actual, const lk_tensor *expected, const char *what)
{
    char a[128], e[128];
    if (!actual) fail_msg("%s: there is no tensor: %s", what, lk_error());
    if (actual->dtype != expected->dtype)
        fail_msg("%s: %s, expected %s", what, lk_dtype_name(actual->dtype), lk_dtype_name(expected->dtype));
    if (!lk_shape_equal(actual->shape, expected->shape))
        fail_msg("%s: %s, expected %s", what, lk_shape_format(a, sizeof a, actual->shape),
                 lk_shape_format(e, sizeof e, expected->shape));
}

void lkt_same_bits(const lk_tensor *actual, const lk_tensor *expected, const char *what)
{
    same_shape(actual, expected, what);
    if (memcmp(actual->data, expected->data, lk_tensor_nbytes(expected)) == 0) return;
    int64_t count = lk_tensor_count(expected), different = 0, first = -1;
    size_t size = lk_dtype_nbytes(expected->dtype);
    for (int64_t i = count - 1; i >= 0; i--)
        if (memcmp((char *)actual->data + (size_t)i * size, (char *)expected->data + (size_t)i * size,
                   size) != 0)
            different++, first = i;
    fail_msg("%s: %lld of %lld bits differ, first [%lld] = %.9g, expected %.9g", what, (long long)different,
             (long long)count, (long long)first, lk_tensor_get(actual, first),
             lk_tensor_get(expected, first));
}

void lkt_near(const lk_tensor *actual, const lk_tensor *expected, double scale, double tolerance,
              const char *what)
{
    same_shape(actual, expected, what);
    int64_t count = lk_tensor_count(expected), worst = -1;
    double excess = 1;
    for (int64_t i = 0; i < count; i++) {
        double a = lk_tensor_get(actual, i), e = lk_tensor_get(expected, i);
        double share = fabs(a - e) / (tolerance * fmax(fabs(e), scale));
        if (a == e || share <= excess) continue;
        excess = share;
        worst = i;
    }
    if (worst >= 0 || isnan(excess))
        fail_msg("%s: [%lld] = %.9g, expected %.9g: %.2g times the tolerance", what, (long long)worst,
                 lk_tensor_get(actual, worst), lk_tensor_get(expected, worst), excess);
}
