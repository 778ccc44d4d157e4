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
     "only these: module, criterion, optimizer, callback, ...", 0},
    LKI_EXPDIR_OPTION(OFFSET(expdir)),
    {"names", 0, LKI_OPTION_FLAG, OFFSET(names), NULL, NULL, "every name alone, one a line", 0},
    {"markdown", 0, LKI_OPTION_FLAG, OFFSET(markdown), NULL, NULL, "the reference page", 0},
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

static bool is_kind(const char *name)
{
    for (int kind = 0; kind < LK_KIND_COUNT; kind++)
        if (!strcmp(name, lk_component_kind_name(kind))) return true;
    return false;
}

static int run(const void *pointer)
{
    const components_options *options = pointer;
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
    for (int kind = 0; kind < LK_KIND_COUNT; kind++)
        if (!options->kind || !strcmp(options->kind, lk_component_kind_name(kind)))
            print_kind(kind, options->markdown);
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
