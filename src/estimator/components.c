/* The models and losses of estimators by name, so that a config can train them: `lockstep run -C cnn3d.yml`.
 */
#include "estimator/estimator.h"

#include "base/status.h"
#include "config/components/components.h"
#include "config/registry.h"

#include <lockstep/config.h>

/* ---- Models ---- */

/* One number for all axes, or one an axis. */
static lk_status read_sizes(lk_args *args, const char *name, int dims, int64_t *sizes)
{
    int count = lk_arg_count(args, name);
    if (count != 1 && count != dims)
        return lki_fail(LK_ERR_CONFIG, "%s: expected one number or %d, found %d", name, dims, count);
    for (int i = 0; i < dims; i++) sizes[i] = lk_arg_int_at(args, name, count == 1 ? 0 : i);
    for (int i = 0; i < dims; i++)
        if (sizes[i] < 1)
            return lki_fail(LK_ERR_CONFIG, "%s: expected at least 1, found %lld", name, (long long)sizes[i]);
    return LK_OK;
}

/* What the model builders look at: the shapes of a sample and the config. */
static lk_status read_shapes(lk_args *args, int dims, bool takes_any_size, lk_estimator *like)
{
    int64_t channels = lk_arg_int(args, "channels"), outputs = lk_arg_int(args, "outputs");
    if (channels < 1)
        return lki_fail(LK_ERR_CONFIG, "channels: expected at least 1, found %lld", (long long)channels);
    like->features = (lk_shape){.rank = 1 + dims, .dim = {channels, 1, 1, 1}};
    if (!takes_any_size) LKI_TRY(read_sizes(args, "size", dims, like->features.dim + 1));
    like->targets = like->features;
    if (outputs > 0) like->targets.dim[0] = outputs;
    return LK_OK;
}

static lk_status build_cnn3d(const lk_component *self, lk_args *args, void **out)
{
    lk_estimator like = {0};
    (void)self;
    LKI_TRY(read_shapes(args, 3, false, &like));
    return lki_built(lki_cnn3d_model(&like), out);
}

static lk_status build_picae(const lk_component *self, lk_args *args, void **out)
{
    lk_estimator like = {.config.nfilters = lk_arg_int(args, "nfilters")};
    (void)self;
    LKI_TRY(read_shapes(args, 3, false, &like));
    if (like.config.nfilters < 1) return lki_fail(LK_ERR_CONFIG, "nfilters: expected at least 1");
    return lki_built(lki_picae_model(&like), out);
}

static lk_status build_pimlturb(const lk_component *self, lk_args *args, void **out)
{
    int dims = *(const int *)self->context;
    lk_estimator like = {
        .config = {.sigma = lk_arg_float(args, "sigma"), .activation = lk_arg_string(args, "activation")}};
    LKI_TRY(read_shapes(args, dims, true, &like));
    return lki_built(lki_pimlturb_model(&like, dims), out);
}

/* ---- Losses ---- */

static lk_status build_field_loss(const lk_component *self, lk_args *args, void **out)
{
    (void)self, (void)args;
    return lki_built(lki_field_loss(), out);
}

static lk_status build_ks_loss(const lk_component *self, lk_args *args, void **out)
{
    lk_estimator_config config = {LK_SIZE(lk_estimator_config), .ks_frac = lk_arg_float(args, "ks_frac"),
                                  .l1_scale = lk_arg_float(args, "l1_scale"),
                                  .ks_scale = lk_arg_float(args, "ks_scale"),
                                  .l1_beta = lk_arg_float(args, "l1_beta")};
    (void)self;
    return lki_built(lki_pimlturb_criterion(&config), out);
}

/* ---- The tables ---- */

#define SHAPE_PARAMETERS(size_)                                                                              \
    {.name = "channels", .type = LK_PARAMETER_INT, .help = "Channels of the features."}, size_,              \
    {                                                                                                        \
        .name = "outputs", .type = LK_PARAMETER_INT, .default_value = "0",                                   \
        .help = "Channels of the targets; 0: as many as the features have."                                  \
    }

