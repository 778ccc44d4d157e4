/* Classic data sets from small files made here, archives of the real tar, and pictures of sizes of their own.
 */
#include "lktest.h"

#include <lockstep/vision.h>

#include "base/atomic_file.h"
#include "base/memory.h"
#include "data/tar.h"
#include "tensor/png.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define GOLDEN LK_SOURCE_DIR "/tests/golden/data/"

static char scratch[1000];

static const char *in_scratch(const char *name)
{
    static char paths[4][1200];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
    return path;
}

static void write_bytes(const char *name, const void *bytes, size_t nbytes)
{
    lkt_ok(lki_write_file_atomic(in_scratch(name), bytes, nbytes));
}

static void write_text(const char *name, const char *text)
{
    write_bytes(name, text, strlen(text));
}

static void fails(lk_dataset *dataset, const char *text)
{
    assert_null(dataset);
    lkt_contains(lk_error(), text);
}

/* ---- CIFAR ---- */

static uint8_t pixel(int file, int sample, int k)
{
    return (uint8_t)(k * 3 + sample * 50 + file * 7 + k / 1024);
}

static void write_records(const char *name, int file, int labels, int count)
{
    static uint8_t bytes[4 * 3074];
    uint8_t *at = bytes;
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < labels; k++) *at++ = (uint8_t)(labels == 2 && k == 1 ? 90 + i : (file + i) % 10);
        for (int k = 0; k < 3072; k++) *at++ = pixel(file, i, k);
    }
    write_bytes(name, bytes, (size_t)(at - bytes));
}

static void cifar(void **state)
{
    (void)state;
    static float x[3072];
    int64_t y, index;
    char name[100];
    lkt_shell_in(scratch, "mkdir -p c10/cifar-10-batches-bin c100");
    for (int file = 1; file <= 5; file++) {
        snprintf(name, sizeof name, "c10/cifar-10-batches-bin/data_batch_%d.bin", file);
        write_records(name, file, 1, 1 + file % 3);
    }
    write_records("c10/cifar-10-batches-bin/test_batch.bin", 9, 1, 2);
    lk_dataset *train = lk_cifar10(in_scratch("c10"), .train = true);
    lkt_not_null(train);
    assert_int_equal(lk_dataset_length(train), 2 + 3 + 1 + 2 + 3);
    assert_true(lk_shape_equal(lk_dataset_field(train, 0)->shape, LK_SHAPE(3, 32, 32)));
    index = 7; /* the second sample of the fourth file */
    lkt_ok(lk_dataset_gather(train, NULL, &index, 1, (void *[]){x, &y}));
    assert_int_equal(y, 5);
    for (int k = 0; k < 3072; k++) assert_true(x[k] == (float)pixel(4, 1, k) / 255.0f);
    assert_int_equal(lk_dataset_class_count(train), 0);
    lk_dataset_free(train);
    write_text("c10/cifar-10-batches-bin/batches.meta.txt",
               "airplane\nautomobile\nbird\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n");
    lk_dataset *test = lk_cifar10(in_scratch("c10/cifar-10-batches-bin"));
    lkt_not_null(test);
    assert_int_equal(lk_dataset_length(test), 2);
    assert_string_equal(lk_dataset_class_name(test, 9), "truck");
    lk_dataset_free(test);
    write_records("c100/train.bin", 3, 2, 4);
    for (int coarse = 0; coarse < 2; coarse++) {
        lk_dataset *hundred = lk_cifar100(in_scratch("c100"), .train = true, .coarse = coarse);
        lkt_not_null(hundred);
        index = 2;
        lkt_ok(lk_dataset_gather(hundred, NULL, &index, 1, (void *[]){x, &y}));
        assert_int_equal(y, coarse ? 5 : 92);
        assert_true(x[100] == (float)pixel(3, 2, 100) / 255.0f);
        lk_dataset_free(hundred);
    }
}

