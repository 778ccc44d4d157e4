/* Transforms of pictures under torchvision's names, and random_split. */
#include "config/components/components.h"

#include "base/arguments.h"
#include "base/number_text.h"
#include "base/status.h"
#include "config/build.h"

#include <lockstep/vision.h>

#include <string.h>

static const char *key_of(lk_args *args)
{
    return lk_arg_string(args, "key");
}

/* A size of one or two numbers: the height, and the width, or 0 without one. */
static lk_status take_size(lk_args *args, int64_t *height, int64_t *width)
{
    int sizes = lk_arg_count(args, "size");
    if (sizes < 1 || sizes > 2)
        return lki_fail(LK_ERR_CONFIG, "size: expected 1 or 2 numbers, found %d", sizes);
    *height = lk_arg_int_at(args, "size", 0);
    *width = sizes == 2 ? lk_arg_int_at(args, "size", 1) : 0;
    if (sizes == 2 && *width < 1)
        return lki_fail(LK_ERR_CONFIG, "size: expected at least 1, found %lld", (long long)*width);
    return LK_OK;
}

/* Two numbers, the smaller and the larger, which are meant even if they are 0. */
static lk_status take_range(lk_args *args, const char *name, double *low, double *high)
{
    if (lk_arg_count(args, name) != 2)
        return lki_fail(LK_ERR_CONFIG, "%s: expected two numbers, found %d", name, lk_arg_count(args, name));
    *low = lki_number_meant(lk_arg_float_at(args, name, 0));
    *high = lki_number_meant(lk_arg_float_at(args, name, 1));
    return LK_OK;
}

/* ---- Sizes ---- */

static lk_status build_resize(const lk_component *self, lk_args *args, void **out)
{
    int64_t height = 0, width = 0;
    (void)self;
    LKI_TRY(take_size(args, &height, &width));
    return lki_built(lk_resize(height, .key = key_of(args), .width = width,
                               .max_size = lk_arg_int(args, "max_size"),
                               .interpolation = lk_arg_string(args, "interpolation"),
                               .no_antialias = !lk_arg_bool(args, "antialias")),
                     out);
}

static lk_status build_center_crop(const lk_component *self, lk_args *args, void **out)
{
    int64_t height = 0, width = 0;
    (void)self;
    LKI_TRY(take_size(args, &height, &width));
    return lki_built(lk_center_crop(height, .key = key_of(args), .width = width), out);
}

static lk_status build_pad(const lk_component *self, lk_args *args, void **out)
{
    int count = lk_arg_count(args, "padding");
    int64_t sides[4]; /* left, top, right, bottom */
    (void)self;
    if (count != 1 && count != 2 && count != 4)
        return lki_fail(LK_ERR_CONFIG, "padding: expected 1, 2 or 4 numbers, found %d", count);
    for (int i = 0; i < 4; i++) sides[i] = lk_arg_int_at(args, "padding", i % count);
    return lki_built(lk_pad_picture(.key = key_of(args), .left = sides[0], .top = sides[1], .right = sides[2],
                                    .bottom = sides[3], .fill = (float)lk_arg_float(args, "fill"),
                                    .padding_mode = lk_arg_string(args, "padding_mode")),
                     out);
}

static lk_status build_resized_crop(const lk_component *self, lk_args *args, void **out)
{
    lk_random_resized_crop_options options = {LK_SIZE(lk_random_resized_crop_options), .key = key_of(args),
                                              .interpolation = lk_arg_string(args, "interpolation"),
                                              .no_antialias = !lk_arg_bool(args, "antialias")};
    int64_t height = 0;
    (void)self;
    LKI_TRY(take_size(args, &height, &options.width));
    LKI_TRY(take_range(args, "scale", &options.scale_min, &options.scale_max));
    LKI_TRY(take_range(args, "ratio", &options.ratio_min, &options.ratio_max));
    return lki_built(lk_random_resized_crop_with(height, &options), out);
}