#define SIZE     LKI_INTS("size", LKI_REQUIRED, "Points along each axis: one number, or one an axis.")
#define ANY_SIZE LKI_NO_EFFECT("size", NULL, "the model takes fields of any size")

static const lk_parameter cnn3d_parameters[] = {SHAPE_PARAMETERS(SIZE), {0}};
static const lk_parameter picae_parameters[] = {SHAPE_PARAMETERS(SIZE),
                                                {.name = "nfilters",
                                                 .type = LK_PARAMETER_INT,
                                                 .default_value = "6",
                                                 .help = "Channels between its layers."},
                                                {0}};
static const lk_parameter pimlturb_parameters[] = {SHAPE_PARAMETERS(ANY_SIZE),
                                                   {.name = "sigma",
                                                    .type = LK_PARAMETER_FLOAT,
                                                    .default_value = "1",
                                                    .help = "Of the Gaussian layer, in points."},
                                                   {.name = "activation",
                                                    .type = LK_PARAMETER_STRING,
                                                    .default_value = "relu",
                                                    .choices = "relu|tanh|silu|leaky_relu",
                                                    .help = "Between the convolutions."},
                                                   {0}};
static const lk_parameter ks_parameters[] = {
    {.name = "ks_frac",
     .type = LK_PARAMETER_FLOAT,
     .default_value = "0.5",
     .help = "The share of the KS term."},
    {.name = "l1_scale",
     .type = LK_PARAMETER_FLOAT,
     .default_value = "1",
     .help = "Multiplies the SmoothL1 term."},
    {.name = "ks_scale", .type = LK_PARAMETER_FLOAT, .default_value = "1", .help = "Multiplies the KS term."},
    {.name = "l1_beta",
     .type = LK_PARAMETER_FLOAT,
     .default_value = "1",
     .help = "Where SmoothL1 turns from square to line."},
    {0}};
static const int one = 1, three = 3;
static const lk_component components[] = {
    {.name = "CNN3d",
     .kind = LK_KIND_MODULE,
     .help = "Sapsan's convolutional network in three dimensions.",
     .parameters = cnn3d_parameters,
     .build = build_cnn3d},
    {.name = "PICAE",
     .kind = LK_KIND_MODULE,
     .help = "An autoencoder of vector fields whose output is free of divergence.",
     .parameters = picae_parameters,
     .build = build_picae},
    {.name = "PIMLturb1D",
     .kind = LK_KIND_MODULE,
     .help = "Positive turbulent quantities in one dimension.",
     .parameters = pimlturb_parameters,
     .build = build_pimlturb,
     .context = &one},
    {.name = "PIMLturb3D",
     .kind = LK_KIND_MODULE,
     .help = "Positive turbulent quantities in three dimensions.",
     .parameters = pimlturb_parameters,
     .build = build_pimlturb,
     .context = &three},
    {.name = "FieldLoss",
     .kind = LK_KIND_CRITERION,
     .help = "SmoothL1 between fields, flat or not.",
     .build = build_field_loss},
    {.name = "SmoothL1_KSLoss",
     .kind = LK_KIND_CRITERION,
     .help = "SmoothL1 and the distance of the distributions (PIMLturb's).",
     .parameters = ks_parameters,
     .build = build_ks_loss},
};

static void free_estimator(void *object)
{
    lk_estimator_free(object);
}

lk_status lki_estimator_components_add(void)
{
    for (size_t i = 0; i < sizeof components / sizeof *components; i++)
        LKI_TRY(lk_component_add(&components[i]));
    lki_registry_free_kind(LK_KIND_ESTIMATOR, free_estimator);
    LKI_TRY(lk_component_add(&lki_fields_component));
    for (const lk_component *component = lki_estimator_table; component->name; component++)
        LKI_TRY(lk_component_add(component));
    return LK_OK;
}

lk_status lk_estimator_components(void)
{
    return lk_component_find(lki_estimator_table[0].name) ? LK_OK : lki_estimator_components_add();
}
