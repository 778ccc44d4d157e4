/* Datasets and tensors that lie in files, and digits that need none. */
#include "config/components/components.h"

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/torch_load.h"

#include <lockstep/checkpoint.h>
#include <lockstep/data.h>

#include <string.h>

/* "a,b,c" of a list of names; the caller frees it. */
static char *join(lk_args *args, const char *name)
{
    char *text = lki_strdup("");
    for (int i = 0; text && i < lk_arg_count(args, name); i++) {
        char *longer = lki_format("%s%s%s", text, i ? "," : "", lk_arg_string_at(args, name, i));
        lki_free(text);
        text = longer;
    }
    return text;
}

static lk_status build_csv(const lk_component *self, lk_args *args, void **out)
{
    const char *delimiter = lk_arg_string(args, "delimiter");
    LKI_SCOPED char *columns = join(args, "target_columns"), *features = join(args, "feature_columns");
    LKI_SCOPED char *classes = join(args, "classes");
    (void)self;
    if (!columns || !features || !classes) return LK_ERR_NOMEM;
    if (strlen(delimiter) != 1)
        return lki_fail(LK_ERR_CONFIG, "delimiter: expected one character, found \"%.20s\"", delimiter);
    lk_dataset *dataset = lk_csv_dataset(
        lk_arg_string(args, "path"), .delimiter = delimiter[0], .no_header = !lk_arg_bool(args, "header"),
        .target_columns = *columns ? columns : NULL, .class_targets = lk_arg_bool(args, "class_targets"),
        .feature_columns = *features ? features : NULL, .classes = *classes ? classes : NULL);
    return lki_built_with_dtypes(args, dataset, out);
}

static lk_status build_image_folder(const lk_component *self, lk_args *args, void **out)
{
    lk_image_folder_options options = {LK_SIZE(lk_image_folder_options),
                                       .channels = lk_arg_int(args, "channels"),
                                       .classes_of = lk_arg_string(args, "classes_of")};
    int sizes = lk_arg_count(args, "size");
    (void)self;
    if (sizes > 2) return lki_fail(LK_ERR_CONFIG, "size: expected 1 or 2 numbers, found %d", sizes);
    if (sizes > 0) {
        options.height = lk_arg_int_at(args, "size", 0);
        options.width = lk_arg_int_at(args, "size", sizes - 1);
    }
    lk_dataset *dataset = lk_image_folder_with(lk_arg_string(args, "root"), &options);
    return lki_built(lki_transform_dataset(args, dataset), out);
}

static lk_status build_hdf5(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    lk_dataset *dataset =
        lk_hdf5_dataset(lk_arg_string(args, "path"), .features = lk_arg_string(args, "features"),
                        .targets = lk_arg_string(args, "targets"));
    return lki_built_with_dtypes(args, dataset, out);
}

static lk_status build_safetensors(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    lk_dataset *dataset =
        lk_safetensors_dataset(lk_arg_string(args, "path"), .features = lk_arg_string(args, "features"),
                               .targets = lk_arg_string(args, "targets"));
    return lki_built_with_dtypes(args, dataset, out);
}

static lk_status build_digits(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    lk_dataset *dataset =
        lk_synthetic_digits(.train = lk_arg_bool(args, "train"), .count = lk_arg_int64(args, "count"),
                            .seed = (uint64_t)lk_arg_int64(args, "seed"));
    return lki_built(lki_transform_dataset(args, dataset), out);
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && !strcmp(text + length - end_length, end);
}

static void fail_to_pick(const lk_state_dict *dict, const char *path)
{
    int count = (int)lk_state_dict_count(dict);
    if (count == 0)
        lki_fail(LK_ERR_FORMAT, "%s: it has no tensors", path);
    else
        lki_fail(LK_ERR_CONFIG,
                 "%s: it has %d tensors: say which one, as in {_target_: torch.load, f: %s, name: %s}", path,
                 count, path, lk_state_dict_name(dict, 0));
}

/* The one tensor of a file, or the named one of several. */
static lk_tensor *pick_tensor(lk_state_dict *dict, const char *path, const char *name)
{
    lk_tensor *found = NULL;
    if (!dict) return NULL;
    if (name)
        found = lk_state_dict_get(dict, name);
    else if (lk_state_dict_count(dict) == 1)
        found = lk_state_dict_tensor(dict, 0);
    else
        fail_to_pick(dict, path);
    lk_tensor *tensor = found ? lk_tensor_clone(found) : NULL;
    lk_state_dict_free(dict);
    return tensor;
}