static void bad_cifar(void **state)
{
    (void)state;
    lkt_shell_in(scratch, "mkdir -p b10 b100");
    fails(lk_cifar10(in_scratch("b10"), .train = true),
          "CIFAR-10: no data_batch_1.bin to data_batch_5.bin in ");
    fails(lk_cifar10(in_scratch("b10")), "unpack https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz");
    fails(lk_cifar10(in_scratch("b10"), .coarse = true), "only CIFAR-100 has superclasses");
    fails(lk_cifar100(NULL), "no root folder");
    write_text("b10/test_batch.bin", "too short");
    fails(lk_cifar10(in_scratch("b10")), "test_batch.bin: 9 bytes are no whole number of records of 3073");
    write_text("b10/test_batch.bin", "");
    fails(lk_cifar10(in_scratch("b10")), "empty");
    write_records("b10/test_batch.bin", 0, 1, 3);
    write_text("b10/batches.meta.txt", "one\ntwo\n");
    fails(lk_cifar10(in_scratch("b10")), "batches.meta.txt: expected the names of 10 classes");
    /* Records of CIFAR-100 begin with two labels, of which the second goes up to 99. */
    static uint8_t wrong[3074] = {25, 100};
    write_bytes("b100/test.bin", wrong, sizeof wrong);
    fails(lk_cifar100(in_scratch("b100")), "test.bin: offset 1: label 100, expected 0 to 99");
    fails(lk_cifar100(in_scratch("b100"), .coarse = true), "test.bin: offset 0: label 25, expected 0 to 19");
}

/* The Python version, in the folders that torchvision leaves. */
static void pickled_cifar(void **state)
{
    (void)state;
    static float x[3072];
    int64_t y, second = 1;
    lkt_shell_in(scratch, "mkdir -p y/cifar-10-batches-py y/cifar-100-python && "
                          "for i in 1 2 3 4 5; do cp '" GOLDEN
                          "cifar10.pickle' y/cifar-10-batches-py/data_batch_$i; done && "
                          "cp '" GOLDEN "cifar100.pickle' y/cifar-100-python/test && "
                          "cp '" GOLDEN "cifar10_names.pickle' y/cifar-10-batches-py/batches.meta");
    lk_dataset *ten = lk_cifar10(in_scratch("y"), .train = true);
    lkt_not_null(ten);
    assert_int_equal(lk_dataset_length(ten), 10);
    assert_string_equal(lk_dataset_class_name(ten, 6), "frog");
    lkt_ok(lk_dataset_gather(ten, NULL, &second, 1, (void *[]){x, &y}));
    assert_int_equal(y, 9);
    for (int k = 0; k < 3072; k++) assert_true(x[k] == (float)pixel(0, 1, k) / 255.0f);
    lk_dataset_free(ten);
    for (int coarse = 0; coarse < 2; coarse++) {
        lk_dataset *hundred = lk_cifar100(in_scratch("y"), .coarse = coarse);
        lkt_not_null(hundred);
        lkt_ok(lk_dataset_gather(hundred, NULL, &second, 1, (void *[]){x, &y}));
        assert_int_equal(y, coarse ? 3 : 99);
        assert_true(x[3071] == (float)pixel(0, 1, 3071) / 255.0f);
        lk_dataset_free(hundred);
    }
    /* Cut anywhere, a file is refused by its name. */
    char *bytes;
    size_t nbytes;
    lkt_ok(lki_read_file(&bytes, &nbytes, GOLDEN "cifar100.pickle"));
    for (size_t cut = 1; cut < nbytes; cut += nbytes / 40) {
        write_bytes("y/cifar-100-python/test", bytes, cut);
        fails(lk_cifar100(in_scratch("y")), "cifar-100-python/test: ");
    }
    lki_free(bytes);
    write_text("y/cifar-100-python/test", "(l.");
    fails(lk_cifar100(in_scratch("y")), "no file of CIFAR: expected a dict");
    write_text("y/cifar-100-python/test", "}.");
    fails(lk_cifar100(in_scratch("y")), "data: expected an array of 3072 bytes per picture");
    lkt_shell_in(scratch, "cp '" GOLDEN "cifar10.pickle' y/cifar-100-python/test");
    fails(lk_cifar100(in_scratch("y")), "coarse_labels: expected a list of 2 labels");
    lkt_shell_in(scratch, "cp '" GOLDEN "cifar10.pickle' y/cifar-10-batches-py/batches.meta");
    fails(lk_cifar10(in_scratch("y"), .train = true), "batches.meta: label_names: expected a list of names");
}

/* ---- Like MNIST ---- */