/* ---- Colours ---- */

static lk_status build_grayscale(const lk_component *self, lk_args *args, void **out)
{
    int channels = lk_arg_int(args, "num_output_channels");
    (void)self;
    if (channels == 0) return lki_fail(LK_ERR_CONFIG, "num_output_channels: expected 1 or 3, found 0");
    return lki_built(lk_grayscale(.key = key_of(args), .num_output_channels = channels), out);
}

typedef lk_transform *(*make_by_chance)(const lk_chance_options *options);
typedef struct by_chance {
    make_by_chance make;
} by_chance;

static lk_chance_options chance_of(lk_args *args)
{
    return (lk_chance_options){LK_SIZE(lk_chance_options), .key = key_of(args),
                               .p = lki_number_meant(lk_arg_float(args, "p"))};
}

static lk_status build_by_chance(const lk_component *self, lk_args *args, void **out)
{
    lk_chance_options options = chance_of(args);
    return lki_built(((const by_chance *)self->context)->make(&options), out);
}

static lk_status build_solarize(const lk_component *self, lk_args *args, void **out)
{
    lk_chance_options options = chance_of(args);
    double threshold = lk_arg_float(args, "threshold");
    (void)self;
    if (threshold > 1 && threshold <= 255)
        return lki_fail(LK_ERR_CONFIG, "threshold: colours are in 0..1 here: write %g", threshold / 255);
    return lki_built(lk_random_solarize_with(threshold, &options), out);
}

static lk_status build_posterize(const lk_component *self, lk_args *args, void **out)
{
    lk_chance_options options = chance_of(args);
    (void)self;
    return lki_built(lk_random_posterize_with(lk_arg_int(args, "bits"), &options), out);
}

static lk_status build_sharpness(const lk_component *self, lk_args *args, void **out)
{
    lk_chance_options options = chance_of(args);
    (void)self;
    return lki_built(lk_random_adjust_sharpness_with(lk_arg_float(args, "sharpness_factor"), &options), out);
}

/* One number is a strength, two are a range, of which an upper end of 0 is meant. */
static lk_status take_strength(lk_args *args, const char *name, double out[2])
{
    int count = lk_arg_count(args, name);
    if (count < 1 || count > 2)
        return lki_fail(LK_ERR_CONFIG, "%s: expected 1 or 2 numbers, found %d", name, count);
    if (count == 2) return take_range(args, name, &out[0], &out[1]);
    out[0] = lk_arg_float_at(args, name, 0);
    if (out[0] >= 0) return LK_OK;
    return lki_fail(LK_ERR_CONFIG, "%s: expected a number of at least 0, found %g", name, out[0]);
}

static lk_status build_jitter(const lk_component *self, lk_args *args, void **out)
{
    lk_color_jitter_options options = {LK_SIZE(lk_color_jitter_options), .key = key_of(args)};
    (void)self;
    LKI_TRY(take_strength(args, "brightness", options.brightness));
    LKI_TRY(take_strength(args, "contrast", options.contrast));
    LKI_TRY(take_strength(args, "saturation", options.saturation));
    LKI_TRY(take_strength(args, "hue", options.hue));
    return lki_built(lk_color_jitter_with(&options), out);
}

/* ---- Places ---- */

