/* What is done to samples and batches: torchvision's names and Catalyst's. */
#include "config/components/components.h"

#include "base/memory.h"
#include "base/status.h"
#include "config/build.h"

#include <lockstep/vision.h>

#include <string.h>

enum { MAX_TRANSFORMS = 32 };

/* Several transforms as one object of a config. They are taken out of it again; what is left is freed with
 * it. */
typedef struct compose {
    lk_transform *items[MAX_TRANSFORMS];
    bool is_to_tensor[MAX_TRANSFORMS];
    int count;
} compose;

static void free_compose(void *object)
{
    compose *list = object;
    for (int i = 0; i < list->count; i++) lk_transform_free(list->items[i]);
    lki_free(list);
}

/* One of pictures: `key` is ToTensor's first parameter. */
static bool is_plain_to_tensor(const lki_object *object)
{
    return !strcmp(object->component->name, "ToTensor") && !strcmp(object->values[0]->text, "features");
}

/* Appends an argument's transforms, those inside a Compose one by one. */
static lk_status take_all(lk_args *args, const char *name, compose *out)
{
    for (int i = 0; i < lk_arg_count(args, name); i++) {
        const lki_object *given = lki_object_argument(args->object, name, i);
        void *object = lk_arg_take_at(args, name, i);
        if (!object) return lki_last_status();
        bool is_compose = !strcmp(given->component->name, "Compose");
        compose one = {.items = {object}, .is_to_tensor = {is_plain_to_tensor(given)}, .count = 1};
        compose *inner = is_compose ? object : &one;
        bool fits = out->count + inner->count <= MAX_TRANSFORMS;
        for (int k = 0; fits && k < inner->count; k++) {
            out->is_to_tensor[out->count] = inner->is_to_tensor[k];
            out->items[out->count++] = inner->items[k];
        }
        if (fits) inner->count = 0;
        if (is_compose)
            free_compose(inner);
        else if (!fits)
            lk_transform_free(object);
        if (!fits) return lki_fail(LK_ERR_CONFIG, "%s: at most %d transforms", name, MAX_TRANSFORMS);
    }
    return LK_OK;
}

static lk_status build_compose(const lk_component *self, lk_args *args, void **out)
{
    compose *list = LKI_NEW(compose);
    (void)self;
    if (!list) return LK_ERR_NOMEM;
    lk_status status = take_all(args, "transforms", list);
    if (status)
        free_compose(list);
    else
        *out = list;
    return status;
}

lk_status lki_take_transforms(lk_args *args, const char *name, lk_transform **items, int capacity, int *count)
{
    compose list = {0};
    lk_status status = take_all(args, name, &list);
    if (status == LK_OK && list.count > capacity)
        status = lki_fail(LK_ERR_CONFIG, "%s: at most %d transforms", name, capacity);
    for (int i = 0; i < list.count; i++) {
        if (status)
            lk_transform_free(list.items[i]);
        else
            items[i] = list.items[i];
    }
    *count = status ? 0 : list.count;
    return status;
}

/* The transforms of a Compose as one; takes the list over. */
static lk_transform *join(compose *list)
{
    lk_transform_list items = {list->items, list->count};
    lk_transform *one = list->count == 1 ? list->items[0] : lk_compose(items);
    list->count = 0;
    free_compose(list);
    return one;
}

static lk_status take_child(lk_args *args, const char *name, int i, lk_transform **out)
{
    const lki_object *given = lki_object_argument(args->object, name, i);
    void *object = lk_arg_take_at(args, name, i);
    bool is_compose = !strcmp(given->component->name, "Compose");
    bool converts = !is_compose && is_plain_to_tensor(given);
    if (!object) return lki_last_status();
    for (int k = 0; is_compose && k < ((compose *)object)->count; k++)
        converts = converts || ((compose *)object)->is_to_tensor[k];
    *out = is_compose ? join(object) : object;
    if (*out && converts) {
        lk_transform_free(*out);
        return lki_fail(LK_ERR_CONFIG, "%s: ToTensor cannot be one of them: write it before this transform",
                        name);
    }
    return *out ? LK_OK : lki_last_status();
}