static void like_mnist(void **state)
{
    (void)state;
    unsigned char images[16 + 784] = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 28, 0, 0, 0, 28},
                              labels[9] = {0, 0, 8, 1, 0, 0, 0, 1, 9};
    for (int i = 0; i < 784; i++) images[16 + i] = (unsigned char)i;
    lkt_shell_in(scratch, "mkdir -p f/FashionMNIST/raw f/KMNIST/raw");
    write_bytes("f/FashionMNIST/raw/t10k-images-idx3-ubyte", images, sizeof images);
    write_bytes("f/FashionMNIST/raw/t10k-labels-idx1-ubyte", labels, sizeof labels);
    fails(lk_kmnist(in_scratch("f")), "KMNIST: no t10k-images-idx3-ubyte or t10k-images-idx3-ubyte.gz in ");
    fails(lk_fashion_mnist(in_scratch("f"), .train = true), "FashionMNIST: no train-images-idx3-ubyte");
    fails(lk_fashion_mnist(in_scratch("f"), .catalyst_scaling = true), "use normalize");
    lkt_shell_in(
        scratch,
        "gzip -c f/FashionMNIST/raw/t10k-images-idx3-ubyte > f/KMNIST/raw/t10k-images-idx3-ubyte.gz && "
        "cp f/FashionMNIST/raw/t10k-labels-idx1-ubyte f/KMNIST/raw");
    lk_dataset *both[] = {lk_fashion_mnist(in_scratch("f")), lk_kmnist(in_scratch("f"))};
    for (int d = 0; d < 2; d++) {
        static float x[784];
        int64_t y, zero = 0;
        lkt_not_null(both[d]);
        lkt_ok(lk_dataset_gather(both[d], NULL, &zero, 1, (void *[]){x, &y}));
        assert_int_equal(y, 9);
        for (int i = 0; i < 784; i++) assert_true(x[i] == (float)(i % 256) / 255.0f);
        assert_string_equal(lk_dataset_class_name(both[d], 9), d ? "wo" : "Ankle boot");
        lk_dataset_free(both[d]);
    }
}

/* ---- MovieLens ---- */

static void ratings(void **state)
{
    (void)state;
    lkt_shell_in(scratch, "mkdir -p m/ml-100k");
    fails(lk_movielens(in_scratch("m")), "MovieLens: no ua.base in ");
    lkt_contains(lk_error(), "unpack https://files.grouplens.org/datasets/movielens/ml-100k.zip");
    write_text("m/ml-100k/ua.base", "1\t2\t5\t874965758\n3\t1\t2\t876893171\r\n\n3\t4\t3\t878542960\n");
    write_text("m/ml-100k/ua.test", "2\t6\t4\t1");
    static const float expected[2][3][6] = {{{0, 0, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 4}, {0, 0, 0, 0, 0, 0}},
                                            {{0, 5, 0, 0, 0, 0}, {0, 0, 0, 0, 0, 0}, {2, 0, 0, 3, 0, 0}}};
    for (int train = 0; train < 2; train++) {
        lk_dataset *dataset = lk_movielens(in_scratch("m"), .train = train);
        float x[3][6], y[3][6];
        lkt_not_null(dataset);
        assert_int_equal(lk_dataset_length(dataset), 3);
        lkt_ok(lk_dataset_gather(dataset, NULL, (int64_t[]){0, 1, 2}, 3, (void *[]){x, y}));
        assert_memory_equal(x, expected[train], sizeof x);
        for (int i = 0; i < 18; i++) assert_true(y[i / 6][i % 6] == (x[i / 6][i % 6] > 0));
        lk_dataset_free(dataset);
    }
    lk_dataset *liked = lk_movielens(in_scratch("m"), .train = true, .min_rating = 3);
    float x[6], y[6];
    int64_t last = 2;
    lkt_ok(lk_dataset_gather(liked, NULL, &last, 1, (void *[]){x, y}));
    assert_true(x[0] == 0 && x[3] == 3 && y[0] == 0 && y[3] == 1);
    lk_dataset_free(liked);
    static const char *const broken[] = {"1\t2\t5\n", "1\t2\t5\t8 \n", "0\t2\t5\t8\n", "1,2,5,8\n",
                                         "1\t99999999\t5\t8\n"};
    for (int i = 0; i < 5; i++) {
        char text[100];
        snprintf(text, sizeof text, "1\t1\t1\t1\n%s", broken[i]);
        write_text("m/ml-100k/ua.test", text);
        fails(lk_movielens(in_scratch("m")), "ua.test:2: expected user, item, rating and time");
    }
    write_text("m/ml-100k/ua.test", "9000000\t9000000\t1\t1\n");
    fails(lk_movielens(in_scratch("m")), "9000000 users and 9000000 items are too many for one table");
}

