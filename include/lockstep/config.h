/* Configs: YAML files that say what to build and run, and the registry of components they may name.
 *
 * A config is loaded from one or more files (later ones over earlier ones) and changed with overrides;
 * running it builds its objects in file order and makes the calls under `run:`. Every mistake is one sentence
 * with file and line in lk_error(), found before anything is built.
 *
 * A component is declared once, in one lk_component: its names, its parameters with their defaults and help,
 * and the function that builds it. From that come the checking of configs, `lockstep help` and the reference
 * pages. The library brings its own; LK_COMPONENTS and lk_component_add add more before a config is loaded. A
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
    LK_PARAMETER_STRING,  /* any text; one of `choices` where they are given */
    LK_PARAMETER_INTS,    /* a list of int, or one */
    LK_PARAMETER_FLOATS,  /* a list of numbers, or one */
    LK_PARAMETER_STRINGS, /* a list of texts, or one */
    LK_PARAMETER_OBJECT,  /* one object of `kind`, or the name of a component that needs no arguments */
    LK_PARAMETER_OBJECTS, /* one object, a list of them, or a map of them by key */
    LK_PARAMETER_ANY,     /* anything: unchecked, and no objects are built of it */
} lk_parameter_type;

typedef struct lk_parameter {
    const char *name; /* NULL ends a table */
    lk_parameter_type type;
    lk_component_kind kind;    /* objects: what they must be */
    const char *default_value; /* as one would write it in a config; NULL: required; "": may be left out, has
                                  no value */
    const char *help;
    const char
        *choices;     /* "mean|sum|none": of a string; for numbers, words that will do too; NULL: any, none */
    bool takes_paths; /* objects: a scalar that names no component is a path, for the builder to open */
    bool takes_numbers;  /* tensors: a list of numbers will do */
    bool takes_keys;     /* lists: a map of values will do; lk_arg_key_at gives their keys */
    const char *implied; /* objects: the component that a map without `_target_` stands for; NULL: none */

    /* Keys that other programs know and that mean nothing here. `choices` are the values that say what
     * happens anyhow. Any other value of the first kind is accepted, and a run says in one line that it
     * changes nothing, and why: `help`. Any other value of the second kind is an error, and `help` is what to
     * write instead. */
    bool no_effect, refused;
} lk_parameter;

typedef struct lk_args lk_args;
typedef struct lk_component lk_component;

struct lk_component {
    const char *name;    /* the short name, "Linear"; NULL ends a table */
    const char *aliases; /* other names, separated by spaces: "torch.nn.Linear"; may be NULL */
    lk_component_kind kind;
    const char *help;               /* one sentence */
    const lk_parameter *parameters; /* in positional order; NULL: none */
    const char *rest; /* the parameter that takes all further positional arguments; NULL: none */
    const char
        *extra; /* the parameter that takes, as a map, all keys that are not in the table; NULL: none */

    /* Builds the object; the arguments are checked already. An object taken from args belongs to the builder,
     * on failure too. *out is the object; on failure it stays NULL and lk_error() says why. Runs on the
     * thread that runs the config. */
    lk_status (*build)(const lk_component *self, lk_args *args, void **out);

    /* Frees an object that nothing took (another part of the config failed); NULL: as its kind is freed. */
    void (*free)(void *object);

    const void *context; /* for a build function that several components share */
};

/* What components were compiled for: the version of the headers, and the sizes of the structs above, which
 * may grow in a later version. The macros below fill it in. */
typedef struct lk_build {
    size_t struct_size;
    int version; /* LK_VERSION_NUMBER */
    size_t component_nbytes, parameter_nbytes;
} lk_build;
#define LK_BUILD_                                                                                            \
    {                                                                                                        \
        sizeof(lk_build), LK_VERSION_NUMBER, sizeof(lk_component), sizeof(lk_parameter)                      \
    }

/* Adds a component, which must outlive every config that names it. Names that are taken already are an error,
 * and so is a component that was compiled for a version which this library cannot run. Call it before configs
 * are loaded; not thread-safe. */
