/* From config to objects: binding, checking, references, order, and who frees what. The components here are
 * made of plain structs that count how many of them live. */
#include "lktest.h"

#include "base/memory.h"
#include "config/build.h"
#include "config/config.h"
#include "config/registry.h"

#include <lockstep/config.h>

typedef struct thing {
    struct thing *parts[8];
    int part_count;
    char text[256];
} thing;

static int living;
static char log_text[1024];

static void free_thing(void *object)
{
    thing *t = object;
    for (int i = 0; i < t->part_count; i++) free_thing(t->parts[i]);
    lki_free(t);
    living--;
}

static thing *new_thing(const char *name)
{
    thing *t = LKI_NEW(thing);
    living++;
    snprintf(log_text + strlen(log_text), sizeof log_text - strlen(log_text), "%s ", name);
    return t;
}

static lk_status build_layer(const lk_component *self, lk_args *args, void **out)
{
    if (lk_arg_int(args, "in") < 0) return lki_fail(LK_ERR_INVALID, "in: expected at least 0");
    thing *t = new_thing(self->name);
    snprintf(t->text, sizeof t->text, "%d->%d bias=%d mode=%s scale=%g", lk_arg_int(args, "in"),
             lk_arg_int(args, "out"), lk_arg_bool(args, "bias"), lk_arg_string(args, "mode"),
             lk_arg_float(args, "scale"));
    *out = t;
    return LK_OK;
}

/* Takes every part by its name in the table's context: "args" for a chain, "dataset" for a loader, ... */
static lk_status build_holder(const lk_component *self, lk_args *args, void **out)
{
    const char *part = self->context;
    thing *t = new_thing(self->name);
    for (int i = 0; i < lk_arg_count(args, part); i++) {
        const char *key = lk_arg_key_at(args, part, i), *path = lk_arg_path_at(args, part, i);
        if (path) snprintf(t->text + strlen(t->text), 64, "[%s]", path);
        if (key) snprintf(t->text + strlen(t->text), 64, "%s=%s ", key, lk_arg_component_at(args, part, i));
        thing *taken = lk_arg_take_at(args, part, i);
        if (taken) t->parts[t->part_count++] = taken;
    }
    *out = t;
    return LK_OK;
}

static lk_status build_optimizer(const lk_component *self, lk_args *args, void **out)
{
    thing *t = new_thing(self->name);
    snprintf(t->text, sizeof t->text, "model=%d lr=%g betas=%g,%g", lk_arg_peek(args, "params") != NULL,
             lk_arg_float(args, "lr"), lk_arg_float_at(args, "betas", 0), lk_arg_float_at(args, "betas", 1));
    *out = t;
    return LK_OK;
}

static lk_status build_liar(const lk_component *self, lk_args *args, void **out)
{
    *out = new_thing(self->name);
    lk_arg_int(args, "not_in_the_table");
    return LK_OK;
}

static lk_status call_train(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    (void)out;
    free_thing(lk_arg_take(args, "optimizer"));
    return LK_OK;
}

static const lk_parameter layer_parameters[] = {
    {.name = "in", .type = LK_PARAMETER_INT, .help = "the inputs"},
    {.name = "out", .type = LK_PARAMETER_INT, .help = "the outputs"},
    {.name = "bias", .type = LK_PARAMETER_BOOL, .default_value = "true", .help = "add a bias"},
    {.name = "mode", .type = LK_PARAMETER_STRING, .default_value = "mean", .choices = "mean|sum|none"},
    {.name = "scale", .type = LK_PARAMETER_FLOAT, .default_value = "1.5"},
    {.name = "device", .type = LK_PARAMETER_ANY, .default_value = ""},
    {0},
};
static const lk_parameter chain_parameters[] = {
    {.name = "args", .type = LK_PARAMETER_OBJECTS, .kind = LK_KIND_MODULE, .default_value = ""}, {0}};
