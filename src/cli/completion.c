/* The completion for bash, printed from the option tables so that it cannot lag behind them. */
#include "cli/commands.h"

#include <string.h>

typedef struct completion_options {
    bool list;
} completion_options;

static const lki_option table[] = {
    {"list", 0, LKI_OPTION_FLAG, offsetof(completion_options, list), NULL, NULL,
     "print every command and option, one per line, instead of the script", 0},
    {0},
};

static void print_list(void)
{
    for (int i = 0; lki_commands[i]; i++) {
        printf("%s\n", lki_commands[i]->name);
        for (const lki_option *o = lki_commands[i]->options; o && o->name; o++) {
            printf("%s --%s", lki_commands[i]->name, o->name);
            if (o->letter) printf(" -%c", o->letter);
            putchar('\n');
        }
    }
}

/* What follows an option: its choices, or a file name. */
static void print_values(const lki_command *command)
{
    for (const lki_option *o = command->options; o && o->name; o++) {
        if (o->type == LKI_OPTION_FLAG) continue;
        printf("    %s:--%s", command->name, o->name);
        if (o->letter) printf(" | %s:-%c", command->name, o->letter);
        if (!o->choices) {
            printf(") COMPREPLY=($(compgen -f -- \"$word\")); return ;;\n");
            continue;
        }
        printf(") COMPREPLY=($(compgen -W \"");
        for (const char *c = o->choices; *c; c++) putchar(*c == '|' ? ' ' : *c);
        printf("\" -- \"$word\")); return ;;\n");
    }
}

static void print_options(const lki_command *command)
{
    printf("    %s) options=\"", command->name);
    for (const lki_option *o = command->options; o && o->name; o++) {
        printf("--%s ", o->name);
        if (o->letter) printf("-%c ", o->letter);
    }
    printf("--help\" ;;\n");
}

static void print_script(void)
{
    printf("# Bash completion of lockstep, as `lockstep completion` prints it.\n"
           "_lockstep()\n{\n"
           "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} "
           "command=${COMP_WORDS[1]} options=\n"
           "    COMPREPLY=()\n"
           "    if ((COMP_CWORD == 1)); then\n"
           "        COMPREPLY=($(compgen -W \"");
    for (int i = 0; lki_commands[i]; i++) printf("%s%s", i ? " " : "", lki_commands[i]->name);
    printf("\" -- \"$word\"))\n        return\n    fi\n    case $command:$before in\n");
    for (int i = 0; lki_commands[i]; i++) print_values(lki_commands[i]);
    printf("    esac\n    case $command in\n");
    for (int i = 0; lki_commands[i]; i++) print_options(lki_commands[i]);
    printf("    esac\n"
           "    if [[ $word == -* ]]; then\n"
           "        COMPREPLY=($(compgen -W \"$options\" -- \"$word\"))\n"
           "    elif [[ $command == help ]]; then\n"
           "        COMPREPLY=($(compgen -W \"$(lockstep components --names 2>/dev/null)\" -- \"$word\"))\n"
           "    else\n"
           "        COMPREPLY=($(compgen -f -- \"$word\"))\n"
           "    fi\n"
           "}\n"
           "complete -o filenames -F _lockstep lockstep\n");
}

static int run(const void *pointer)
{
    const completion_options *options = pointer;
    if (options->list)
        print_list();
    else
        print_script();
    return LKI_EXIT_DONE;
}

const lki_command lki_command_completion = {
    .name = "completion",
    .usage = "[--list]",
    .summary = "Prints the completion script for bash.",
    .options = table,
    .options_nbytes = sizeof(completion_options),
    .run = run,
    .notes = "Use it with: source <(lockstep completion)",
};