static lk_status build_rotation(const lk_component *self, lk_args *args, void **out)
{
    lk_random_rotation_options options = {LK_SIZE(lk_random_rotation_options), .key = key_of(args),
                                          .interpolation = lk_arg_string(args, "interpolation"),
                                          .fill = (float)lk_arg_float(args, "fill")};
    int count = lk_arg_count(args, "degrees"), centre = lk_arg_count(args, "center");
    double from = lk_arg_float_at(args, "degrees", 0), to = from;
    (void)self;
    if (count < 1 || count > 2)
        return lki_fail(LK_ERR_CONFIG, "degrees: expected 1 or 2 numbers, found %d", count);
    if (count == 1 && from < 0)
        return lki_fail(LK_ERR_CONFIG, "degrees: expected at least 0, or two numbers, found %g", from);
    if (count == 2)
        to = lk_arg_float_at(args, "degrees", 1);
    else
        from = -from;
    if (centre != 0 && centre != 2)
        return lki_fail(LK_ERR_CONFIG, "center: expected two numbers, found %d", centre);
    options.has_center = centre == 2;
    options.center_x = options.has_center ? lk_arg_float_at(args, "center", 0) : 0;
    options.center_y = options.has_center ? lk_arg_float_at(args, "center", 1) : 0;
    return lki_built(lk_random_rotation_with(from, to, &options), out);
}

/* torchvision's `value`: a number, one per channel, or the word random. */
static lk_status take_values(lk_args *args, lk_random_erasing_options *options)
{
    int count = lk_arg_count(args, "value");
    options->random = count == 1 && !strcmp(lk_arg_string_at(args, "value", 0), "random");
    if (options->random) return LK_OK;
    if (count < 1 || count > LK_MAX_CHANNELS)
        return lki_fail(LK_ERR_CONFIG, "value: expected 1 to %d numbers, found %d", LK_MAX_CHANNELS, count);
    options->channels = count;
    for (int i = 0; i < count; i++) {
        const char *text = lk_arg_string_at(args, "value", i);
        char *end;
        double number = lki_strtod(text, &end);
        if (end == text || *end)
            return lki_fail(LK_ERR_CONFIG, "value: expected numbers, or the word random, found \"%.40s\"",
                            text);
        options->values[i] = (float)number;
    }
    return LK_OK;
}

static lk_status build_erasing(const lk_component *self, lk_args *args, void **out)
{
    lk_random_erasing_options options = {LK_SIZE(lk_random_erasing_options), .key = key_of(args),
                                         .p = lki_number_meant(lk_arg_float(args, "p"))};
    (void)self;
    LKI_TRY(take_range(args, "scale", &options.scale_min, &options.scale_max));
    LKI_TRY(take_range(args, "ratio", &options.ratio_min, &options.ratio_max));
    LKI_TRY(take_values(args, &options));
    return lki_built(lk_random_erasing_with(&options), out);
}

static lk_status build_blur(const lk_component *self, lk_args *args, void **out)
{
    int sizes = lk_arg_count(args, "kernel_size"), sigmas = lk_arg_count(args, "sigma");
    (void)self;
    if (sizes < 1 || sizes > 2)
        return lki_fail(LK_ERR_CONFIG, "kernel_size: expected 1 or 2 numbers, found %d", sizes);
    if (sigmas < 1 || sigmas > 2)
        return lki_fail(LK_ERR_CONFIG, "sigma: expected 1 or 2 numbers, found %d", sigmas);
    /* torchvision's kernel_size is (width, height). */
    return lki_built(
        lk_gaussian_blur(lk_arg_int_at(args, "kernel_size", sizes - 1), .key = key_of(args),
                         .kernel_width = lk_arg_int_at(args, "kernel_size", 0),
                         .sigma_min = lki_number_meant(lk_arg_float_at(args, "sigma", 0)),
                         .sigma_max = lki_number_meant(lk_arg_float_at(args, "sigma", sigmas - 1))),
        out);
}

/* ---- Transforms of transforms ---- */

enum { MAX_CHILDREN = 32 };

static lk_status build_random_apply(const lk_component *self, lk_args *args, void **out)
{
    lk_transform *items[MAX_CHILDREN];
    lk_transform_list list = {.items = items};
    (void)self;
    LKI_TRY(lki_take_children(args, "transforms", items, MAX_CHILDREN, &list.count));
    return lki_built(lk_random_apply(list, .p = lki_number_meant(lk_arg_float(args, "p"))), out);
}

