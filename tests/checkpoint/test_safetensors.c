/* Checkpoint files: round trips, files from elsewhere, damaged files, a full disk and a killed writer. */
#include "lktest.h"

#include <lockstep/checkpoint.h>
#include <lockstep/random.h>

#include "base/atomic_file.h"
#include "base/memory.h"

#include <dirent.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[1200];

static const char *in_scratch(const char *folder, const char *name)
{
    snprintf(path, sizeof path, "%s/%s", lkt_scratch_folder(folder), name);
    return path;
}

static int count_files(const char *file)
{
    char folder[1200];
    int count = 0;
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(file, '/') - file), file);
    DIR *dir = opendir(folder);
    for (struct dirent *entry; (entry = readdir(dir));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return count;
}

static lk_state_dict *every_dtype(void)
{
    lk_state_dict *dict = lk_state_dict_create();
#define X(symbol, name, nbytes)                                                                              \
    {                                                                                                        \
        lk_tensor *tensor = lk_tensor_create(symbol, LK_SHAPE(3, 5));                                        \
        for (int i = 0; i < 15; i++) lk_tensor_set(tensor, i, i % 7);                                        \
        lkt_ok(lk_state_dict_put(dict, "tensor." name, tensor));                                             \
    }
    LK_DTYPE_LIST(X)
#undef X
    lkt_ok(lk_state_dict_put(dict, "empty", lk_tensor_create(LK_F32, LK_SHAPE(0, 4))));
    lkt_ok(lk_state_dict_put_i64(dict, "epoch", INT64_MIN + 1));
    lkt_ok(lk_state_dict_put_f64(dict, "best", 0.1));
    lkt_ok(lk_state_dict_put_string(dict, "seed", "4\n2 \"é\""));
    return dict;
}

static void a_round_trip_keeps_every_bit(void **state)
{
    (void)state;
    const char *file = in_scratch("safetensors", "all.safetensors");
    lk_state_dict *dict = every_dtype();
    lkt_ok(lk_save_safetensors(file, dict));
    lk_state_dict *loaded = lk_load_safetensors(file);
    lkt_not_null(loaded);
    assert_int_equal(lk_state_dict_count(loaded), lk_state_dict_count(dict));
    for (int64_t i = 0; i < lk_state_dict_count(dict); i++) {
        const lk_tensor *a = lk_state_dict_tensor(dict, i), *b = lk_state_dict_tensor(loaded, i);
        assert_string_equal(lk_state_dict_name(loaded, i), lk_state_dict_name(dict, i));
        assert_int_equal(a->dtype, b->dtype);
        assert_true(lk_shape_equal(a->shape, b->shape));
        assert_memory_equal(a->data, b->data, lk_tensor_nbytes(a));
    }
    int64_t epoch;
    double best;
    lkt_ok(lk_state_dict_get_i64(loaded, "epoch", &epoch));
    lkt_ok(lk_state_dict_get_f64(loaded, "best", &best));
    assert_true(epoch == INT64_MIN + 1);
    lkt_close(best, 0.1, 0);
    assert_string_equal(lk_state_dict_get_string(loaded, "seed"), "4\n2 \"é\"");
    /* A loaded tensor can be written to; the file stays as it is. */
    lk_tensor_set(lk_state_dict_get(loaded, "tensor.f32"), 0, 99);
    lk_state_dict *again = lk_load_safetensors(file);
    lkt_not_null(again);
    lkt_close(lk_tensor_get(lk_state_dict_get(again, "tensor.f32"), 0), 0, 0);
    /* A loaded dict can be saved over its own file. */
    lkt_ok(lk_save_safetensors(file, loaded));
    lk_state_dict_free(again);
    again = lk_load_safetensors(file);
    lkt_close(lk_tensor_get(lk_state_dict_get(again, "tensor.f32"), 0), 99, 0);
    lk_state_dict_free(again);
    lk_state_dict_free(loaded);
    lk_state_dict_free(dict);
}

