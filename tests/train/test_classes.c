/* Classes by their names: image folders in which a class is missing, and a user's own dataset. */
#include "case.h"

#include "data/dataset.h"
#include "tensor/png.h"

#include <sys/stat.h>

enum { SIDE = 4 };

/* A picture in root/class/number.png that has one colour: red, green or blue. */
static void put_picture(const char *root, const char *class, int number, int colour)
{
    lk_tensor *pixels = lk_tensor_create(LK_U8, LK_SHAPE(SIDE, SIDE, 3));
    for (int i = 0; i < SIDE * SIDE; i++) lk_tensor_set(pixels, 3 * i + colour, 200);
    mkdir(root, 0777);
    mkdir(lkt_path(root, "%s", class), 0777);
    lkt_ok(lki_png_write(lkt_path(root, "%s/%d.png", class, number), pixels));
    lk_tensor_free(pixels);
}

static char train_root[1024], valid_root[1024], other_root[1024];

/* Classes ant, bee, cat to train on, without ant to validate, and with dog elsewhere. Each class has a
 * colour of its own. */
static void make_folders(const char *name)
{
    const char *folder = lkt_scratch_folder(name);
    snprintf(train_root, sizeof train_root, "%s/train", folder);
    snprintf(valid_root, sizeof valid_root, "%s/valid", folder);
    snprintf(other_root, sizeof other_root, "%s/other", folder);
    for (int i = 0; i < 4; i++) {
        put_picture(train_root, "ant", i, 0);
        put_picture(train_root, "bee", i, 1);
        put_picture(train_root, "cat", i, 2);
        put_picture(valid_root, "bee", i, 1);
        put_picture(valid_root, "cat", i, 2);
        put_picture(other_root, "bee", i, 1);
        put_picture(other_root, "dog", i, 0);
    }
}

static int64_t label_of(lk_dataset *dataset, int64_t index)
{
    float picture[3 * SIDE * SIDE];
    int64_t label;
    lkt_ok(lk_dataset_gather(dataset, NULL, &index, 1, (void *[]){picture, &label}));
    return label;
}

static void test_folders_take_the_classes_of_another(void **state)
{
    (void)state;
    make_folders("classes_of");
    lk_dataset *alone = lk_image_folder(valid_root);
    lkt_not_null(alone);
    assert_int_equal(lk_dataset_class_count(alone), 2);
    assert_string_equal(lk_dataset_class_name(alone, 0), "bee");
    assert_int_equal(label_of(alone, 0), 0);
    lk_dataset_free(alone);
    lk_dataset *valid = lk_image_folder(valid_root, .classes_of = train_root);
    lkt_not_null(valid);
    assert_int_equal(lk_dataset_class_count(valid), 3);
    assert_string_equal(lk_dataset_class_name(valid, 0), "ant");
    assert_int_equal(label_of(valid, 0), 1);
    assert_int_equal(label_of(valid, 7), 2);
    assert_null(lk_dataset_class_name(valid, 3));
    assert_null(lk_dataset_class_name(valid, -1));
    /* What wraps a dataset has its classes. */
    lk_dataset *part = lk_subset(valid, (int64_t[]){5}, 1);
    lkt_not_null(part);
    assert_int_equal(lk_dataset_class_count(part), 3);
    assert_int_equal(label_of(part, 0), 2);
    lk_dataset_free(part);
    assert_null(lk_image_folder(other_root, .classes_of = train_root));
    lkt_contains(lk_error(), "class \"dog\" is not one of the 3 classes of");
}

static lk_module *model(void)
{
    lk_manual_seed(3);
    return lk_sequential(lk_flatten(), lk_linear(3 * SIDE * SIDE, 3));
}

static lk_status train(lk_runner *runner, lk_dataset *train_data, lk_dataset *valid_data, const char *logdir)
{
    return lk_train(runner, .model = model(), .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_sgd(.lr = 0.05),
                    .loaders = lk_loaders({"train", lk_loader(train_data, .batch_size = 4, .shuffle = true)},
                                          {"valid", lk_loader(valid_data, .batch_size = 4)}),
                    .callbacks = lk_callbacks(lk_accuracy_callback()), .num_epochs = 12, .logdir = logdir,
                    .device = "cpu", .no_checkpoints = true);
}

