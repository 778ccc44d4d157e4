/* Configs: YAML files that say what to build and run, and the registry of components that they
 * may name.
 *
 * A config is loaded from one or more files, in which later files override earlier ones, and
 * changed with overrides. Running it builds its objects in the order of the file and makes the
 * calls under `run:`. Every mistake is one sentence with file and line in lk_error(), found
 * before anything is built.
 *
 * A component is declared once, in one lk_component: its names, its parameters with their
 * defaults and help, and the function that builds it. The check of configs, `lockstep help` and
 * the reference pages all use that declaration. The library has its own components. LK_COMPONENTS
 * and lk_component_add add more, before a config is loaded.
 *
 * Life: the caller frees a config. Components must outlive the configs that name them. Threads: a
 * config belongs to one thread. */
#ifndef LOCKSTEP_CONFIG_H
#define LOCKSTEP_CONFIG_H

#include <lockstep/sized.h>
#include <lockstep/status.h>
#include <lockstep/version.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(SYMBOL, "name", "with its article"): what a component gives. */
#define LK_COMPONENT_KIND_LIST(X)                                                                            \
    X(MODULE, "module", "a module")                                                                          \
    X(CRITERION, "criterion", "a criterion")                                                                 \
    X(OPTIMIZER, "optimizer", "an optimizer")                                                                \
    X(SCHEDULER, "scheduler", "a scheduler")                                                                 \
    X(DATASET, "dataset", "a dataset")                                                                       \
    X(LOADER, "loader", "a loader")                                                                          \
    X(SAMPLER, "sampler", "a sampler")                                                                       \
    X(TRANSFORM, "transform", "a transform")                                                                 \
    X(CALLBACK, "callback", "a callback")                                                                    \
    X(LOGGER, "logger", "a logger")                                                                          \
    X(ENGINE, "engine", "an engine")                                                                         \
    X(RUNNER, "runner", "a runner")                                                                          \
    X(ESTIMATOR, "estimator", "an estimator")                                                                \
    X(METRIC, "metric", "a metric")                                                                          \
    X(PARAMETERS, "parameters", "parameters, as in {_var_: model.parameters}")                               \
    X(TENSOR, "tensor", "a tensor")                                                                          \
    X(FUNCTION, "function", "a function")                                                                    \
    X(CALL, "call", "a call")

typedef enum lk_component_kind {
#define X(symbol, name, phrase) LK_KIND_##symbol,
    LK_COMPONENT_KIND_LIST(X)
#undef X
        LK_KIND_COUNT
} lk_component_kind;

/* What a parameter takes. */
typedef enum lk_parameter_type {
    LK_PARAMETER_INT,     /* fits an int */
    LK_PARAMETER_INT64,   /* a seed, a number of samples */
    LK_PARAMETER_FLOAT,   /* a double */
    LK_PARAMETER_BOOL,    /* y, n, yes, no, true, false, on, off */
    LK_PARAMETER_STRING,  /* any text, or one of `choices` */
    LK_PARAMETER_INTS,    /* a list of int, or one */
    LK_PARAMETER_FLOATS,  /* a list of numbers, or one */
    LK_PARAMETER_STRINGS, /* a list of texts, or one */
    /* One object of `kind`, or the name of a component that needs no arguments. */
    LK_PARAMETER_OBJECT,
    LK_PARAMETER_OBJECTS, /* one object, a list of them, or a map of them by key */
    LK_PARAMETER_ANY,     /* anything: not checked, and nothing is built from it */
} lk_parameter_type;

typedef struct lk_parameter {
    const char *name; /* NULL ends a table */
    lk_parameter_type type;
    lk_component_kind kind; /* of objects */
    /* As you would write it in a config. NULL: required. "": optional, without a value. */
    const char *default_value;
    const char *help;
    /* "mean|sum|none": the values of a string. For numbers: words that are also allowed. NULL:
     * any string, no words. */
    const char *choices;
    /* Objects: a scalar that names no component is a path, which the builder opens. */
    bool takes_paths;
    bool takes_numbers; /* tensors: a list of numbers is allowed */
    /* Lists: a map of values is allowed; lk_arg_key_at returns the keys. */
    bool takes_keys;
    /* Objects: the component that a map without `_target_` stands for; NULL: none. */
    const char *implied;

    /* Keys that other programs have and that mean nothing here. `choices` are the values that
     * describe what happens anyway. For no_effect, any other value is accepted, and a run says in
     * one line that it changes nothing and why: `help`. For refused, any other value is an error,
     * and `help` says what to write instead. */
    bool no_effect, refused;
    bool takes_null; /* numbers: null is a value of its own; see lk_arg_is_null_at */
} lk_parameter;