static void views_are_saved_as_they_look(void **state)
{
    (void)state;
    const char *file = in_scratch("safetensors", "view.safetensors");
    lk_state_dict *dict = lk_state_dict_create();
    lk_tensor *tensor = lk_tensor_from(LK_F32, LK_SHAPE(2, 3), (float[]){1, 2, 3, 4, 5, 6});
    lkt_ok(lk_state_dict_put(dict, "t", lk_tensor_permute(tensor, (int[]){1, 0})));
    lk_tensor_free(tensor);
    lkt_ok(lk_save_safetensors(file, dict));
    lk_state_dict *loaded = lk_load_safetensors(file);
    lkt_not_null(loaded);
    assert_memory_equal(lk_state_dict_get(loaded, "t")->data, ((float[]){1, 4, 2, 5, 3, 6}), 24);
    char a[LK_HASH_LENGTH + 1], b[LK_HASH_LENGTH + 1];
    lkt_ok(lk_weights_hash(dict, a));
    lkt_ok(lk_weights_hash(loaded, b));
    assert_string_equal(a, b);
    lk_state_dict_free(loaded);
    lk_state_dict_free(dict);
}

static void the_hash_is_of_the_content(void **state)
{
    (void)state;
    char a[LK_HASH_LENGTH + 1], b[LK_HASH_LENGTH + 1];
    lk_state_dict *one = lk_state_dict_create(), *two = lk_state_dict_create();
    lkt_ok(lk_state_dict_put_i64(one, "x", 1));
    lkt_ok(lk_state_dict_put_i64(one, "y", 2));
    lkt_ok(lk_state_dict_put_i64(two, "y", 2));
    lkt_ok(lk_state_dict_put_i64(two, "x", 7));
    lkt_ok(lk_state_dict_put_i64(two, "x", 1)); /* replaces */
    lkt_ok(lk_state_dict_put_string(two, "note", "of no weight"));
    assert_int_equal(lk_state_dict_count(two), 2);
    lkt_ok(lk_weights_hash(one, a));
    lkt_ok(lk_weights_hash(two, b));
    assert_string_equal(a, b);
    assert_int_equal(strlen(a), 64);
    /* Python: sha256(b"".join(n + b"\0i64\0" + b"0,\0" + pack("<q", v) for n, v in ((b"x", 1), (b"y", 2))))
     */
    assert_string_equal(a, "0699c3faa91919d99f451e3c83ba2cdb91a5628657c4ec5028e267f80a201ec2");
    lkt_ok(
        lk_state_dict_put(two, "y", lk_tensor_from(LK_I64, LK_SHAPE(1), (int64_t[]){2}))); /* another shape */
    lkt_ok(lk_weights_hash(two, b));
    assert_string_not_equal(a, b);
    lk_state_dict_free(one);
    lk_state_dict_free(two);
}

static void python_reads_ours_and_we_read_pythons(void **state)
{
    (void)state;
    char command[4000], line[256], expected[256];
    if (system("/usr/bin/python3 -c 'import numpy' 2>/dev/null") != 0) {
        print_message("skipped: /usr/bin/python3 has no numpy\n");
        skip();
    }
    const char *file = in_scratch("safetensors", "python.safetensors");
    lk_state_dict *dict = every_dtype();
    lkt_ok(lk_save_safetensors(file, dict));
    snprintf(command, sizeof command, "/usr/bin/python3 '%s/tests/oracle/safetensors_check.py' read '%s'",
             LK_SOURCE_DIR, file);
    FILE *pipe = popen(command, "r");
    for (int i = 0; i < 8; i++) {
        static const char *const names[] = {"f32 F32", "f64 F64", "bf16 BF16", "f16 F16",
                                            "i64 I64", "i32 I32", "u8 U8",     "bool BOOL"};
        assert_non_null(fgets(line, sizeof line, pipe));
        snprintf(expected, sizeof expected, "tensor.%s 3x5 %s\n", names[i], i == 7 ? "12.0" : "42.0");
        assert_string_equal(line, expected);
    }
    while (fgets(line, sizeof line, pipe)) {
    }
    assert_int_equal(pclose(pipe), 0);
    lk_state_dict_free(dict);
    snprintf(command, sizeof command, "/usr/bin/python3 '%s/tests/oracle/safetensors_check.py' write '%s'",
             LK_SOURCE_DIR, file);
    assert_int_equal(system(command), 0);
    dict = lk_load_safetensors(file);
    lkt_not_null(dict);
    static const char *const order[] = {"u8", "f32", "f64", "f16", "bf16", "i64", "i32"};
    for (int i = 0; i < 7; i++)
        for (int j = 0; j < 3; j++) lkt_close(lk_tensor_get(lk_state_dict_get(dict, order[i]), j), i + j, 0);
    assert_string_equal(lk_state_dict_get_string(dict, "author"), "nobody");
    lk_state_dict_free(dict);
}