static const lk_parameter optimizer_parameters[] = {
    {.name = "params", .type = LK_PARAMETER_OBJECT, .kind = LK_KIND_PARAMETERS, .default_value = ""},
    {.name = "lr", .type = LK_PARAMETER_FLOAT, .default_value = "0.001"},
    {.name = "betas", .type = LK_PARAMETER_FLOATS, .default_value = "[0.9, 0.999]"},
    {0},
};
static const lk_parameter runner_parameters[] = {
    {.name = "model", .type = LK_PARAMETER_OBJECTS, .kind = LK_KIND_MODULE},
    {.name = "input_key", .type = LK_PARAMETER_STRINGS, .default_value = "features"},
    {0},
};
static const lk_parameter loader_parameters[] = {
    {.name = "dataset", .type = LK_PARAMETER_OBJECT, .kind = LK_KIND_DATASET}, {0}};
static const lk_parameter tensor_parameters[] = {
    {.name = "tensors", .type = LK_PARAMETER_OBJECTS, .kind = LK_KIND_TENSOR, .takes_paths = true}, {0}};
static const lk_parameter train_parameters[] = {
    {.name = "optimizer", .type = LK_PARAMETER_OBJECT, .kind = LK_KIND_OPTIMIZER},
    {.name = "loaders", .type = LK_PARAMETER_OBJECTS, .kind = LK_KIND_LOADER, .default_value = ""},
    {.name = "num_epochs", .type = LK_PARAMETER_INT, .default_value = "1"},
    {.name = "seed", .type = LK_PARAMETER_INT64, .default_value = "42"},
    {0},
};

static const lk_component components[] = {
    {.name = "Layer",
     .aliases = "x.nn.Layer x.Layer",
     .kind = LK_KIND_MODULE,
     .help = "A layer.",
     .parameters = layer_parameters,
     .build = build_layer,
     .free = free_thing},
    {.name = "Plain",
     .kind = LK_KIND_MODULE,
     .help = "A layer of nothing.",
     .build = build_holder,
     .free = free_thing,
     .parameters = chain_parameters,
     .context = "args"},
    {.name = "Chain",
     .aliases = "x.nn.Chain",
     .kind = LK_KIND_MODULE,
     .help = "Layers in a row.",
     .parameters = chain_parameters,
     .rest = "args",
     .build = build_holder,
     .free = free_thing,
     .context = "args"},
    {.name = "Opt",
     .kind = LK_KIND_OPTIMIZER,
     .help = "An optimizer.",
     .parameters = optimizer_parameters,
     .build = build_optimizer,
     .free = free_thing},
    {.name = "Runner",
     .kind = LK_KIND_RUNNER,
     .help = "A runner.",
     .parameters = runner_parameters,
     .build = build_holder,
     .free = free_thing,
     .context = "model"},
    {.name = "Loader",
     .kind = LK_KIND_LOADER,
     .help = "A loader.",
     .parameters = loader_parameters,
     .build = build_holder,
     .free = free_thing,
     .context = "dataset"},
    {.name = "Tensors",
     .kind = LK_KIND_DATASET,
     .help = "Tensors.",
     .parameters = tensor_parameters,
     .rest = "tensors",
     .build = build_holder,
     .free = free_thing,
     .context = "tensors"},
    {.name = "fetch",
     .aliases = "x.load",
     .kind = LK_KIND_TENSOR,
     .help = "A tensor.",
     .parameters = chain_parameters,
     .build = build_holder,
     .free = free_thing,
     .context = "args"},
    {.name = "Liar",
     .kind = LK_KIND_MODULE,
     .help = "Reads what it does not have.",
     .build = build_liar,
     .free = free_thing},
    {.name = "teach",
     .kind = LK_KIND_CALL,
     .help = "Trains.",
     .parameters = train_parameters,
     .build = call_train},
};

static int add_components(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof components / sizeof *components; i++)
        if (lk_component_add(&components[i])) {
            print_error("%s\n", lk_error());
            return -1;
        }
    return 0;
}

static int forget_components(void **state)
{
    (void)state;
    lki_registry_reset();
    return 0;
}

/* Plans and builds a config; the objects under "runner" and so on can be looked at before it is freed. */
typedef struct world {
    lk_config *config;
    lki_plan plan;
} world;

static lk_status open_world(world *w, const char *text)
{
    log_text[0] = 0;
    w->config = lk_config_create();
    w->plan = (lki_plan){.tree = &w->config->tree};
    LKI_TRY(lk_config_load_text(w->config, "c.yml", text));
    LKI_TRY(lki_plan_make(&w->plan));
    return lki_plan_build(&w->plan);
}