#define lk_component_add(component) lk_component_add_built((component), &(const lk_build)LK_BUILD_)
lk_status lk_component_add_built(const lk_component *component, const lk_build *build);

/* Adds components when the program, or the shared object that lk_components_load opens, is loaded. At file
 * level, in any number of files:
 *
 *     LK_COMPONENTS(&wide_net, &own_loss);
 *
 * What goes wrong (a name that is taken, a file that was compiled for another version) is reported by
 * lk_components_load, and by every config after it. */
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

/* Opens a shared object and takes the components that its LK_COMPONENTS name; it stays open. On failure
 * nothing is added. `lockstep run --expdir` compiles one from a folder of sources. Not thread-safe. */
lk_status lk_components_load(const char *path);

/* The component of this name, short or full; NULL where there is none (and no error is set). */
const lk_component *lk_component_find(const char *name);

/* The i-th of all components, from 0; NULL at the end. */
const lk_component *lk_component_at(int index);

const char *lk_component_kind_name(lk_component_kind kind);

/* What a build function reads. A parameter that was left out has its default; one without a default reads as
 * 0, false, NULL or an empty list. Texts live as long as the config. */
bool lk_arg_given(lk_args *args, const char *name);
int lk_arg_int(lk_args *args, const char *name);
int64_t lk_arg_int64(lk_args *args, const char *name);
double lk_arg_float(lk_args *args, const char *name);
bool lk_arg_bool(lk_args *args, const char *name);
const char *lk_arg_string(lk_args *args, const char *name);

/* Lists: how many there are, and the i-th. A single value is a list of one. */
int lk_arg_count(lk_args *args, const char *name);
bool lk_arg_is_list(lk_args *args, const char *name);
int lk_arg_int_at(lk_args *args, const char *name, int index);
double lk_arg_float_at(lk_args *args, const char *name, int index);
const char *lk_arg_string_at(lk_args *args, const char *name, int index);

/* Objects. `take` hands the object over, `peek` lends it; both give NULL where the argument was left out. The
 * key is the one in a map of objects, NULL otherwise; the name is that of the component that built the
 * object; the path is the text of a scalar where the parameter takes paths, NULL otherwise. */
void *lk_arg_take(lk_args *args, const char *name);
void *lk_arg_take_at(lk_args *args, const char *name, int index);
void *lk_arg_peek(lk_args *args, const char *name);
void *lk_arg_peek_at(lk_args *args, const char *name, int index);
const char *lk_arg_key_at(lk_args *args, const char *name, int index);
const char *lk_arg_component_at(lk_args *args, const char *name, int index);
const char *lk_arg_path_at(lk_args *args, const char *name, int index);

/* The runner of the config, for calls. */
struct lk_runner *lk_args_runner(lk_args *args);

/* "mnist.yml:14", where the component stands, for a builder's own messages. */
const char *lk_args_place(lk_args *args);

typedef struct lk_config lk_config;

/* An empty config; NULL where memory is out. */
lk_config *lk_config_create(void);
void lk_config_free(lk_config *config);

/* Merges a file over the config: maps key by key, lists and values replaced. */
lk_status lk_config_load(lk_config *config, const char *path);

/* The same from text; `name` stands for the file in messages. */
lk_status lk_config_load_text(lk_config *config, const char *name, const char *text);

/* "run/0/num_epochs=3", "run/0/optimizer/lr=0.1:float": missing maps are made, a list's index must exist.
 * What the runner or exactly one call has, or would take, may be named without them: "optimizer/lr=0.1"; a
 * first key that nothing in the config knows is an error. */
lk_status lk_config_override(lk_config *config, const char *assignment);

/* Checks the whole config without building anything. */
lk_status lk_config_check(lk_config *config);

/* Builds what the config says, in file order, and makes its calls. The generator is seeded first: with the
 * seed of the first call that has one, 42 where none has. */
lk_status lk_config_run(lk_config *config);

/* Writes the merged config as YAML. */
lk_status lk_config_write(const lk_config *config, const char *path);

#ifdef __cplusplus
}
#endif
#endif