static void write_raw(const char *file, uint64_t length, const char *header, const char *data, size_t nbytes)
{
    FILE *out = fopen(file, "wb");
    fwrite(&length, 8, 1, out);
    fwrite(header, 1, strlen(header), out);
    fwrite(data, 1, nbytes, out);
    fclose(out);
}

static void malformed_files_give_one_line(void **state)
{
    (void)state;
    static const struct {
        const char *header, *fragment;
    } cases[] = {
        {"{\"a\":{\"dtype\":\"I16\",\"shape\":[2],\"data_offsets\":[0,4]}}",
         "tensor \"a\": dtype I16 is not supported"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", "needs 8 bytes, the file has 4"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", "\"a\": ends at byte 8 of 4"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", "data_offsets are not"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}", "data_offsets are not"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", "data_offsets are not"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}",
         "dimension 0 of the shape is no count"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}",
         "dimension 0 of the shape is no count"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", "9 dimensions"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4611686018427387904],\"data_offsets\":[0,"
         "4]}}",
         "larger than any"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", "\"a\": no dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", "\"a\": no shape"},
        {"{\"a\":7}", "no description"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},\"b\":{\"dtype\":\"U8\",\"shape\":["
         "2],\"data_offsets\":[2,4]}}",
         "1 bytes before tensor \"b\" belong to no tensor"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},\"b\":{\"dtype\":\"U8\",\"shape\":["
         "2],\"data_offsets\":[2,4]}}",
         "\"b\" overlaps tensor \"a\""},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}",
         "1 bytes at the end belong to no tensor"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"U8\",\"shape\":["
         "4],\"data_offsets\":[0,4]}}",
         "duplicate"},
        {"{\"a\":", "malformed header"},
        {"[1]", "does not start with {"},
        {"{\"__metadata__\":3,\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
         "__metadata__ is no object"},
        {"{\"__metadata__\":{\"x\":3},\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
         "\"x\" is no string"},
        {"{\"__metadata__\":{\"crc32c:b\":\"00\"},\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,"
         "4]}}",
         "\"b\", which is missing"},
    };
    const char *file = in_scratch("safetensors", "bad.safetensors");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_raw(file, strlen(cases[i].header), cases[i].header, "abcd", 4);
        assert_null(lk_load_safetensors(file));
        lkt_contains(lk_error(), "bad.safetensors: ");
        lkt_contains(lk_error(), cases[i].fragment);
    }
    write_raw(file, 1000, "{}", "", 0);
    assert_null(lk_load_safetensors(file));
    lkt_contains(lk_error(), "truncated: the header should have 1000 bytes, there are 2");
    write_raw(file, UINT64_MAX, "{}", "", 0);
    assert_null(lk_load_safetensors(file));
    lkt_contains(lk_error(), "too long");
    assert_null(lk_load_safetensors("/nowhere/x.safetensors"));
    lkt_contains(lk_error(), "/nowhere/x.safetensors: no such file");
    assert_null(lk_load_safetensors("/tmp"));
    lkt_contains(lk_error(), "is no regular file");
    write_raw(file, 2, "{}", "", 0); /* nothing in it, and right */
    lk_state_dict *dict = lk_load_safetensors(file);
    lkt_not_null(dict);
    lk_state_dict_free(dict);
}