static lk_status build_random_choice(const lk_component *self, lk_args *args, void **out)
{
    double weights[MAX_CHILDREN];
    int count = lk_arg_count(args, "p"), transforms = lk_arg_count(args, "transforms");
    lk_transform *items[MAX_CHILDREN];
    lk_transform_list list = {.items = items};
    (void)self;
    if (count > MAX_CHILDREN || (count && count != transforms))
        return lki_fail(LK_ERR_CONFIG, "p: expected a weight for each of the %d transforms, found %d",
                        transforms, count);
    for (int i = 0; i < count; i++) weights[i] = lk_arg_float_at(args, "p", i);
    LKI_TRY(lki_take_children(args, "transforms", items, MAX_CHILDREN, &list.count));
    return lki_built(lk_random_choice(list, .p = count ? weights : NULL), out);
}

static lk_status build_random_order(const lk_component *self, lk_args *args, void **out)
{
    lk_transform *items[MAX_CHILDREN];
    lk_transform_list list = {.items = items};
    (void)self;
    LKI_TRY(lki_take_children(args, "transforms", items, MAX_CHILDREN, &list.count));
    return lki_built(lk_random_order(list), out);
}

/* ---- random_split ---- */

enum { MAX_PARTS = 64 };

/* One part of a split. Parts of the same dataset with the same lengths and the same seed do not overlap. */
static lk_status build_random_split(const lk_component *self, lk_args *args, void **out)
{
    double lengths[MAX_PARTS];
    lk_dataset *parts[MAX_PARTS];
    int count = lk_arg_count(args, "lengths"), part = lk_arg_int(args, "part");
    (void)self;
    if (count < 1 || count > MAX_PARTS)
        return lki_fail(LK_ERR_CONFIG, "lengths: expected 1 to %d numbers, found %d", MAX_PARTS, count);
    if (part < 0 || part >= count)
        return lki_fail(LK_ERR_CONFIG, "part: expected 0 to %d, found %d", count - 1, part);
    for (int i = 0; i < count; i++) lengths[i] = lk_arg_float_at(args, "lengths", i);
    lk_generator generator;
    lk_generator_seed(&generator, (uint64_t)lk_arg_int64(args, "seed"));
    LKI_TRY(lk_random_split(lk_arg_take(args, "dataset"), lengths, count, parts, .generator = &generator));
    for (int i = 0; i < count; i++)
        if (i != part) lk_dataset_free(parts[i]);
    return lki_built(lki_transform_dataset(args, parts[part]), out);
}

/* ---- Tables ---- */

#define KEY         LKI_STRING("key", "features", "the field of the sample")
#define SIZE(help_) LKI_INTS("size", LKI_REQUIRED, help_)
#define INTERPOLATION                                                                                        \
    LKI_CHOICE("interpolation", "bilinear", "nearest|bilinear|bicubic", "how pixels are made of others")
#define ANTIALIAS        LKI_BOOL("antialias", "true", "every pixel counts when the picture becomes smaller")
#define CHANCE(default_) LKI_FLOAT("p", default_, "how often"), KEY
#define TRANSFORMS       LKI_OBJECTS("transforms", TRANSFORM, LKI_REQUIRED, "of one field of the sample")

static const lk_parameter resize_parameters[] = {
    SIZE("height and width, or one number for the shorter edge"),
    INTERPOLATION,
    LKI_INT("max_size", LKI_OPTIONAL, "the longer edge is at most this, if the size is one number"),
    ANTIALIAS,
    KEY,
    {0},
};
static const lk_parameter center_crop_parameters[] = {SIZE("height and width, or one for both"), KEY, {0}};
static const lk_parameter pad_parameters[] = {
    LKI_INTS("padding", LKI_REQUIRED,
             "pixels on all sides; left and right, top and bottom; or left, top, right, bottom"),
    LKI_FLOAT("fill", "0", "the value of constant pixels"),
    LKI_CHOICE("padding_mode", "constant", "constant|edge|reflect|symmetric", "what is added"),
    KEY,
    {0},
};
static const lk_parameter resized_crop_parameters[] = {
    SIZE("height and width, or one for both"),
    LKI_FLOATS("scale", "[0.08, 1.0]", "the smallest and the largest part of the area"),
    LKI_FLOATS("ratio", "[0.75, 1.3333333333333333]", "the smallest and the largest width / height"),
    INTERPOLATION,
    ANTIALIAS,
    KEY,
    {0},
};
static const lk_parameter grayscale_parameters[] = {
    LKI_INT("num_output_channels", "1", "1, or 3 equal ones"), KEY, {0}};