typedef struct lk_args lk_args;
typedef struct lk_component lk_component;

struct lk_component {
    const char *name; /* the short name, "Linear"; NULL ends a table */
    /* Other names, separated by spaces: "torch.nn.Linear"; may be NULL. */
    const char *aliases;
    lk_component_kind kind;
    const char *help;               /* one sentence */
    const lk_parameter *parameters; /* in positional order; NULL: none */
    /* The parameter that takes all further positional arguments; NULL: none. */
    const char *rest;
    /* The parameter that takes, as a map, all keys that are not in the table; NULL: none. */
    const char *extra;

    /* Builds the object and writes it to *out. The arguments are already checked. An object that
     * is taken from args belongs to the builder, also if it fails. On failure *out stays NULL,
     * and lk_error() says why. Runs on the thread that runs the config. */
    lk_status (*build)(const lk_component *self, lk_args *args, void **out);

    /* Frees an object that nothing took, because another part of the config failed. NULL: frees
     * it as its kind is freed. */
    void (*free)(void *object);

    const void *context; /* for a build function that several components share */
};

/* What components were compiled for: the version of the headers, and the sizes of the structs
 * above, which may grow in a later version. The macros below fill it in. */
typedef struct lk_build {
    size_t struct_size;
    int version; /* LK_VERSION_NUMBER */
    size_t component_nbytes, parameter_nbytes;
} lk_build;
#define LK_BUILD_                                                                                            \
    {                                                                                                        \
        sizeof(lk_build), LK_VERSION_NUMBER, sizeof(lk_component), sizeof(lk_parameter)                      \
    }

/* Adds a component, which must outlive every config that names it. Names that are taken already
 * are an error, and so is a component that was compiled for a version which this library cannot
 * run. Call it before configs are loaded; not thread-safe. */
#define lk_component_add(component) lk_component_add_built((component), &(const lk_build)LK_BUILD_)
lk_status lk_component_add_built(const lk_component *component, const lk_build *build);

/* Adds components when the program, or the shared object that lk_components_load opens, is
 * loaded. At file level, in any number of files:
 *
 *     LK_COMPONENTS(&wide_net, &own_loss);
 *
 * What goes wrong (a name that is taken, a file that was compiled for another version) is
 * reported by lk_components_load, and by every config after it. */
#define LK_COMPONENTS(...)                                                                                   \
    __attribute__((constructor)) static void LK_COMPONENTS_JOIN_(lk_components_at_, __LINE__)(void)          \
    {                                                                                                        \
        static const lk_component *const added_[] = {__VA_ARGS__};                                           \
        static const lk_build build_ = LK_BUILD_;                                                            \
        lk_components_offer(&build_, __FILE__, added_, (int)(sizeof added_ / sizeof *added_));               \
    }                                                                                                        \
    typedef int LK_COMPONENTS_JOIN_(lk_components_end_, __LINE__)
#define LK_COMPONENTS_JOIN_(a, b)  LK_COMPONENTS_JOIN2_(a, b)
#define LK_COMPONENTS_JOIN2_(a, b) a##b
void lk_components_offer(const lk_build *build, const char *file, const lk_component *const *components,
                         int count);

/* Opens a shared object and adds the components of its LK_COMPONENTS. It stays open. On failure
 * nothing is added. `lockstep run --expdir` compiles one from a folder of sources. Not
 * thread-safe. */
lk_status lk_components_load(const char *path);

/* Returns the component with this name, short or full, or NULL (lk_error() is not set). */
const lk_component *lk_component_find(const char *name);

/* Returns component `index` of all components, from 0, or NULL after the last. */
const lk_component *lk_component_at(int index);

const char *lk_component_kind_name(lk_component_kind kind);

/* What a build function reads. A parameter that was left out has its default; without a default
 * it reads as 0, false, NULL or an empty list. Strings live as long as the config. */
bool lk_arg_given(lk_args *args, const char *name);
int lk_arg_int(lk_args *args, const char *name);
int64_t lk_arg_int64(lk_args *args, const char *name);
double lk_arg_float(lk_args *args, const char *name);
bool lk_arg_bool(lk_args *args, const char *name);
const char *lk_arg_string(lk_args *args, const char *name);