/* ---- Archives ---- */

static void archives(void **state)
{
    (void)state;
    char *bytes;
    size_t nbytes;
    lkt_shell_in(
        scratch,
        "mkdir -p t/in/deep out && printf 0123456789 > t/in/a.bin && head -c 1500 /dev/zero > t/in/b.bin && "
        "printf x > t/in/deep/c && printf x > t/other && ln -s a.bin t/in/link && "
        "tar -C t --format=ustar -cf t.tar in other");
    lkt_ok(lki_read_file(&bytes, &nbytes, in_scratch("t.tar")));
    lkt_ok(lki_untar_folder(in_scratch("out"), "in", "t.tar", bytes, nbytes));
    lkt_shell_in(scratch,
                 "cmp t/in/a.bin out/a.bin && cmp t/in/b.bin out/b.bin && test \"$(ls out | wc -l)\" = 2");
    /* Cut anywhere, the archive is refused: no end, or an entry without its bytes. */
    for (size_t cut = 0; cut < 4096; cut += 100)
        lkt_fails(lki_untar_folder(in_scratch("out"), "in", "t.tar", bytes, cut), LK_ERR_FORMAT, "t.tar: ");
    bytes[150] ^= 1;
    lkt_fails(lki_untar_folder(in_scratch("out"), "in", "t.tar", bytes, nbytes), LK_ERR_FORMAT,
              "offset 0: a damaged header of tar");
    lki_free(bytes);
}

#if LOCKSTEP_HAVE_CURL
/* Nobody answers, and whoever answers with other bytes than the published ones is not believed. */
static void refused_downloads(void **state)
{
    (void)state;
    char mirror[1100];
    lkt_shell_in(scratch, "mkdir -p mirror d && tar -C t -czf mirror/cifar-10-binary.tar.gz in && "
                          "printf x | gzip > mirror/t10k-images-idx3-ubyte.gz");
    snprintf(mirror, sizeof mirror, "http://127.0.0.1:1 file://%s/mirror", scratch);
    setenv("LOCKSTEP_DATASET_MIRRORS", mirror, 1);
    fails(lk_cifar10(in_scratch("d"), .download = true),
          "CIFAR-10: could not download cifar-10-binary.tar.gz");
    lkt_contains(lk_error(), "127.0.0.1:1");
    lkt_contains(lk_error(), "wrong checksum: md5 ");
    fails(lk_kmnist(in_scratch("d"), .download = true),
          "KMNIST: could not download t10k-images-idx3-ubyte.gz");
    unsetenv("LOCKSTEP_DATASET_MIRRORS");
    lkt_shell_in(scratch, "test -z \"$(find d -name '*.bin' -o -name '*ubyte')\"");
}
#endif

/* ---- Pictures of sizes of their own ---- */

#if LOCKSTEP_HAVE_PNG
enum { COUNT = 6 };
static const int64_t heights[COUNT] = {9, 14, 6, 30, 8, 21}, widths[COUNT] = {12, 7, 6, 8, 31, 20};

static lk_tensor *make_picture(int i)
{
    lk_tensor *pixels = lk_tensor_create(LK_U8, LK_SHAPE(heights[i], widths[i], 3));
    for (int64_t k = 0; k < lk_tensor_count(pixels); k++)
        ((uint8_t *)pixels->data)[k] = (uint8_t)((k * k + 31 * k + 17 * i) % 256);
    return pixels;
}

static void write_pictures(void)
{
    char name[100];
    lkt_shell_in(scratch, "mkdir -p p/a p/b");
    for (int i = 0; i < COUNT; i++) {
        lk_tensor *pixels = make_picture(i);
        snprintf(name, sizeof name, "p/%c/%d.png", i < 3 ? 'a' : 'b', i);
        lkt_ok(lki_png_write(in_scratch(name), pixels));
        lk_tensor_free(pixels);
    }
}