lk_status lki_take_children(lk_args *args, const char *name, lk_transform **items, int capacity, int *count)
{
    int given = lk_arg_count(args, name);
    *count = 0;
    if (given > capacity) return lki_fail(LK_ERR_CONFIG, "%s: at most %d transforms", name, capacity);
    for (int i = 0; i < given; i++) {
        lk_status status = take_child(args, name, i, &items[i]);
        if (status == LK_OK) continue;
        while (i-- > 0) lk_transform_free(items[i]);
        return status;
    }
    *count = given;
    return LK_OK;
}

/* Datasets of pictures give what ToTensor would make of them: there it has nothing left to do. */
static void drop_to_tensor(compose *list)
{
    int kept = 0;
    for (int i = 0; i < list->count; i++) {
        if (list->is_to_tensor[i])
            lk_transform_free(list->items[i]);
        else
            list->items[kept++] = list->items[i];
    }
    list->count = kept;
}

lk_dataset *lki_transform_dataset(lk_args *args, lk_dataset *dataset)
{
    compose list = {0};
    if (!dataset || !lk_arg_given(args, "transform")) return dataset;
    if (take_all(args, "transform", &list)) {
        for (int i = 0; i < list.count; i++) lk_transform_free(list.items[i]);
        lk_dataset_free(dataset);
        return NULL;
    }
    const lk_field *features = lk_dataset_field(dataset, lk_dataset_find_field(dataset, "features"));
    if (features && features->dtype == LK_F32) drop_to_tensor(&list);
    return list.count ? lk_transformed(dataset, (lk_transform_list){list.items, list.count}) : dataset;
}

static const char *key_of(lk_args *args)
{
    return lk_arg_string(args, "key");
}

static lk_status build_to_tensor(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_to_tensor(.key = key_of(args)), out);
}

static lk_status build_normalize(const lk_component *self, lk_args *args, void **out)
{
    lk_normalize_options options = {LK_SIZE(lk_normalize_options), .key = key_of(args),
                                    .channels = lk_arg_count(args, "mean")};
    (void)self;
    if (options.channels > LK_MAX_CHANNELS || options.channels != lk_arg_count(args, "std"))
        return lki_fail(LK_ERR_CONFIG, "mean and std: expected as many of each, at most %d, found %d and %d",
                        LK_MAX_CHANNELS, options.channels, lk_arg_count(args, "std"));
    for (int i = 0; i < options.channels; i++) {
        options.mean[i] = (float)lk_arg_float_at(args, "mean", i);
        options.std[i] = (float)lk_arg_float_at(args, "std", i);
        if (options.std[i] == 0) return lki_fail(LK_ERR_CONFIG, "std: expected a number other than 0");
    }
    return lki_built(lk_normalize_with(&options), out);
}

static lk_status build_crop(const lk_component *self, lk_args *args, void **out)
{
    int sizes = lk_arg_count(args, "size");
    (void)self;
    if (sizes < 1 || sizes > 2)
        return lki_fail(LK_ERR_CONFIG, "size: expected 1 or 2 numbers, found %d", sizes);
    return lki_built(lk_random_crop(lk_arg_int_at(args, "size", 0), .key = key_of(args),
                                    .width = lk_arg_int_at(args, "size", sizes - 1),
                                    .padding = lk_arg_int(args, "padding"),
                                    .fill = (float)lk_arg_float(args, "fill")),
                     out);
}

static lk_status build_flip(const lk_component *self, lk_args *args, void **out)
{
    lk_flip_options options = {LK_SIZE(lk_flip_options), .key = key_of(args), .p = lk_arg_float(args, "p")};
    if (!(options.p > 0 && options.p <= 1))
        return lki_fail(LK_ERR_CONFIG, "p: expected a number above 0 and up to 1, found %g", options.p);
    bool is_horizontal = !strcmp(self->name, "RandomHorizontalFlip");
    return lki_built(is_horizontal ? lk_random_horizontal_flip_with(&options)
                                   : lk_random_vertical_flip_with(&options),
                     out);
}

