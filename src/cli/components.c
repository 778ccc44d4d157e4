#include "cli/commands.h"
#include "cli/load.h"

#include "base/status.h"
#include "config/registry.h"

#include <string.h>

typedef struct components_options {
    const char *kind, *expdir;
    bool names, markdown;
} components_options;

#define OFFSET(field) offsetof(components_options, field)

static const lki_option table[] = {
    {"kind", 'k', LKI_OPTION_TEXT, OFFSET(kind), "KIND", NULL,
     "only this kind: module, criterion, optimizer, callback, ...", 0},
    LKI_EXPDIR_OPTION(OFFSET(expdir)),
    {"names", 0, LKI_OPTION_FLAG, OFFSET(names), NULL, NULL, "print names only, one per line", 0},
    {"markdown", 0, LKI_OPTION_FLAG, OFFSET(markdown), NULL, NULL, "print the reference page", 0},
    {0},
};

static void print_name(const char *name, const lk_component *component, void *context)
{
    const char *kind = context;
    if (!kind || !strcmp(kind, lk_component_kind_name(component->kind))) puts(name);
}

static void print_kind(lk_component_kind kind, bool markdown)
{
    const lk_component *component;
    bool begun = false;
    for (int i = 0; (component = lk_component_at(i)); i++) {
        if (component->kind != kind) continue;
        if (!begun) printf(markdown ? "## %s\n\n" : "%s:\n", lk_component_kind_name(kind));
        begun = true;
        if (markdown)
            lki_component_print_markdown(stdout, component);
        else
            printf("  %-34s %s\n", component->name, component->help ? component->help : "");
    }
}

/* ---- The reference page ---- */

static void print_introduction(void)
{
    puts("# Components and keys\n\n"
         "This page lists every component that a config can name, with all of its keys.\n"
         "`lockstep components --markdown` prints it, and `make docs` writes it to this file.\n"
         "[config.md](config.md) explains the format.\n\n"
         "Every key has an effect; `tests/config/keys` shows it for each of them. A key that other\n"
         "programs know and that means nothing here is refused, or it is listed\n"
         "[at the end](#keys-without-an-effect).\n\n"
         "A line gives a key's name, its type, its default and its meaning.\n\n"
         "## Keys of every config\n\n"
         "At the top of a file:\n\n"
         "- `runner`: what trains; an estimator needs none\n"
         "- `run`: the list of calls, made in order\n"
         "- any other key may hold anchors, and objects with a `_var_`; a key that nothing refers to is\n"
         "  reported\n\n"
         "In a map:\n\n"
         "- `_target_`: the component that the map stands for\n"
         "- `_call_`: the call, in an item of `run`\n"
         "- `checkpoint`: of any module: `y` has the backward pass compute again what lies inside, for less\n"
         "  memory\n"
         "- `_var_`: names the object; alone, it refers to the latest object of that name\n"
         "- `_mode_`: `auto` or `call`; `partial` for functions\n"
         "- `args`: positional arguments\n"
         "- `kwargs`: further keys of the same component\n");
}

static void print_idle_key(const lk_component *component, const lk_parameter *parameter)
{
    char line[1024];
    const char *same = parameter->choices ? parameter->choices : "";
    snprintf(line, sizeof line, "- `%s` of %s%s%s: %s", parameter->name, component->name,
             *same ? ", other than " : "", same, parameter->help);
    lki_print_wrapped(stdout, line, 2);
}

static void print_idle_keys(void)
{
    const lk_component *component;
    puts("## Keys without an effect\n\n"
         "These keys are accepted so that configs of other programs run. If a run meets such a key with\n"
         "a value other than the one given here, it prints one line that says that the key changes\n"
         "nothing, and why.\n");
    for (int i = 0; (component = lk_component_at(i)); i++)
        for (const lk_parameter *p = component->parameters; p && p->name; p++)
            if (p->no_effect) print_idle_key(component, p);
}

static bool is_kind(const char *name)
{
    for (int kind = 0; kind < LK_KIND_COUNT; kind++)
        if (!strcmp(name, lk_component_kind_name(kind))) return true;
    return false;
}

static int run(const void *pointer)
{
    const components_options *options = pointer;
    if (options->names && options->markdown) {
        lki_fail(LK_ERR_CONFIG, "components: --names and --markdown exclude each other");
        return lki_report(LKI_EXIT_WRONG);
    }
    if (options->kind && !is_kind(options->kind)) {
        lki_fail(LK_ERR_CONFIG, "components: --kind: there is no kind \"%.60s\"", options->kind);
        return lki_report(LKI_EXIT_WRONG);
    }
    int exit_code = lki_load_components(options->expdir);
    if (exit_code) return exit_code;
    if (options->names) {
        lki_registry_each_name(print_name, (void *)options->kind);
        return LKI_EXIT_DONE;
    }
    bool is_page = options->markdown && !options->kind;
    if (is_page) print_introduction();
    for (int kind = 0; kind < LK_KIND_COUNT; kind++)
        if (!options->kind || !strcmp(options->kind, lk_component_kind_name(kind)))
            print_kind(kind, options->markdown);
    if (is_page) print_idle_keys();
    return LKI_EXIT_DONE;
}

const lki_command lki_command_components = {
    .name = "components",
    .usage = "[--kind KIND] [--expdir DIR] [--names | --markdown]",
    .summary = "Lists everything that a config can name.",
    .options = table,
    .options_nbytes = sizeof(components_options),
    .run = run,
};