/* The picture alone, through the same transforms. */
static void expect_picture(int i, float *out)
{
    lk_tensor *pixels = make_picture(i);
    pixels->shape = LK_SHAPE(1, heights[i], widths[i], 3);
    lk_tensor *one = lk_tensor_from(LK_U8, pixels->shape, pixels->data);
    lk_dataset *dataset =
        lk_transformed(lk_tensor_dataset({"features", one}),
                       lk_transforms(lk_to_tensor(), lk_resize(7), lk_center_crop(6, .width = 7)));
    int64_t zero = 0;
    lkt_not_null(dataset);
    lkt_ok(lk_dataset_gather(dataset, NULL, &zero, 1, (void *[]){out}));
    lk_dataset_free(dataset);
    lk_tensor_free(pixels);
}

static void own_sizes(void **state)
{
    (void)state;
    static float expected[COUNT][126], found[126];
    write_pictures();
    for (int i = 0; i < COUNT; i++) expect_picture(i, expected[i]);
    /* As they are, as a subset, and twice; read by workers. */
    lk_dataset *folder = lk_image_folder(in_scratch("p"));
    lkt_not_null(folder);
    static const int64_t backwards[] = {5, 4, 3, 2, 1, 0};
    lk_dataset *shapes[] = {lk_dataset_share(folder), lk_subset(lk_dataset_share(folder), backwards, COUNT),
                            lk_concat(lk_dataset_share(folder), lk_dataset_share(folder))};
    for (int s = 0; s < 3; s++) {
        lk_dataset *dataset =
            lk_transformed(shapes[s], lk_transforms(lk_resize(7), lk_center_crop(6, .width = 7)));
        lkt_not_null(dataset);
        assert_true(lk_shape_equal(lk_dataset_field(dataset, 0)->shape, LK_SHAPE(3, 6, 7)));
        lk_loader *loader = lk_loader(dataset, .batch_size = 1, .num_workers = s);
        lkt_ok(lk_loader_begin(loader, NULL, NULL));
        for (int64_t i = 0;; i++) {
            lk_batch *batch;
            lkt_ok(lk_loader_next(loader, &batch));
            if (!batch) break;
            int64_t which = s == 1 ? backwards[i] : i % COUNT;
            memcpy(found, lk_batch_get(batch, "features")->data, sizeof found);
            for (int k = 0; k < 126; k++) lkt_close(found[k], expected[which][k], 1e-6);
            assert_int_equal(*(int64_t *)lk_batch_get(batch, "targets")->data, which >= 3);
        }
        lk_loader_free(loader);
    }
    /* Sizes that still differ are refused by the name of the picture. */
    lk_dataset *uneven = lk_transformed(lk_dataset_share(folder), lk_transforms(lk_resize(7)));
    int64_t index = 3, label;
    static float room[3 * 7 * 40];
    lkt_fails(lk_dataset_gather(uneven, NULL, &index, 1, (void *[]){room, &label}), LK_ERR_SHAPE,
              "p/b/3.png: the picture becomes (3, 26, 7), the first one of its dataset (3, 7, 9)");
    lk_dataset_free(uneven);
    lk_dataset *narrow = lk_transformed(folder, lk_transforms(lk_random_crop(7)));
    index = 2;
    lkt_fails(lk_dataset_gather(narrow, NULL, &index, 1, (void *[]){room, &label}), LK_ERR_SHAPE,
              "p/a/2.png: random_crop: a crop of 7x7 from a picture of 6x6");
    lk_dataset_free(narrow);
}
#endif

static int make_scratch(void **state)
{
    (void)state;
    snprintf(scratch, sizeof scratch, "%s", lkt_scratch_folder("data_collections"));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cifar),
        cmocka_unit_test(bad_cifar),
        cmocka_unit_test(pickled_cifar),
        cmocka_unit_test(like_mnist),
        cmocka_unit_test(ratings),
        cmocka_unit_test(archives),
#if LOCKSTEP_HAVE_CURL
        cmocka_unit_test(refused_downloads),
#endif
#if LOCKSTEP_HAVE_PNG
        cmocka_unit_test(own_sizes),
#endif
    };
    return cmocka_run_group_tests(tests, make_scratch, NULL);
}