static lk_status build_affine(const lk_component *self, lk_args *args, void **out)
{
    lk_random_affine_options options = {
        LK_SIZE(lk_random_affine_options),         .key = key_of(args),
        .degrees = lk_arg_float(args, "degrees"),  .shear = lk_arg_float(args, "shear"),
        .fill = (float)lk_arg_float(args, "fill"),
    };
    int moves = lk_arg_count(args, "translate"), scales = lk_arg_count(args, "scale");
    (void)self;
    if ((moves && moves != 2) || (scales && scales != 2))
        return lki_fail(LK_ERR_CONFIG, "translate and scale: expected two numbers each");
    options.translate_x = lk_arg_float_at(args, "translate", 0);
    options.translate_y = lk_arg_float_at(args, "translate", 1);
    options.scale_min = lk_arg_float_at(args, "scale", 0);
    options.scale_max = lk_arg_float_at(args, "scale", 1);
    return lki_built(lk_random_affine_with(&options), out);
}

static lk_status build_cutout(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_cutout(lk_arg_int(args, "size"), .key = key_of(args),
                               .count = lk_arg_int(args, "count"), .fill = (float)lk_arg_float(args, "fill"),
                               .p = lk_arg_float(args, "p")),
                     out);
}

static lk_status build_one_hot(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_one_hot(lk_arg_int(args, "num_classes"), .key = key_of(args)), out);
}

static lk_status build_mix(const lk_component *self, lk_args *args, void **out)
{
    lk_mix_options options = {LK_SIZE(lk_mix_options), .alpha = lk_arg_float(args, "alpha")};
    int keys = lk_arg_count(args, "keys");
    if (keys > LK_MAX_FIELDS) return lki_fail(LK_ERR_CONFIG, "keys: at most %d", LK_MAX_FIELDS);
    for (int i = 0; i < keys; i++) options.keys[i] = lk_arg_string_at(args, "keys", i);
    return lki_built(!strcmp(self->name, "Mixup") ? lk_mixup_with(&options) : lk_cutmix_with(&options), out);
}

static lk_status build_pad_collate(const lk_component *self, lk_args *args, void **out)
{
    lk_pad_collate_options options = {LK_SIZE(lk_pad_collate_options),
                                      .multiple = lk_arg_int64(args, "multiple")};
    int keys = lk_arg_count(args, "keys"), values = lk_arg_count(args, "pad_values");
    (void)self;
    if (options.multiple < 1)
        return lki_fail(LK_ERR_CONFIG, "multiple: expected at least 1, found %lld",
                        (long long)options.multiple);
    if (keys > LK_MAX_FIELDS) return lki_fail(LK_ERR_CONFIG, "keys: at most %d", LK_MAX_FIELDS);
    if (values > keys)
        return lki_fail(LK_ERR_CONFIG, "pad_values: expected at most one per key (%d), found %d", keys,
                        values);
    for (int i = 0; i < keys; i++) options.keys[i] = lk_arg_string_at(args, "keys", i);
    for (int i = 0; i < values; i++) options.pad_values[i] = lk_arg_float_at(args, "pad_values", i);
    return lki_built(lk_pad_collate_with(&options), out);
}

#define KEY(default_) LKI_STRING("key", default_, "the field of the sample")
#define FILL          LKI_FLOAT("fill", "0", "the value outside of the picture")

static const lk_parameter compose_parameters[] = {
    LKI_OBJECTS("transforms", TRANSFORM, LKI_REQUIRED, "the transforms, in order"), {0}};
static const lk_parameter to_tensor_parameters[] = {KEY("features"), {0}};
static const lk_parameter normalize_parameters[] = {
    LKI_FLOATS("mean", LKI_REQUIRED, "one for all channels, or one per channel"),
    LKI_FLOATS("std", LKI_REQUIRED, "likewise"),
    LKI_NO_EFFECT("inplace", "false", "the sample in the file never changes"),
    KEY("features"),
    {0},
};
static const lk_parameter crop_parameters[] = {
    LKI_INTS("size", LKI_REQUIRED, "height and width, or one for both"),
    LKI_INT("padding", "0", "added on every side first"),
    FILL,
    KEY("features"),
    {0},
};
static const lk_parameter flip_parameters[] = {LKI_FLOAT("p", "0.5", "how often"), KEY("features"), {0}};
static const lk_parameter affine_parameters[] = {
    LKI_FLOAT("degrees", LKI_REQUIRED, "turned by up to this much either way"),
    LKI_FLOATS("translate", LKI_OPTIONAL, "moved by up to these parts of width and height"),
    LKI_FLOATS("scale", LKI_OPTIONAL, "the smallest and the largest scale"),
    LKI_FLOAT("shear", "0", "degrees, along x"),
    FILL,
    KEY("features"),
    {0},
};
static const lk_parameter cutout_parameters[] = {
    LKI_INT("size", LKI_REQUIRED, "of a hole"),
    LKI_INT("count", "1", "holes"),
    FILL,
    LKI_FLOAT("p", "1", "how often"),
    KEY("features"),
    {0},
};
static const lk_parameter one_hot_parameters[] = {
    LKI_INT("num_classes", LKI_REQUIRED, "the size of the vectors"), KEY("targets"), {0}};