static void every_truncation_and_every_flipped_bit_is_noticed(void **state)
{
    (void)state;
    const char *file = in_scratch("safetensors", "fuzz.safetensors");
    lk_state_dict *dict = lk_state_dict_create();
    lkt_ok(lk_state_dict_put(dict, "w", lk_tensor_from(LK_F32, LK_SHAPE(4), (float[]){1, 2, 3, 4})));
    lkt_ok(lk_state_dict_put_i64(dict, "n", 5));
    lkt_ok(lk_save_safetensors(file, dict));
    char *bytes;
    size_t nbytes;
    lkt_ok(lki_read_file(&bytes, &nbytes, file));
    for (size_t length = 0; length < nbytes; length++) {
        lkt_ok(lki_write_file_atomic(file, bytes, length));
        assert_null(lk_load_safetensors(file));
    }
    size_t data_nbytes = 4 * 4 + 8;
    for (size_t bit = 0; bit < nbytes * 8; bit += 3) {
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        FILE *out = fopen(file, "wb");
        fwrite(bytes, 1, nbytes, out);
        fclose(out);
        lk_state_dict *loaded =
            lk_load_safetensors(file); /* in the header a flip may be harmless; it must not crash */
        if (bit / 8 >= nbytes - data_nbytes) {
            assert_null(loaded);
            lkt_contains(lk_error(), "damaged: its checksum is");
        }
        lk_state_dict_free(loaded);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
    }
    lki_free(bytes);
    lk_state_dict_free(dict);
}

/* Runs in a child whose files may not grow past 64 KiB: the same as a disk that is full in the middle of a
 * write. */
static int save_with_little_room(const char *file)
{
    struct rlimit limit = {65536, 65536};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    lk_state_dict *dict = lk_state_dict_create();
    lk_state_dict_put(dict, "w", lk_tensor_create(LK_F32, LK_SHAPE(100000)));
    lk_status status = lk_save_safetensors(file, dict);
    lk_state_dict_free(dict);
    if (status != LK_ERR_IO) return 1;
    if (!strstr(lk_error(), file) || !strstr(lk_error(), "could not write: File too large")) return 2;
    return 0;
}

static void a_full_disk_leaves_the_previous_file(void **state)
{
    (void)state;
    const char *file = in_scratch("safetensors", "full.safetensors");
    int status;
    lk_state_dict *dict = lk_state_dict_create();
    lkt_ok(lk_state_dict_put_i64(dict, "n", 5));
    lkt_ok(lk_save_safetensors(file, dict));
    pid_t child = fork();
    if (child == 0) _exit(save_with_little_room(file));
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(count_files(file), 1);
    lk_state_dict *loaded = lk_load_safetensors(file);
    lkt_not_null(loaded);
    lk_state_dict_free(loaded);
    lk_state_dict_free(dict);
}

static void no_space_left_on_device(void **state)
{
    (void)state;
    char folder[1100], file[1200];
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("small-disk"));
    if (mount("tmpfs", folder, "tmpfs", 0, "size=128k") != 0) {
        print_message("skipped: only root may mount a small file system\n");
        skip();
    }
    snprintf(file, sizeof file, "%s/w.safetensors", folder);
    lk_state_dict *dict = lk_state_dict_create();
    lk_status first = lk_state_dict_put_i64(dict, "n", 5);
    if (first == LK_OK) first = lk_save_safetensors(file, dict);
    lk_state_dict_put(dict, "w", lk_tensor_create(LK_F32, LK_SHAPE(100000)));
    lk_status second = lk_save_safetensors(file, dict);
    char sentence[1100];
    snprintf(sentence, sizeof sentence, "%s", lk_error());
    lk_state_dict *loaded = lk_load_safetensors(file);
    int files = count_files(file);
    bool whole = loaded && lk_state_dict_count(loaded) == 1;
    lk_state_dict_free(loaded);
    lk_state_dict_free(dict);
    umount(folder);
    assert_int_equal(first, LK_OK);
    assert_int_equal(second, LK_ERR_IO);
    lkt_contains(sentence, "w.safetensors: could not write: No space left on device");
    assert_int_equal(files, 1);
    assert_true(whole);
}

