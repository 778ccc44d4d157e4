#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/load.h"

#include "base/status.h"
#include "config/registry.h"

#include <lockstep/version.h>

#include <string.h>

typedef struct help_options {
    lki_texts names;
    const char *expdir;
} help_options;

static const lki_option table[] = {LKI_EXPDIR_OPTION(offsetof(help_options, expdir)), {0}};

void lki_print_overview(FILE *out)
{
    fprintf(out,
            "lockstep %s: distributed training of neural networks\n\nusage: lockstep COMMAND [options]\n\n",
            lk_version());
    for (int i = 0; lki_commands[i]; i++)
        fprintf(out, "  %-12s %s\n", lki_commands[i]->name, lki_commands[i]->summary);
    fprintf(out, "\nlockstep COMMAND --help     options of a command\n"
                 "lockstep help NAME          parameters of a component\n"
                 "lockstep help environment   environment variables\n"
                 "lockstep manual             the manual\n");
}

/* ---- As lki_print_for_terminal calls them ---- */

static void print_overview(FILE *out, const void *nothing)
{
    (void)nothing;
    lki_print_overview(out);
}

static void print_command(FILE *out, const void *command)
{
    lki_command_print_help(out, command);
}

static void print_environment(FILE *out, const void *nothing)
{
    (void)nothing;
    lki_environment_print(out);
}

static void print_component(FILE *out, const void *component)
{
    lki_component_print_help(out, component);
}

static int run(const void *pointer)
{
    const help_options *options = pointer;
    int exit_code = lki_load_components(options->expdir);
    if (exit_code) return exit_code;
    if (!options->names.count) lki_print_for_terminal(print_overview, NULL);
    for (int i = 0; i < options->names.count; i++) {
        const char *name = options->names.items[i];
        const lki_command *command = lki_command_find(name);
        const lk_component *component = lk_component_find(name);
        if (i) putchar('\n');
        if (command)
            lki_print_for_terminal(print_command, command);
        else if (!strcmp(name, "environment"))
            lki_print_for_terminal(print_environment, NULL);
        else if (component)
            lki_print_for_terminal(print_component, component);
        else {
            lki_fail_unknown_component(name);
            return lki_report(LKI_EXIT_WRONG);
        }
    }
    return LKI_EXIT_DONE;
}

const lki_command lki_command_help = {
    .name = "help",
    .usage = "[--expdir DIR] [COMMAND | COMPONENT | environment ...]",
    .summary = "Explains a command or a component.",
    .options = table,
    .options_nbytes = sizeof(help_options),
    .positional = "a command or a component",
    .positional_offset = offsetof(help_options, names),
    .run = run,
};