static const lk_parameter random_grayscale_parameters[] = {CHANCE("0.1"), {0}};
static const lk_parameter chance_parameters[] = {CHANCE("0.5"), {0}};
static const lk_parameter solarize_parameters[] = {
    LKI_FLOAT("threshold", LKI_REQUIRED, "values of at least this are inverted"), CHANCE("0.5"), {0}};
static const lk_parameter posterize_parameters[] = {
    LKI_INT("bits", LKI_REQUIRED, "how many of the 8 bits of a value are kept"), CHANCE("0.5"), {0}};
static const lk_parameter sharpness_parameters[] = {
    LKI_FLOAT("sharpness_factor", LKI_REQUIRED, "0 is blurred, 1 as it was, 2 sharper"), CHANCE("0.5"), {0}};
static const lk_parameter jitter_parameters[] = {
    LKI_FLOATS("brightness", "0", "b for a factor of max(0, 1 - b) to 1 + b, or the two ends"),
    LKI_FLOATS("contrast", "0", "likewise"),
    LKI_FLOATS("saturation", "0", "likewise"),
    LKI_FLOATS("hue", "0", "h for a turn of -h to h, or the two ends, within -0.5 to 0.5"),
    KEY,
    {0},
};
static const lk_parameter rotation_parameters[] = {
    LKI_FLOATS("degrees", LKI_REQUIRED, "turned by up to this much either way, or the two ends"),
    LKI_CHOICE("interpolation", "nearest", "nearest|bilinear", "how pixels are made of others"),
    LKI_REFUSED("expand", "false", "leave it out: all samples have the same size; Pad makes room first"),
    LKI_FLOATS("center", LKI_OPTIONAL, "the point that stays, x and y in pixels; the middle where left out"),
    LKI_FLOAT("fill", "0", "the value outside of the picture"),
    KEY,
    {0},
};
static const lk_parameter erasing_parameters[] = {
    LKI_FLOAT("p", "0.5", "how often"),
    LKI_FLOATS("scale", "[0.02, 0.33]", "the smallest and the largest part of the area"),
    LKI_FLOATS("ratio", "[0.3, 3.3]", "the smallest and the largest height / width"),
    LKI_STRINGS("value", "[0]", "what the rectangle becomes: a number, one per channel, or the word random"),
    LKI_NO_EFFECT("inplace", "false", "the sample in the file never changes"),
    KEY,
    {0},
};
static const lk_parameter blur_parameters[] = {
    LKI_INTS("kernel_size", LKI_REQUIRED, "odd: width and height, or one for both"),
    LKI_FLOATS("sigma", "[0.1, 2.0]", "the smallest and the largest, or one"),
    KEY,
    {0},
};
static const lk_parameter apply_parameters[] = {TRANSFORMS, LKI_FLOAT("p", "0.5", "how often"), {0}};
static const lk_parameter choice_parameters[] = {
    TRANSFORMS, LKI_FLOATS("p", LKI_OPTIONAL, "a weight for each; all alike where left out"), {0}};
