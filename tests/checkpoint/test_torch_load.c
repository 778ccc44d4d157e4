/* Files of torch.save: their values, and that damage to them is a sentence. */
#include "lktest.h"

#include "base/memory.h"
#include "checkpoint/pickle.h"
#include "checkpoint/torch_load.h"
#include "checkpoint/torch_zip.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define GOLDEN LK_SOURCE_DIR "/tests/golden/checkpoint"

static void check_values(const lk_state_dict *dict, const char *name, lk_dtype dtype, lk_shape shape,
                         const double *values)
{
    const lk_tensor *tensor = lk_state_dict_get(dict, name);
    lkt_not_null(tensor);
    assert_int_equal(tensor->dtype, dtype);
    assert_true(lk_shape_equal(tensor->shape, shape));
    for (int64_t i = 0; i < lk_shape_count(shape); i++) lkt_close(lk_tensor_get(tensor, i), values[i], 1e-12);
}

#define CHECK(name, dtype, shape, ...) check_values(dict, name, dtype, shape, (const double[]){__VA_ARGS__})

static void test_one_tensor(void **state)
{
    (void)state;
    lk_state_dict *dict = lki_torch_load(GOLDEN "/tensor.pt");
    lkt_not_null(dict);
    CHECK("", LK_F32, LK_SHAPE(2, 3), 0, .5, 1, 1.5, 2, 2.5);
    lk_state_dict_free(dict);
}

static void test_nested_tensors(void **state)
{
    (void)state;
    lk_state_dict *dict = lki_torch_load(GOLDEN "/nested.pt");
    lkt_not_null(dict);
    CHECK("list.0", LK_I64, lk_scalar_shape(), 7);
    CHECK("list.1", LK_F64, LK_SHAPE(2), 1.0 / 3, 1.0 / 3);
    CHECK("half", LK_F16, LK_SHAPE(2), 1.5, -2);
    CHECK("bfloat", LK_BF16, LK_SHAPE(2), 1.5, -2);
    CHECK("bool", LK_BOOL, LK_SHAPE(3), 1, 0, 1);
    CHECK("byte", LK_U8, LK_SHAPE(2), 1, 255);
    CHECK("int", LK_I32, LK_SHAPE(1), -5);
    CHECK("part", LK_I64, LK_SHAPE(2, 2), 16, 18, 20, 22);
    CHECK("permuted", LK_I64, LK_SHAPE(4, 2, 3), 0, 4, 8, 12, 16, 20, 1, 5, 9, 13, 17, 21, 2, 6, 10, 14, 18,
          22, 3, 7, 11, 15, 19, 23);
    CHECK("parameter", LK_F32, LK_SHAPE(1), 4);
    CHECK("empty", LK_F32, LK_SHAPE(0, 3), 0);
    CHECK("model.1.running_var", LK_F32, LK_SHAPE(1), 1);
    assert_true(lk_state_dict_has(dict, "model.0.weight"));
    assert_false(lk_state_dict_has(dict, "epoch"));
    lk_state_dict_free(dict);
}

/* What cannot be a tensor is left out, and hides none. */
static void test_values_beside_tensors(void **state)
{
    (void)state;
    lk_state_dict *dict = lki_torch_load(GOLDEN "/other_values.pt");
    lkt_not_null(dict);
    CHECK("recent.1", LK_F32, LK_SHAPE(2), 1, 2);
    CHECK("one.0", LK_I64, lk_scalar_shape(), 3);
    CHECK("last", LK_F32, LK_SHAPE(1), 4);
    assert_int_equal(lk_state_dict_count(dict), 3);
    lk_state_dict_free(dict);
}

static void test_other_files(void **state)
{
    (void)state;
    static const struct {
        const char *path, *message;
    } cases[] = {
        {"/no/such.pt", "/no/such.pt"},
        {GOLDEN "/no_tensor.pt", "there is no tensor in it"},
        {GOLDEN "/int8.pt", "torch CharStorage, which is not read here"},
        {LK_SOURCE_DIR "/tests/checkpoint/test_torch_load.c", "not a file of PyTorch's"},
        {"/dev/null", "/dev/null"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_null(lki_torch_load(cases[i].path));
        lkt_contains(lk_error(), cases[i].message);
    }
}

static size_t read_bytes(const char *path, uint8_t *bytes, size_t capacity)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t nbytes = fread(bytes, 1, capacity, file);
    fclose(file);
    return nbytes;
}

static uint32_t draw(uint64_t *random, uint32_t limit)
{
    *random = *random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*random >> 33) % limit;
}

static uint64_t load(const uint8_t *at, int nbytes)
{
    uint64_t value = 0;
    for (int i = nbytes - 1; i >= 0; i--) value = value << 8 | at[i];
    return value;
}