static void test_a_run_numbers_classes_as_its_train_loader(void **state)
{
    (void)state;
    make_folders("classes_run");
    const char *logdir = lkt_path(train_root, "../logs");
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(train(runner, lk_image_folder(train_root), lk_image_folder(valid_root), logdir));
    /* The colour says the class: a model that has learned it is right on both, unless labels are shifted. */
    assert_true(lkt_csv(logdir, "train", 12, "accuracy01") == 1);
    assert_true(lkt_csv(logdir, "valid", 12, "accuracy01") == 1);
    char *text = lkt_read(lkt_path(logdir, "log.txt"));
    lkt_contains(text, "\nvalid: 2 of the 3 classes of train, numbered as there\n");
    free(text);
    lk_runner_free(runner);
}

static void test_an_unknown_class_is_refused(void **state)
{
    (void)state;
    make_folders("classes_unknown");
    lk_runner *runner = lk_supervised_runner();
    lkt_fails(train(runner, lk_image_folder(train_root), lk_image_folder(other_root), NULL), LK_ERR_INVALID,
              "loader \"valid\": it has class \"dog\", which the train loader does not have");
    /* Labels that were turned into vectors cannot be renumbered any more. */
    lk_dataset *hot = lk_transformed(lk_image_folder(valid_root), lk_transforms(lk_one_hot(2)));
    lkt_fails(train(runner, lk_image_folder(train_root), hot, NULL), LK_ERR_INVALID,
              "set classes_of of its image folder");
    lk_runner_free(runner);
    assert_null(lk_concat(lk_image_folder(train_root), lk_image_folder(valid_root)));
    lkt_contains(lk_error(), "dataset 1 has other classes than the first");
}

/* ---- A dataset of the user's own ---- */

static lk_dataset *named_points(const char *const *names, int count, const int64_t *labels)
{
    lk_tensor *features = lk_tensor_create(LK_F32, LK_SHAPE(3, 2));
    lk_dataset *dataset =
        lk_tensor_dataset({"features", features}, {"targets", lk_tensor_from(LK_I64, LK_SHAPE(3), labels)});
    lkt_not_null(dataset);
    lkt_ok(lk_dataset_set_classes(dataset, "targets", names, count));
    return dataset;
}

static void test_own_datasets_name_their_classes(void **state)
{
    (void)state;
    const char *const all[] = {"a", "b", "c"}, *const some[] = {"c", "a"}, *const twice[] = {"a", "a"};
    lk_dataset *train_data = named_points(all, 3, (int64_t[]){0, 1, 2});
    lk_dataset *valid = named_points(some, 2, (int64_t[]){0, 1, 0});
    lk_dataset *renumbered = lki_dataset_relabel(valid, train_data);
    lkt_not_null(renumbered);
    float features[6];
    int64_t labels[3], indices[] = {0, 1, 2};
    lkt_ok(lk_dataset_gather(renumbered, NULL, indices, 3, (void *[]){features, labels}));
    assert_memory_equal(labels, ((int64_t[]){2, 0, 2}), sizeof labels);
    assert_int_equal(lk_dataset_class_count(renumbered), 3);
    lkt_fails(lk_dataset_set_classes(valid, "features", some, 2), LK_ERR_DTYPE, "labels are integers");
    lkt_fails(lk_dataset_set_classes(valid, "labels", some, 2), LK_ERR_NOT_FOUND, "no field \"labels\"");
    lkt_fails(lk_dataset_set_classes(valid, "targets", twice, 2), LK_ERR_INVALID, "two named \"a\"");
    lk_dataset_free(renumbered);
    lk_dataset_free(valid);
    lk_dataset_free(train_data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_folders_take_the_classes_of_another),
        cmocka_unit_test(test_a_run_numbers_classes_as_its_train_loader),
        cmocka_unit_test(test_an_unknown_class_is_refused),
        cmocka_unit_test(test_own_datasets_name_their_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