static void close_world(world *w)
{
    lki_plan_fini(&w->plan);
    lk_config_free(w->config);
    assert_int_equal(living, 0);
}

static const thing *thing_at(const world *w, const char *key)
{
    return lki_node_object(lki_node_get(w->config->tree.root, key))->pointer;
}

static void check_text(const char *config, const char *expected)
{
    world w;
    lkt_ok(open_world(&w, config));
    assert_string_equal(thing_at(&w, "a")->text, expected);
    close_world(&w);
}

static void test_arguments_by_name_and_position(void **state)
{
    (void)state;
    check_text("a: {_target_: Layer, in: 3, out: 4}", "3->4 bias=1 mode=mean scale=1.5");
    check_text("a: {_target_: x.nn.Layer, out: 4, in: 3, bias: n, mode: sum, scale: 2}",
               "3->4 bias=0 mode=sum scale=2");
    check_text("a: {_target_: x.Layer, args: [3, 4, off]}", "3->4 bias=0 mode=mean scale=1.5");
    check_text("a: {_target_: Layer, args: [3], kwargs: {out: 4}}", "3->4 bias=1 mode=mean scale=1.5");
    check_text("a: {_target_: Layer, in: 3, out: 4, device: {any: [thing]}, _mode_: auto}",
               "3->4 bias=1 mode=mean scale=1.5");
    check_text("a: {_target_: Tensors, args: [X.npy, y.npy]}", "[X.npy][y.npy]");
    check_text("a: {_target_: Tensors, tensors: [X.npy, {_target_: x.load, _mode_: call}]}", "[X.npy]");
    check_text("a: {_target_: Opt, betas: [0.5, 0.9]}", "model=0 lr=0.001 betas=0.5,0.9");
    check_text("a: {_target_: Opt}", "model=0 lr=0.001 betas=0.9,0.999");
}

static void test_children_are_built_in_file_order(void **state)
{
    (void)state;
    world w;
    lkt_ok(open_world(
        &w, "shared: {first: {_target_: Layer, in: 1, out: 1}}\n"
            "runner:\n  _target_: Runner\n  model:\n    _var_: model\n    _target_: Chain\n    args:\n"
            "    - {_target_: Layer, in: 1, out: 2}\n    - Plain\n    - {_target_: Plain}\n"
            "after: {_target_: Opt, params: {_var_: model.parameters}}\n"));
    assert_string_equal(log_text, "Layer Layer Plain Plain Chain Runner Opt ");
    assert_int_equal(thing_at(&w, "runner")->parts[0]->part_count, 3);
    lkt_contains(thing_at(&w, "after")->text, "model=1");
    close_world(&w);
}

static void test_maps_of_objects(void **state)
{
    (void)state;
    world w;
    lkt_ok(open_world(&w,
                      "a:\n  _target_: Runner\n  model:\n    encoder: {_target_: Plain}\n    head: Plain\n"));
    assert_string_equal(thing_at(&w, "a")->text, "encoder=Plain head=Plain ");
    close_world(&w);
    lkt_ok(open_world(&w, "a: {_target_: Chain, args: {one: Plain, two: Plain}}\n"));
    assert_string_equal(thing_at(&w, "a")->text, "one=Plain two=Plain ");
    close_world(&w);
}

static void test_a_loader_named_once_serves_twice(void **state)
{
    (void)state;
    world w;
    lkt_ok(open_world(&w, "shared: {_var_: data, _target_: Tensors, args: [X.npy]}\n"
                          "one: {_target_: Loader, dataset: {_var_: data}}\n"
                          "two: {_target_: Loader, dataset: {_var_: data}}\n"));
    assert_ptr_not_equal(thing_at(&w, "one")->parts[0], thing_at(&w, "two")->parts[0]);
    close_world(&w);
}