static const lk_parameter order_parameters[] = {TRANSFORMS, {0}};
static const lk_parameter split_parameters[] = {
    LKI_OBJECT("dataset", DATASET, LKI_REQUIRED, "the whole; name it with _var_ and use it for each part"),
    LKI_FLOATS("lengths", LKI_REQUIRED, "of all parts: numbers of samples, or fractions whose sum is 1"),
    LKI_INT("part", LKI_REQUIRED, "which part this is, counted from 0"),
    LKI_INT64("seed", "0", "the same for all parts; another seed is another split"),
    LKI_REFUSED("generator", NULL, "write seed: the seed of the generator"),
    LKI_OBJECTS("transform", TRANSFORM, LKI_OPTIONAL, "what is done to each sample of this part, in order"),
    {0},
};

#define TORCHVISION(name_) name_, "torchvision.transforms." name_, LK_KIND_TRANSFORM
#define BY_CHANCE(name_, help_, parameters_, make_)                                                          \
    {                                                                                                        \
        TORCHVISION(name_), help_, .parameters = parameters_, .build = build_by_chance,                      \
                                   .context = &(const by_chance)                                             \
        {                                                                                                    \
            make_                                                                                            \
        }                                                                                                    \
    }

const lk_component lki_picture_components[] = {
    {TORCHVISION("Resize"), "Another size.", .parameters = resize_parameters, .build = build_resize},
    {TORCHVISION("CenterCrop"), "The middle of the picture.", .parameters = center_crop_parameters,
     .build = build_center_crop},
    {TORCHVISION("Pad"), "Pixels added on the sides.", .parameters = pad_parameters, .build = build_pad},
    {TORCHVISION("RandomResizedCrop"), "A random part of the picture, resized.",
     .parameters = resized_crop_parameters, .build = build_resized_crop},
    {TORCHVISION("Grayscale"), "Grey.", .parameters = grayscale_parameters, .build = build_grayscale},
    BY_CHANCE("RandomGrayscale", "Grey at times, in as many channels.", random_grayscale_parameters,
              lk_random_grayscale_with),
    {TORCHVISION("ColorJitter"), "Another brightness, contrast, saturation and hue.",
     .parameters = jitter_parameters, .build = build_jitter},
    BY_CHANCE("RandomInvert", "1 - x at times.", chance_parameters, lk_random_invert_with),
    {TORCHVISION("RandomSolarize"), "Inverts bright values at times.", .parameters = solarize_parameters,
     .build = build_solarize},
    {TORCHVISION("RandomPosterize"), "Fewer bits at times.", .parameters = posterize_parameters,
     .build = build_posterize},
    BY_CHANCE("RandomAutocontrast", "Each channel stretched to 0..1 at times.", chance_parameters,
              lk_random_autocontrast_with),
    BY_CHANCE("RandomEqualize", "All levels of a channel equally frequent at times.", chance_parameters,
              lk_random_equalize_with),
    {TORCHVISION("RandomAdjustSharpness"), "Blurred or sharpened at times.",
     .parameters = sharpness_parameters, .build = build_sharpness},
    {TORCHVISION("RandomRotation"), "Turned, counter-clockwise.", .parameters = rotation_parameters,
     .build = build_rotation},
    {TORCHVISION("RandomErasing"), "A rectangle erased at times.", .parameters = erasing_parameters,
     .build = build_erasing},
    {TORCHVISION("GaussianBlur"), "Blurred.", .parameters = blur_parameters, .build = build_blur},
    {TORCHVISION("RandomApply"), "All of several transforms, or none.", .parameters = apply_parameters,
     .build = build_random_apply},
    {TORCHVISION("RandomChoice"), "One of several transforms.", .parameters = choice_parameters,
     .build = build_random_choice},
    {TORCHVISION("RandomOrder"), "Several transforms in a random order.", .parameters = order_parameters,
     .build = build_random_order},
    {"random_split", "torch.utils.data.random_split", LK_KIND_DATASET,
     "One of several random parts of a dataset, which do not overlap.", .parameters = split_parameters,
     .build = build_random_split},
    {0},
};