lk_tensor *lki_read_tensor(const char *path, const char *name)
{
    if (ends_with(path, ".safetensors")) return pick_tensor(lk_load_safetensors(path), path, name);
    if (ends_with(path, ".pt") || ends_with(path, ".pth"))
        return pick_tensor(lki_torch_load(path), path, name);
    if (ends_with(path, ".h5") || ends_with(path, ".hdf5")) return lk_hdf5_read(path, name);
    if (name) return lki_fail_null(LK_ERR_CONFIG, "name: %s holds one array: leave the name out", path);
    return lk_npy_read(path);
}

static lk_status build_load(const lk_component *self, lk_args *args, void **out)
{
    return lki_built(
        lki_read_tensor(lk_arg_string(args, self->parameters[0].name), lk_arg_string(args, "name")), out);
}

#define TRANSFORM LKI_OBJECTS("transform", TRANSFORM, LKI_OPTIONAL, "what is done to each sample, in order")
#define NAME      LKI_STRING("name", LKI_OPTIONAL, "which one, of a file of several")

static const lk_parameter csv_parameters[] = {
    LKI_STRING("path", LKI_REQUIRED, "the file"),
    LKI_STRINGS("target_columns", LKI_OPTIONAL, "the targets' columns; the last one where left out"),
    LKI_BOOL("class_targets", "false", "the targets are classes: numbers or names"),
    LKI_BOOL("header", "true", "the first line holds the columns' names"),
    LKI_STRING("delimiter", ",", "between two columns"),
    LKI_DTYPE,
    LKI_STRINGS("feature_columns", LKI_OPTIONAL, "the features' columns; all others where left out"),
    LKI_STRINGS("classes", LKI_OPTIONAL,
                "the names of the classes, in their order; without it those of the train loader's file"),
    {0},
};
static const lk_parameter image_folder_parameters[] = {
    LKI_STRING("root", LKI_REQUIRED, "a folder with a folder of PNG or JPEG files for each class"),
    TRANSFORM,
    LKI_INTS("size", LKI_OPTIONAL, "height and width to resize to; all must be of one size where left out"),
    LKI_INT("channels", "3", "1 for grey, 3 for colours"),
    LKI_STRING("classes_of", LKI_OPTIONAL,
               "the folder whose classes count; the train loader's in a run that has one"),
    {0},
};
static const lk_parameter file_parameters[] = {
    LKI_STRING("path", LKI_REQUIRED, "the file"),
    LKI_STRING("features", LKI_OPTIONAL, "the array of the features"),
    LKI_STRING("targets", LKI_OPTIONAL, "the array of the targets"),
    LKI_DTYPE,
    {0},
};
static const lk_parameter digits_parameters[] = {
    LKI_BOOL("train", "true", "digits for training; others for testing"),
    LKI_INT64("count", LKI_OPTIONAL, "how many; 10,000 for training and 2,000 for testing where left out"),
    LKI_INT64("seed", "0", "other digits"),
    TRANSFORM,
    {0},
};
static const lk_parameter torch_load_parameters[] = {
    LKI_STRING("f", LKI_REQUIRED, "a .pt, .npy, .safetensors or .h5 file"),
    LKI_NO_EFFECT("map_location", "cpu", "the run puts tensors where it computes"),
    NAME,
    {0},
};
static const lk_parameter numpy_load_parameters[] = {
    LKI_STRING("file", LKI_REQUIRED, "a .pt, .npy, .safetensors or .h5 file"), NAME, {0}};

const lk_component lki_file_components[] = {
    {"CSVDataset", NULL, LK_KIND_DATASET, "Rows of a CSV file.", .parameters = csv_parameters,
     .build = build_csv},
    {"ImageFolder", "torchvision.datasets.ImageFolder", LK_KIND_DATASET,
     "Pictures in a folder for each class: features (C, H, W) in 0..1.",
     .parameters = image_folder_parameters, .build = build_image_folder},
    {"HDF5Dataset", NULL, LK_KIND_DATASET, "Arrays of an HDF5 file; the last one where none is named.",
     .parameters = file_parameters, .build = build_hdf5},
    {"SafetensorsDataset", NULL, LK_KIND_DATASET,
     "Tensors of a safetensors file; all of them where none is named.", .parameters = file_parameters,
     .build = build_safetensors},
    {"SyntheticDigits", NULL, LK_KIND_DATASET,
     "Digits drawn by this library, as MNIST's, with nothing to download.", .parameters = digits_parameters,
     .build = build_digits},
    {"torch.load", NULL, LK_KIND_TENSOR, "A tensor from a file.", .parameters = torch_load_parameters,
     .build = build_load},
    {"load", "numpy.load np.load", LK_KIND_TENSOR, "A tensor from a file.",
     .parameters = numpy_load_parameters, .build = build_load},
    {0},
};