static void test_the_latest_of_a_name_is_meant(void **state)
{
    (void)state;
    world w;
    lkt_ok(open_world(&w, "a: {_var_: x, _target_: Plain}\nb: {_var_: x, _target_: Layer, in: 1, out: 1}\n"
                          "c: {_target_: Chain, args: [{_var_: x}]}\n"));
    assert_string_equal(thing_at(&w, "c")->parts[0]->text, "1->1 bias=1 mode=mean scale=1.5");
    close_world(&w);
}

static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"a:\n  _target_: x.nn.Lyer\n",
         "c.yml:2: _target_: unknown component \"x.nn.Lyer\"; did you mean \"x.nn.Layer\"?"},
        {"a: {_target_: torch.nn.Layer}", "did you mean \"Layer\"?"},
        {"a: {_target_: [1]}", "c.yml:1: _target_: expected a string, found a list"},
        {"a: {_target_: ~}", "_target_: expected a string, found nothing"},
        {"a: {_target_: teach}", "unknown component \"teach\""},
        {"a:\n  _target_: Layer\n  in: 1\n  out: 2\n  bais: y\n",
         "c.yml:5: Layer: unknown key \"bais\"; did you mean \"bias\"?"},
        {"a: {_target_: Layer, in: 1, out: 2, kwargs: {xyz: 1}}", "unknown key \"xyz\""},
        {"a: {_target_: Layer, in: 1, out: 2, kwargs: 5}", "kwargs: expected a map"},
        {"a:\n  _target_: Layer\n  in: 1\n", "c.yml:2: Layer: \"out\" is missing"},
        {"a: {_target_: Layer, in: ~, out: 1}", "\"in\" is missing"},
        {"a: {_target_: Layer, args: [1, 2], in: 3}", "c.yml:1: Layer: \"in\" is given twice"},
        {"a: {_target_: Layer, args: [1, 2, y, sum, 1, 2, 3]}",
         "Layer: takes at most 6 positional arguments"},
        {"a: {_target_: Layer, args: 5}", "args: expected a list of positional arguments"},
        {"a:\n  _target_: Layer\n  in: ten\n  out: 1\n", "c.yml:3: in: expected an integer, found \"ten\""},
        {"a: {_target_: Layer, in: 1.5, out: 1}", "in: expected an integer, found \"1.5\""},
        {"a: {_target_: Layer, in: 3000000000, out: 1}", "in: 3000000000 is out of range"},
        {"a: {_target_: Layer, in: [1, 2], out: 1}", "in: expected an integer, found a list"},
        {"a: {_target_: Layer, in: 1, out: 1, bias: maybe}",
         "bias: expected a boolean (true or false), found \"maybe\""},
        {"a: {_target_: Layer, in: 1, out: 1, bias: null}",
         "bias: expected a boolean (true or false), found nothing"},
        {"a: {_target_: Layer, in: 1, out: 1, mode: ~}", "mode: expected a string, found nothing"},
        {"a: {_target_: Layer, in: 1, out: 1, mode: avg}",
         "mode: expected one of mean|sum|none, found \"avg\""},
        {"a: {_target_: Layer, in: 1, out: 1, mode: mea}", "mode: expected one of"},
        {"a: {_target_: Layer, in: 1, out: 1, scale: {a: 1}}", "scale: expected a number, found a map"},
        {"a: {_target_: Opt, betas: [0.5, x]}", "betas: expected a number, found \"x\""},
        {"a: {_target_: Runner, model: {_target_: Opt}}",
         "model: expected a module, found Opt, an optimizer"},
        {"a: {_target_: Runner, model: 5}", "model: unknown component \"5\""},
        {"a: {_target_: Runner, model: Opt}", "model: expected a module, found Opt, an optimizer"},
        {"a: {_target_: Loader, dataset: {path: x}}", "dataset: expected a dataset, found a map"},
        {"a: {_target_: Chain, args: [{_target_: Plain}, [1]]}", "args: expected a module, found a list"},
        {"a: {_target_: Chain, args: [Layer]}", "c.yml:1: Layer: \"in\" is missing"},
        {"a:\n- {_target_: Opt, params: {_var_: nobody.parameters}}",
         "c.yml:2: _var_: nothing before this is named \"nobody\""},
        {"m: {_var_: model, _target_: Plain}\na: {_target_: Opt, params: {_var_: modle.parameters}}",
         "did you mean \"model\"?"},
        {"m: {_var_: model, _target_: Plain}\na: {_target_: Opt, params: {_var_: model}}",
         "params: expected parameters, as in {_var_: model.parameters}, found Plain, a module"},
        {"m: {_var_: model, _target_: Plain}\na: {_target_: Opt, params: {_var_: model.weights}}",
         "params: Plain has no \"weights\" that a config can use"},
        {"m: {_var_: model, _target_: Plain}\na: {_target_: Chain, args: [{_var_: model.parameters}]}",
         "args: expected a module, found the parameters of Plain"},
        {"m: {_var_: model, _target_: Plain}\na: {_var_: model, lr: 1}",
         "c.yml:2: _var_: a reference takes no \"lr\""},
        {"a: {_target_: Plain, _mode_: partial}", "_mode_: partial is for functions; Plain is a module"},
        {"a: {_target_: Plain, _mode_: sometimes}", "_mode_: expected auto, call or partial"},
        {"a: {_target_: Plain, _var_: [x]}", "_var_: expected a string, found a list"},
        {"run: train", "c.yml:1: run: expected a list of calls, found \"train\""},
        {"run: [train]", "each item is a call of the runner and needs _call_"},
        {"run: [{_call_: taech}]", "c.yml:1: _call_: unknown component \"taech\"; did you mean \"teach\"?"},
        {"run: [{_call_: Layer}]", "_call_: unknown component \"Layer\""},
        {"run: [{_call_: teach, optimizer: Opt, num_epoch: 3}]",
         "teach: unknown key \"num_epoch\"; did you mean \"num_epochs\"?"},
        {"run: [{_call_: teach}]", "teach: \"optimizer\" is missing"},
        /* Found by the builder itself: place and name come before its sentence. */
        {"ok: {_target_: Plain}\na: {_target_: Layer, in: -1, out: 1}",
         "c.yml:2: Layer: in: expected at least 0"},
        {"a: {_target_: Liar}", "component Liar reads \"not_in_the_table\""},
        {"m: {_var_: m, _target_: Plain}\na: {_target_: Chain, args: [{_var_: m}, {_var_: m}]}",
         "c.yml:1: Plain: this module is used in two places"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        world w;
        if (open_world(&w, cases[i].text) == LK_OK) fail_msg("no error from:\n%s", cases[i].text);
        if (!strstr(lk_error(), cases[i].message))
            fail_msg("from:\n%s\nexpected: %s\nfound:    %s", cases[i].text, cases[i].message, lk_error());
        close_world(&w);
    }
}