static void store(uint8_t *at, uint64_t value, int nbytes)
{
    for (int i = 0; i < nbytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}

/* An entry of the directory whose sizes and place stand in the field for large files alone. */
static size_t put_large_entry(uint8_t *out, const uint8_t *entry, uint64_t base)
{
    size_t name = load(entry + 28, 2);
    memcpy(out, entry, 46 + name);
    store(out + 30, 28, 2); /* of extra fields */
    store(out + 32, 0, 2);
    uint8_t *extra = out + 46 + name;
    store(extra, 1, 2);
    store(extra + 2, 24, 2);
    store(extra + 4, load(entry + 24, 4), 8);
    store(extra + 12, load(entry + 20, 4), 8);
    store(extra + 20, base + load(entry + 42, 4), 8);
    store(out + 20, UINT32_MAX, 4);
    store(out + 24, UINT32_MAX, 4);
    store(out + 42, UINT32_MAX, 4);
    return 46 + name + 28;
}

/* The archive as it is written where it begins `base` bytes into a file of more than 4 GiB: places and sizes
 * of 64 bits. Returns its length. */
static size_t make_large(uint8_t *out, const uint8_t *archive, size_t nbytes, uint64_t base)
{
    const uint8_t *end = archive + nbytes - 22;
    size_t directory = load(end + 16, 4), directory_end = directory + load(end + 12, 4), used = directory;
    memcpy(out, archive, directory);
    for (size_t at = directory; at < directory_end;) {
        const uint8_t *entry = archive + at;
        used += put_large_entry(out + used, entry, base);
        at += 46 + load(entry + 28, 2) + load(entry + 30, 2) + load(entry + 32, 2);
    }
    uint8_t *last = out + used; /* the end of large files, where that is, and the usual end */
    memset(last, 0, 56 + 20 + 22);
    store(last, 0x06064b50, 4);
    store(last + 4, 44, 8);
    store(last + 40, used - directory, 8);
    store(last + 48, base + directory, 8);
    store(last + 56, 0x07064b50, 4);
    store(last + 64, base + used, 8);
    store(last + 76, 0x06054b50, 4);
    memset(last + 84, 255, 12);
    return used + 56 + 20 + 22;
}

/* As PyTorch writes files of more than 4 GiB; here all but the end of it is a hole. */
static void test_large_files(void **state)
{
    (void)state;
    static uint8_t whole[65536], large[65536];
    char path[1200];
    size_t nbytes = read_bytes(GOLDEN "/tensor.pt", whole, sizeof whole);
    snprintf(path, sizeof path, "%s/large.pt", lkt_scratch_folder("torch_large"));
    for (int i = 0; i < 2; i++) {
        uint64_t base = i ? (UINT64_C(1) << 32) + 4096 : 0;
        size_t length = make_large(large, whole, nbytes, base);
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
        if (pwrite(fd, large, length, (off_t)base) != (ssize_t)length) {
            print_message("no file of %llu bytes was tried: %s\n", (unsigned long long)base, strerror(errno));
            close(fd);
            continue;
        }
        close(fd);
        lk_state_dict *dict = lki_torch_load(path);
        lkt_not_null(dict);
        CHECK("", LK_F32, LK_SHAPE(2, 3), 0, .5, 1, 1.5, 2, 2.5);
        lk_state_dict_free(dict);
    }
    unlink(path);
}

/* Damaged in one to three places, or cut off: read or refused, never more. */
static void damage_files(const uint8_t *whole, size_t nbytes)
{
    static uint8_t damaged[65536];
    uint64_t random = 1;
    char path[1200];
    snprintf(path, sizeof path, "%s/damaged.pt", lkt_scratch_folder("torch_load"));
    for (int round = 0; round < 600; round++) {
        size_t length = round % 5 ? nbytes : draw(&random, (uint32_t)nbytes);
        memcpy(damaged, whole, nbytes);
        for (uint32_t i = 0, changes = 1 + draw(&random, 3); i < changes; i++)
            damaged[draw(&random, (uint32_t)nbytes)] = (uint8_t)draw(&random, 256);
        FILE *file = fopen(path, "wb");
        fwrite(damaged, 1, length, file);
        fclose(file);
        lk_state_dict_free(lki_torch_load(path));
    }
}

static void test_damaged_files(void **state)
{
    (void)state;
    static uint8_t whole[65536], large[65536];
    size_t nbytes = read_bytes(GOLDEN "/nested.pt", whole, sizeof whole);
    damage_files(whole, nbytes);
    damage_files(large, make_large(large, whole, nbytes, 0));
}

/* The checksum keeps most damage away from the pickle: here it comes through. */
static void damage_pickles(const char *path)
{
    static uint8_t whole[65536], damaged[65536];
    uint64_t random = 2;
    const uint8_t *pickle;
    size_t nbytes = read_bytes(path, whole, sizeof whole), length;
    lki_zip zip;
    lkt_ok(lki_zip_open(&zip, "golden", whole, nbytes));
    lkt_ok(lki_zip_enter_folder(&zip));
    lkt_ok(lki_zip_entry(&zip, "data.pkl", &pickle, &length));
    for (int round = 0; round < 20000; round++) {
        lki_arena arena = {0};
        lki_pickled pickled;
        memcpy(damaged, pickle, length);
        for (uint32_t i = 0, changes = 1 + draw(&random, 4); i < changes; i++)
            damaged[draw(&random, (uint32_t)length)] = (uint8_t)draw(&random, 256);
        size_t cut = round % 7 ? length : draw(&random, (uint32_t)length);
        int left = LKI_PICKLE_INSTRUCTIONS;
        if (lki_unpickle(&arena, "damaged", damaged, cut, &left, &pickled))
            lkt_contains(lk_error(), "damaged");
        lki_arena_fini(&arena);
    }
    lki_zip_close(&zip);
}

static void test_damaged_pickles(void **state)
{
    (void)state;
    damage_pickles(GOLDEN "/nested.pt");
    damage_pickles(GOLDEN "/other_values.pt");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_tensor),
        cmocka_unit_test(test_nested_tensors),
        cmocka_unit_test(test_other_files),
        cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_damaged_pickles),
        cmocka_unit_test(test_large_files),
        cmocka_unit_test(test_values_beside_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