static void a_killed_writer_leaves_a_whole_file(void **state)
{
    (void)state;
    const char *file = in_scratch("safetensors", "killed.safetensors");
    for (int round = 0; round < 12; round++) {
        pid_t child = fork();
        if (child == 0) {
            lk_state_dict *dict = lk_state_dict_create();
            lk_state_dict_put(dict, "w", lk_tensor_create(LK_F32, LK_SHAPE(200000)));
            for (int64_t i = 0;; i++) {
                lk_tensor_set(lk_state_dict_get(dict, "w"), i % 200000, (double)i);
                if (lk_save_safetensors(file, dict) != LK_OK) _exit(1);
            }
        }
        struct stat info;
        while (stat(file, &info) != 0) usleep(500);
        usleep((useconds_t)(700 * (round + 1)));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        lk_state_dict *dict = lk_load_safetensors(file);
        lkt_not_null(dict);
        assert_int_equal(lk_tensor_count(lk_state_dict_get(dict, "w")), 200000);
        lk_state_dict_free(dict);
    }
}

static void unwritable_places(void **state)
{
    (void)state;
    lk_state_dict *dict = lk_state_dict_create();
    lkt_fails(lk_save_safetensors("/nowhere/x.safetensors", dict), LK_ERR_IO,
              "/nowhere/x.safetensors: could not create: No such file or directory");
    lkt_ok(lk_state_dict_put_string(dict, "bad", "\xff\xfe"));
    lkt_fails(lk_save_safetensors(in_scratch("safetensors", "x.safetensors"), dict), LK_ERR_INVALID,
              "not valid UTF-8");
    assert_int_equal(count_files(path), 0);
    lk_state_dict_free(dict);
}

static void the_dict_itself(void **state)
{
    (void)state;
    lk_state_dict *dict = lk_state_dict_create();
    char name[64];
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "layer.%d.weight", i);
        lkt_ok(lk_state_dict_put_i64(dict, name, i));
    }
    for (int i = 0; i < 1000; i++) {
        int64_t value;
        snprintf(name, sizeof name, "layer.%d.weight", i);
        lkt_ok(lk_state_dict_get_i64(dict, name, &value));
        assert_int_equal(value, i);
        assert_string_equal(lk_state_dict_name(dict, i), name);
    }
    assert_null(lk_state_dict_get(dict, "layer.12.bias"));
    lkt_contains(lk_error(), "no tensor named \"layer.12.bias\"; there are \"layer.12.weight\"");
    assert_null(lk_state_dict_get_string(dict, "x"));
    lkt_contains(lk_error(), "no string named \"x\"");
    lk_tensor *two = lk_tensor_create(LK_F32, LK_SHAPE(2));
    lkt_fails(lk_state_dict_copy_to(dict, "layer.1.weight", two), LK_ERR_SHAPE,
              "tensor \"layer.1.weight\": shape () does not fit into (2,)");
    lkt_fails(lk_state_dict_put(dict, "__metadata__", two), LK_ERR_INVALID, "cannot be named");
    lkt_ok(lk_state_dict_put(dict, "two", lk_tensor_create(LK_F32, LK_SHAPE(2))));
    int64_t integer;
    lkt_fails(lk_state_dict_get_i64(dict, "two", &integer), LK_ERR_SHAPE,
              "\"two\": expected one number, found shape (2,)");
    lkt_ok(lk_state_dict_put_f64(dict, "two", 2));
    lkt_fails(lk_state_dict_get_i64(dict, "two", &integer), LK_ERR_DTYPE, "expected an integer");
    lk_state_dict_free(dict);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_round_trip_keeps_every_bit),
        cmocka_unit_test(views_are_saved_as_they_look),
        cmocka_unit_test(the_hash_is_of_the_content),
        cmocka_unit_test(python_reads_ours_and_we_read_pythons),
        cmocka_unit_test(malformed_files_give_one_line),
        cmocka_unit_test(every_truncation_and_every_flipped_bit_is_noticed),
        cmocka_unit_test(a_full_disk_leaves_the_previous_file),
        cmocka_unit_test(no_space_left_on_device),
        cmocka_unit_test(a_killed_writer_leaves_a_whole_file),
        cmocka_unit_test(unwritable_places),
        cmocka_unit_test(the_dict_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