static void test_nothing_is_built_where_a_mistake_comes_later(void **state)
{
    (void)state;
    world w;
    assert_int_not_equal(open_world(&w, "a: {_target_: Plain}\nb: {_target_: Nonsense}\n"), LK_OK);
    assert_string_equal(log_text, "");
    close_world(&w);
}

static void test_checking_a_whole_config(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"shared: 1", "c.yml:1: \"runner\" is missing"},
        {"runner: {_target_: Runner, model: Plain}", "\"run\" is missing"},
        {"runner: {_target_: Runner, model: Plain}\nrun: []", "\"run\" is missing"},
        {"runner: {_target_: Plain}\nrun: [{_call_: teach, optimizer: Opt}]", "runner: expected a runner"},
        {"runner: x\nrun: [{_call_: teach, optimizer: Opt}]", "runner: expected a runner"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lk_config *config = lk_config_create();
        lkt_ok(lk_config_load_text(config, "c.yml", cases[i].text));
        lkt_fails(lk_config_check(config), LK_ERR_CONFIG, cases[i].message);
        lk_config_free(config);
    }
    lk_config *config = lk_config_create();
    lkt_fails(lk_config_check(config), LK_ERR_CONFIG, "the config is empty");
    lkt_ok(lk_config_load_text(
        config, "c.yml", "runner: {_target_: Runner, model: Plain}\nrun: [{_call_: teach, optimizer: Opt}]"));
    lkt_ok(lk_config_check(config));
    lkt_ok(lk_config_override(config, "run/0/num_epochs=fast"));
    lkt_fails(lk_config_check(config), LK_ERR_CONFIG,
              "--run/0/num_epochs=fast: num_epochs: expected an integer, found \"fast\"");
    lkt_ok(lk_config_override(config, "run/0/num_epochs=3"));
    lkt_ok(lk_config_check(config));
    lk_config_free(config);
}

