/* Files of torch.save: their values, and that damage to them is a sentence. */
#include "lktest.h"

#include "base/memory.h"
#include "checkpoint/pickle.h"
#include "checkpoint/torch_load.h"
#include "checkpoint/torch_zip.h"

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

/* Damaged in one to three places, or cut off: read or refused, never more. */
static void test_damaged_files(void **state)
{
    (void)state;
    static uint8_t whole[65536], damaged[65536];
    uint64_t random = 1;
    char path[1200];
    size_t nbytes = read_bytes(GOLDEN "/nested.pt", whole, sizeof whole);
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

/* The checksum keeps most damage away from the pickle: here it comes through. */
static void test_damaged_pickles(void **state)
{
    (void)state;
    static uint8_t whole[65536], damaged[65536];
    uint64_t random = 2;
    const uint8_t *pickle;
    size_t nbytes = read_bytes(GOLDEN "/nested.pt", whole, sizeof whole), length;
    lki_zip zip;
    lkt_ok(lki_zip_open(&zip, "golden", whole, nbytes));
    lkt_ok(lki_zip_entry(&zip, "data.pkl", &pickle, &length));
    for (int round = 0; round < 20000; round++) {
        lki_arena arena = {0};
        lki_pickle *root = NULL;
        memcpy(damaged, pickle, length);
        for (uint32_t i = 0, changes = 1 + draw(&random, 4); i < changes; i++)
            damaged[draw(&random, (uint32_t)length)] = (uint8_t)draw(&random, 256);
        size_t cut = round % 7 ? length : draw(&random, (uint32_t)length);
        if (lki_unpickle(&arena, "damaged", damaged, cut, &root)) lkt_contains(lk_error(), "damaged");
        lki_arena_fini(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_tensor),      cmocka_unit_test(test_nested_tensors),
        cmocka_unit_test(test_other_files),     cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_damaged_pickles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
