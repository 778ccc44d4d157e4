/* lockstep: the command. One file a subcommand; this one finds it, parses its options and runs it. */
#include "cli/after_run.h"
#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/options.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/terminal.h"
#include "config/registry.h"
#include "base/suggest.h"
#include "estimator/estimator.h"

#include <lockstep/log.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const lki_command *const lki_commands[] = {
    &lki_command_run,
    &lki_command_tune,
    &lki_command_watch,
    &lki_command_evaluate,
    &lki_command_predict,
    &lki_command_plot,
    &lki_command_board,
    &lki_command_create,
    &lki_command_gtb,
    &lki_command_get_examples,
    &lki_command_test,
    &lki_command_bench,
    &lki_command_hash,
    &lki_command_import,
    &lki_command_export,
    &lki_command_components,
    &lki_command_help,
    &lki_command_doctor,
    &lki_command_completion,
    &lki_command_version,
    &lki_command_manual,
    &lki_command_tokenize,
    NULL,
};

/* A full disk or a closed pipe shows only when the last bytes go out. */
static int finish_output(int exit_code)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return exit_code;
    fprintf(stderr, "lockstep: the output could not be written: %s\n", strerror(errno));
    return exit_code == LKI_EXIT_DONE ? LKI_EXIT_FAILED : exit_code;
}

static void print_help(FILE *out, const void *command)
{
    lki_command_print_help(out, command);
}

static int run_command(const lki_command *command, int count, char **words)
{
    void *options = lki_calloc(command->options_nbytes, "the options");
    bool wants_help = false;
    int exit_code = LKI_EXIT_DONE;
    if (!options) return lki_report(LKI_EXIT_FAILED);
    if (lki_options_parse(command, count, words, options, &wants_help))
        exit_code = lki_report(LKI_EXIT_WRONG);
    else if (wants_help)
        lki_print_for_terminal(print_help, command);
    else
        exit_code = command->run(options);
    lki_options_free(command, options);
    lki_free(options);
    return finish_output(exit_code);
}

static int unknown_command(const char *name)
{
    lki_suggestion near = {.wanted = name};
    char hint[128];
    for (int i = 0; lki_commands[i]; i++) lki_suggest_offer(&near, lki_commands[i]->name);
    lki_fail(LK_ERR_CONFIG, "unknown command \"%.100s\"%s", name,
             near.best ? lki_suggest_text(&near, hint, sizeof hint) : "; see lockstep help");
    return lki_report(LKI_EXIT_WRONG);
}

/* A line takes the place of the progress bar, which is drawn again later. */
static void log_line(const char *level, const char *line, void *context)
{
    if (isatty(STDOUT_FILENO) && lki_terminal_of(STDERR_FILENO).is_terminal) fputs("\r\x1b[K", stderr);
    lk_log_to_stderr(level, line, context);
}

int main(int argc, char **argv)
{
    atexit(lki_raise_ending_signal); /* the first to be registered is the last to run: MPI ends before it */
    lk_set_log_sink(log_line, NULL);
    lki_remember_words(argc, argv);
    if (argc < 2) {
        lki_print_overview(stderr);
        return LKI_EXIT_WRONG;
    }
    lki_environment_note();
    if (lki_estimator_components_add()) return lki_report(LKI_EXIT_FAILED);
    const char *name = argv[1];
    if (!strcmp(name, "-h") || !strcmp(name, "--help")) name = "help";
    if (!strcmp(name, "-V") || !strcmp(name, "--version")) name = "version";
    const lki_command *command = lki_command_find(name);
    int exit_code = command ? run_command(command, argc - 2, argv + 2) : unknown_command(name);
    lki_registry_reset();
    lki_end_by_signal(exit_code);
    return exit_code;
}
