/* The tables of components, and the short forms in which they are written.
 *
 * A file components_<folder>.c declares the components of one folder of the library: the names, parameters
 * and help of each beside the function that builds it. */
#ifndef LKI_CONFIG_COMPONENTS_COMPONENTS_H
#define LKI_CONFIG_COMPONENTS_COMPONENTS_H

#include <lockstep/config.h>

/* Defaults are written as in a config. These two stand for "there is none". */
#define LKI_REQUIRED NULL
#define LKI_OPTIONAL ""

#define LKI_INT(name_, default_, help_)                                                                      \
    {                                                                                                        \
        .name = name_, .type = LK_PARAMETER_INT, .default_value = default_, .help = help_                    \
    }
#define LKI_INT64(name_, default_, help_)                                                                    \
    {                                                                                                        \
        .name = name_, .type = LK_PARAMETER_INT64, .default_value = default_, .help = help_                  \
    }
#define LKI_FLOAT(name_, default_, help_)                                                                    \
    {                                                                                                        \
        .name = name_, .type = LK_PARAMETER_FLOAT, .default_value = default_, .help = help_                  \
    }
#define LKI_BOOL(name_, default_, help_)                                                                     \
    {                                                                                                        \
        .name = name_, .type = LK_PARAMETER_BOOL, .default_value = default_, .help = help_                   \
    }
/* Of calls and of engines. */
#define LKI_TF32_PARAMETERS                                                                                  \
    LKI_BOOL("tf32", LKI_OPTIONAL, "products of fp32 may round their factors to TF32 on a GPU"),             \
        LKI_BOOL("allow_tf32", LKI_OPTIONAL, "the same, as PyTorch calls it")
#define LKI_STRING(name_, default_, help_)                                                                   \
    {                                                                                                        \
        .name = name_, .type = LK_PARAMETER_STRING, .default_value = default_, .help = help_                 \
    }
#define LKI_CHOICE(name_, default_, choices_, help_)                                                         \
    {                                                                                                        \
        .name = name_, .type = LK_PARAMETER_STRING, .default_value = default_, .choices = choices_,          \
        .help = help_                                                                                        \
    }
#define LKI_INTS(name_, default_, help_)                                                                     \
    {                                                                                                        \
        .name = name_, .type = LK_PARAMETER_INTS, .default_value = default_, .help = help_                   \
    }
#define LKI_FLOATS(name_, default_, help_)                                                                   \
    {                                                                                                        \
        .name = name_, .type = LK_PARAMETER_FLOATS, .default_value = default_, .help = help_                 \
    }
/* Numbers of which each may be null, which the help explains. */
#define LKI_FLOAT_OR_NULL(name_, default_, help_)                                                            \
    {                                                                                                        \
        .name = name_, .type = LK_PARAMETER_FLOAT, .default_value = default_, .help = help_,                 \
        .takes_null = true                                                                                   \
    }
#define LKI_INTS_OR_NULL(name_, default_, help_)                                                             \
    {                                                                                                        \
        .name = name_, .type = LK_PARAMETER_INTS, .default_value = default_, .help = help_,                  \
        .takes_null = true                                                                                   \
    }
#define LKI_STRINGS(name_, default_, help_)                                                                  \
    {                                                                                                        \
        .name = name_, .type = LK_PARAMETER_STRINGS, .default_value = default_, .help = help_                \
    }
#define LKI_OBJECT(name_, kind_, default_, help_)                                                            \
    {                                                                                                        \
        .name = name_, .type = LK_PARAMETER_OBJECT, .kind = LK_KIND_##kind_, .default_value = default_,      \
        .help = help_                                                                                        \
    }
#define LKI_OBJECTS(name_, kind_, default_, help_)                                                           \
    {                                                                                                        \
        .name = name_, .type = LK_PARAMETER_OBJECTS, .kind = LK_KIND_##kind_, .default_value = default_,     \
        .help = help_                                                                                        \
    }
/* A tensor: an object, the path of a .npy file, or the numbers themselves. */
#define LKI_TENSOR(name_, default_, help_)                                                                   \
    {                                                                                                        \
        .name = name_, .type = LK_PARAMETER_OBJECT, .kind = LK_KIND_TENSOR, .default_value = default_,       \
        .help = help_, .takes_paths = true, .takes_numbers = true                                            \
    }
/* A part of the file that the builder reads for itself. */
#define LKI_TREE(name_, help_)                                                                               \
    {                                                                                                        \
        .name = name_, .type = LK_PARAMETER_ANY, .default_value = LKI_OPTIONAL, .help = help_                \
    }
/* What other programs' configs may say. A value other than `same_` changes nothing here, which a run says
 * with the reason `why_`; or it is refused with what to do `instead_`. */
#define LKI_NO_EFFECT(name_, same_, why_)                                                                    \
    {                                                                                                        \
        .name = name_, .type = LK_PARAMETER_ANY, .default_value = LKI_OPTIONAL, .choices = same_,            \
        .help = why_, .no_effect = true                                                                      \
    }