static const lk_parameter mixup_parameters[] = {
    LKI_STRINGS("keys", LKI_OPTIONAL, "the fields to mix; features and targets where left out"),
    LKI_FLOAT("alpha", "0.2", "of the Beta distribution"),
    {0},
};
static const lk_parameter pad_collate_parameters[] = {
    LKI_STRINGS("keys", "[features]", "the fields of samples of different lengths"),
    LKI_FLOATS("pad_values", LKI_OPTIONAL, "what stands behind a sample's end, per key; 0 where left out"),
    LKI_INT64("multiple", "8", "lengths are rounded up to a multiple of this"),
    {0},
};
static const lk_parameter cutmix_parameters[] = {
    LKI_STRINGS("keys", LKI_OPTIONAL, "the fields to mix; features and targets where left out"),
    LKI_FLOAT("alpha", "1.0", "of the Beta distribution"),
    {0},
};

const lk_component lki_transform_components[] = {
    {"Compose",
     "torchvision.transforms.Compose catalyst.contrib.data.transforms.Compose catalyst.contrib.data.Compose "
     "catalyst.data.transforms.Compose catalyst.data.Compose",
     LK_KIND_TRANSFORM, "Transforms one after the other.", .parameters = compose_parameters,
     .build = build_compose, .free = free_compose},
    {"ToTensor",
     "torchvision.transforms.ToTensor catalyst.contrib.data.transforms.ImageToTensor "
     "catalyst.contrib.data.ImageToTensor catalyst.data.transforms.ToTensor catalyst.data.ToTensor",
     LK_KIND_TRANSFORM, "Bytes (H, W, C) to numbers (C, H, W) in 0..1.", .parameters = to_tensor_parameters,
     .build = build_to_tensor},
    {"Normalize",
     "torchvision.transforms.Normalize catalyst.contrib.data.transforms.NormalizeImage "
     "catalyst.contrib.data.NormalizeImage catalyst.data.transforms.Normalize catalyst.data.Normalize",
     LK_KIND_TRANSFORM, "(x - mean) / std.", .parameters = normalize_parameters, .build = build_normalize},
    {"RandomCrop", "torchvision.transforms.RandomCrop", LK_KIND_TRANSFORM, "A part of the picture.",
     .parameters = crop_parameters, .build = build_crop},
    {"RandomHorizontalFlip", "torchvision.transforms.RandomHorizontalFlip", LK_KIND_TRANSFORM,
     "Left and right swapped.", .parameters = flip_parameters, .build = build_flip},
    {"RandomVerticalFlip", "torchvision.transforms.RandomVerticalFlip", LK_KIND_TRANSFORM,
     "Top and bottom swapped.", .parameters = flip_parameters, .build = build_flip},
    {"RandomAffine", "torchvision.transforms.RandomAffine", LK_KIND_TRANSFORM,
     "Turned, moved, scaled and sheared.", .parameters = affine_parameters, .build = build_affine},
    {"Cutout", NULL, LK_KIND_TRANSFORM, "Square holes.", .parameters = cutout_parameters,
     .build = build_cutout},
    {"OneHot", NULL, LK_KIND_TRANSFORM, "Class numbers to vectors.", .parameters = one_hot_parameters,
     .build = build_one_hot},
    {"Mixup", NULL, LK_KIND_TRANSFORM, "Each sample of a batch mixed with another.",
     .parameters = mixup_parameters, .build = build_mix},
    {"PadCollate", NULL, LK_KIND_TRANSFORM,
     "Batches as long as their longest sample, with KEY_lengths and KEY_mask.",
     .parameters = pad_collate_parameters, .build = build_pad_collate},
    {"Cutmix", NULL, LK_KIND_TRANSFORM, "A rectangle of each picture of a batch from another.",
     .parameters = cutmix_parameters, .build = build_mix},
    {0},
};