/* One who reads the file meanwhile reads all of what it was. */
static void check_write_replaces(lk_config *config, const char *path)
{
    char text[64] = "";
    FILE *earlier = fopen(path, "r");
    assert_non_null(earlier);
    lkt_ok(lk_config_override(config, "b=2"));
    lkt_ok(lk_config_write(config, path));
    text[fread(text, 1, sizeof text - 1, earlier)] = 0;
    fclose(earlier);
    assert_string_equal(text, "b: 1\na: [x]\n");
}

static void test_writing_a_config(void **state)
{
    (void)state;
    lk_config *config = lk_config_create();
    char path[1100], text[64] = "";
    snprintf(path, sizeof path, "%s/config.yml", lkt_scratch_folder("config_write"));
    lkt_ok(lk_config_load_text(config, "c.yml", "b: 1\na: [x]\n"));
    lkt_ok(lk_config_write(config, path));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    assert_string_equal(text, "b: 1\na: [x]\n");
    check_write_replaces(config, path);
    lkt_fails(lk_config_write(config, "/no/such/folder/config.yml"), LK_ERR_IO,
              "/no/such/folder/config.yml: could not create");
    lkt_fails(lk_config_write(config, "/dev/full"), LK_ERR_IO, "/dev/full: could not write: No space left");
    lk_config_free(config);
}

static void test_adding_components(void **state)
{
    (void)state;
    static const lk_component same = {.name = "Layer", .kind = LK_KIND_MODULE, .build = build_layer};
    static const lk_component same_alias = {
        .name = "Fresh", .aliases = "y.Fresh x.nn.Layer", .build = build_layer};
    static const lk_component no_build = {.name = "Fresh"};
    static const lk_component no_kind = {.name = "Fresh", .kind = 99, .build = build_layer};
    static const lk_component no_rest = {.name = "Fresh", .rest = "args", .build = build_layer};
    lkt_fails(lk_component_add(&same), LK_ERR_INVALID, "already taken by Layer");
    lkt_fails(lk_component_add(&same_alias), LK_ERR_INVALID, "already taken by Layer");
    lkt_fails(lk_component_add(&no_build), LK_ERR_INVALID, "needs a name and a build function");
    lkt_fails(lk_component_add(&no_kind), LK_ERR_INVALID, "unknown kind");
    lkt_fails(lk_component_add(&no_rest), LK_ERR_INVALID, "has no parameter \"args\"");
    lkt_fails(lk_component_add(NULL), LK_ERR_INVALID, "needs a name");
    assert_null(lk_component_find("x.nn"));
    assert_null(lk_component_find(""));
    assert_ptr_equal(lk_component_find("x.Layer"), &components[0]);
}

static void test_help_says_what_the_table_says(void **state)
{
    (void)state;
    char *text = NULL;
    size_t nbytes;
    FILE *out = open_memstream(&text, &nbytes);
    lki_component_print_help(out, &components[0]);
    lki_component_print_markdown(out, &components[0]);
    fclose(out);
    lkt_contains(text, "Layer (module): A layer.");
    lkt_contains(text, "Also called: x.nn.Layer x.Layer");
    lkt_contains(text, "in      integer, required");
    lkt_contains(text, "mode    mean|sum|none, default mean");
    lkt_contains(text, "- `mode`: mean|sum|none; default mean;");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments_by_name_and_position),
        cmocka_unit_test(test_children_are_built_in_file_order),
        cmocka_unit_test(test_maps_of_objects),
        cmocka_unit_test(test_a_loader_named_once_serves_twice),
        cmocka_unit_test(test_the_latest_of_a_name_is_meant),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_nothing_is_built_where_a_mistake_comes_later),
        cmocka_unit_test(test_checking_a_whole_config),
        cmocka_unit_test(test_writing_a_config),
        cmocka_unit_test(test_adding_components),
        cmocka_unit_test(test_help_says_what_the_table_says),
    };
    return cmocka_run_group_tests(tests, add_components, forget_components);
}