/* Lists: the number of elements, and an element by its index. A single value is a list of one. */
int lk_arg_count(lk_args *args, const char *name);
bool lk_arg_is_list(lk_args *args, const char *name);
int lk_arg_int_at(lk_args *args, const char *name, int index);
double lk_arg_float_at(lk_args *args, const char *name, int index);
/* Whether the value is null, which only a parameter that takes_null can be. */
bool lk_arg_is_null_at(lk_args *args, const char *name, int index);
const char *lk_arg_string_at(lk_args *args, const char *name, int index);

/* Objects. `take` hands the object over and `peek` lends it. Both return NULL if the argument was
 * left out. The key is that of a map of objects, otherwise NULL. The component is the name of the
 * component that built the object. The path is the text of a scalar if the parameter takes paths,
 * otherwise NULL. */
void *lk_arg_take(lk_args *args, const char *name);
void *lk_arg_take_at(lk_args *args, const char *name, int index);
void *lk_arg_peek(lk_args *args, const char *name);
void *lk_arg_peek_at(lk_args *args, const char *name, int index);
const char *lk_arg_key_at(lk_args *args, const char *name, int index);
const char *lk_arg_component_at(lk_args *args, const char *name, int index);
const char *lk_arg_path_at(lk_args *args, const char *name, int index);

/* Returns the runner of the config, for calls. */
struct lk_runner *lk_args_runner(lk_args *args);

/* Returns the position of the component, "mnist.yml:14", for the messages of a builder. */
const char *lk_args_place(lk_args *args);

/* ---- One component at a time, for bindings of other languages ---- */

/* An object that exists already. Text names it as {_var_: NAME}. */
typedef struct lk_given_object {
    const char *name;
    lk_component_kind kind;
    void *object;
    bool taken; /* set by the call: the object was handed over and belongs to what took it */
} lk_given_object;

/* Builds what `text` describes, a map of YAML or JSON with _target_, and writes it to *out; it must
 * be of this kind, and the caller frees it with lk_component_dispose. A map with _call_ makes that
 * call on the runner among the given objects; `kind` is then ignored and *out stays NULL. Objects
 * are built in the order of the text, and random numbers come from the default generator. On
 * failure, what was built is freed, and so are given objects whose `taken` is set.
 *
 *     void *layer;
 *     const char *text = "{_target_: torch.nn.Linear, args: [784, 10]}";
 *     lk_status status = lk_component_make(text, NULL, 0, LK_KIND_MODULE, &layer); */
lk_status lk_component_make(const char *text, lk_given_object *given, int count, lk_component_kind kind,
                            void **out);
/* Frees an object of a kind. NULL is allowed. */
void lk_component_dispose(lk_component_kind kind, void *object);

/* Returns the model that a file describes, or NULL on failure. The file is one component (with
 * `_target_` at the top), or a config, of which the model of the runner or of the first train call
 * is built and nothing else. Weights are drawn from the default generator: call lk_manual_seed
 * before. The caller frees the model. */
struct lk_module *lk_module_from_config(const char *path);

typedef struct lk_config lk_config;

/* Returns an empty config, or NULL if memory runs out. */
lk_config *lk_config_create(void);
void lk_config_free(lk_config *config);

/* Merges a file into the config: maps key by key; lists and values are replaced. */
lk_status lk_config_load(lk_config *config, const char *path);

/* The same from text. `name` stands for the file in messages. */
lk_status lk_config_load_text(lk_config *config, const char *name, const char *text);

/* Sets one value: "run/0/num_epochs=3", "run/0/optimizer/lr=0.1:float". Missing maps are created;
 * the index of a list must exist. If the runner or exactly one call has the key, or could have
 * it, the path may begin there: "optimizer/lr=0.1". A first key that nothing in the config knows
 * is an error. */
lk_status lk_config_override(lk_config *config, const char *assignment);

/* Checks the whole config without building anything. */
lk_status lk_config_check(lk_config *config);

/* Builds what the config says, in the order of the file, and makes its calls. The generator is
 * seeded first, with the seed of the first call that has one, otherwise with 42. */
lk_status lk_config_run(lk_config *config);

/* Writes the merged config as YAML. */
lk_status lk_config_write(const lk_config *config, const char *path);

#ifdef __cplusplus
}
#endif
#endif