#define LKI_REFUSED(name_, same_, instead_)                                                                  \
    {                                                                                                        \
        .name = name_, .type = LK_PARAMETER_ANY, .default_value = LKI_OPTIONAL, .choices = same_,            \
        .help = instead_, .refused = true                                                                    \
    }
#define LKI_IGNORED(name_, help_) LKI_NO_EFFECT(name_, NULL, help_)

/* The names that Catalyst gives a callback: Accuracy is AccuracyCallback in two of its modules. */
#define LKI_CALLBACK_NAMES(name_)                                                                            \
    name_ "Callback catalyst.callbacks." name_ "Callback catalyst.dl." name_ "Callback"

/* A callback with the table and the function of that name; and one that its constructor alone makes. */
#define LKI_CALLBACK(name_, help_, table_)                                                                   \
    {                                                                                                        \
        .name = name_, .aliases = LKI_CALLBACK_NAMES(name_), .kind = LK_KIND_CALLBACK, .help = help_,        \
        .parameters = table_##_parameters, .build = build_##table_                                           \
    }
#define LKI_PLAIN_CALLBACK(name_, help_, create_)                                                            \
    {                                                                                                        \
        .name = name_, .aliases = LKI_CALLBACK_NAMES(name_), .kind = LK_KIND_CALLBACK, .help = help_,        \
        .build = lki_build_plain_callback, .context = &(const lki_plain_callback)                            \
        {                                                                                                    \
            create_                                                                                          \
        }                                                                                                    \
    }
struct lk_callback;
typedef struct lki_plain_callback {
    struct lk_callback *(*create)(void);
} lki_plain_callback;
lk_status lki_build_plain_callback(const lk_component *self, lk_args *args, void **out);

extern const lk_component lki_module_components[];
extern const lk_component lki_transformer_components[];
extern const lk_component lki_window_components[];
extern const lk_component lki_node_components[];
extern const lk_component lki_zoo_components[];
extern const lk_component lki_more_module_components[];
extern const lk_component lki_rest_module_components[];
extern const lk_component lki_criterion_components[];
extern const lk_component lki_contrib_components[];
extern const lk_component lki_contrib_loss_components[];
extern const lk_component lki_contrib_layer_components[];
extern const lk_component lki_optimizer_components[];
extern const lk_component lki_scheduler_components[];
extern const lk_component lki_data_components[];
extern const lk_component lki_sampler_components[];
extern const lk_component lki_file_components[];
extern const lk_component lki_text_components[];
extern const lk_component lki_transform_components[];
extern const lk_component lki_picture_components[];
extern const lk_component lki_collection_components[];
extern const lk_component lki_metric_components[];
extern const lk_component lki_callback_components[];
extern const lk_component lki_control_components[];
extern const lk_component lki_catalyst_callback_components[];
extern const lk_component lki_function_components[];
extern const lk_component lki_run_components[];
extern const lk_component lki_call_components[];

/* Residual, with or without a shortcut. */
lk_status lki_build_residual(const lk_component *self, lk_args *args, void **out);

struct lk_tensor;
struct lk_dataset;

/* The tensor that an LKI_TENSOR argument stands for, the caller's; *out is NULL where it was left out. The
 * second is for one of several, which must be objects or paths, the third for a list of numbers. */
lk_status lki_arg_tensor(lk_args *args, const char *name, struct lk_tensor **out);
lk_status lki_arg_tensor_at(lk_args *args, const char *name, int index, struct lk_tensor **out);
lk_status lki_arg_numbers(lk_args *args, const char *name, struct lk_tensor **out);

/* The targets of a dataset as i64, the caller's. Every sample is read. */
lk_status lki_dataset_labels(struct lk_dataset *dataset, struct lk_tensor **out);

/* A tensor of a .pt, .npy, .safetensors or HDF5 file; `name` says which, of several; NULL: the only one. */
struct lk_tensor *lki_read_tensor(const char *path, const char *name);

/* The dataset with the transforms of the argument "transform", where it is given; consumes the dataset, on
 * failure too. */
struct lk_dataset *lki_transform_dataset(lk_args *args, struct lk_dataset *dataset);

/* Takes an argument's transforms, those inside a Compose one by one; they are the caller's. */
struct lk_transform;
lk_status lki_take_transforms(lk_args *args, const char *name, struct lk_transform **items, int capacity,
                              int *count);

/* The same, except that a Compose stays one transform: for a transform of transforms. */
lk_status lki_take_children(lk_args *args, const char *name, struct lk_transform **items, int capacity,
                            int *count);

/* Stores what a constructor returned; a NULL is the failure that it reported. */
lk_status lki_built(void *object, void **out);

/* The same for a dataset whose component has LKI_DTYPE among its parameters. Takes the dataset over. */
struct lk_dataset;
lk_status lki_built_with_dtypes(lk_args *args, struct lk_dataset *dataset, void **out);
#define LKI_DTYPE                                                                                            \
    LKI_STRINGS(                                                                                             \
        "dtype", LKI_OPTIONAL,                                                                               \
        "dtypes of the fields in their order, or auto; what model and criterion need where left out")

/* The position of `text` among "a|b|c"; -1 where it is none of them. */
int lki_choice_index(const char *choices, const char *text);

#endif
