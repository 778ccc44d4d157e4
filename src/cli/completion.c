/* The completions for bash, fish and zsh, printed from the option tables so that it cannot lag behind them.
 */
#include "cli/commands.h"

#include "base/status.h"

#include <string.h>

typedef struct completion_options {
    bool list;
    const char *shell;
} completion_options;

static const lki_option table[] = {
    {"list", 0, LKI_OPTION_FLAG, offsetof(completion_options, list), NULL, NULL,
     "print every command and option, one per line, instead of the script", 0},
    {"shell", 's', LKI_OPTION_TEXT, offsetof(completion_options, shell), NULL, "bash|fish|zsh",
     "whose script (bash)", 0},
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

/* ---- fish and zsh, which show the help of each word ---- */

/* A text inside single quotes: fish escapes a quote, zsh ends the quotes for one. */
static void print_quoted(const char *text, bool is_zsh)
{
    for (; *text; text++) {
        if (*text == '\'')
            printf(is_zsh ? "'\\''" : "\\'");
        else if (is_zsh && (*text == '[' || *text == ']' || *text == ':'))
            printf("\\%c", *text);
        else
            putchar(*text);
    }
}

static void print_choices(const char *choices)
{
    for (const char *c = choices; *c; c++) putchar(*c == '|' ? ' ' : *c);
}

static void print_fish_option(const char *command, const lki_option *o)
{
    printf("complete -c lockstep -n '__fish_seen_subcommand_from %s' -l %s", command, o->name);
    if (o->letter) printf(" -s %c", o->letter);
    if (o->type != LKI_OPTION_FLAG && o->choices) {
        printf(" -x -a '");
        print_choices(o->choices);
        putchar('\'');
    } else if (o->type != LKI_OPTION_FLAG) {
        printf(" -r -F");
    }
    printf(" -d '");
    print_quoted(o->help, false);
    printf("'\n");
}

static void print_fish(void)
{
    printf("# Fish completion of lockstep, as `lockstep completion --shell fish` prints it.\n"
           "complete -c lockstep -n __fish_use_subcommand -f\n");
    for (int i = 0; lki_commands[i]; i++) {
        printf("complete -c lockstep -n __fish_use_subcommand -a %s -d '", lki_commands[i]->name);
        print_quoted(lki_commands[i]->summary, false);
        printf("'\n");
    }
    for (int i = 0; lki_commands[i]; i++)
        for (const lki_option *o = lki_commands[i]->options; o && o->name; o++)
            print_fish_option(lki_commands[i]->name, o);
    printf("complete -c lockstep -n '__fish_seen_subcommand_from help' -f "
           "-a '(lockstep components --names 2>/dev/null)'\n");
}

static void print_zsh_spec(const char *prefix, const char *word, const lki_option *o)
{
    printf(" \\\n            '%s%s[", prefix, word);
    print_quoted(o->help, true);
    putchar(']');
    if (o->type != LKI_OPTION_FLAG && o->choices) {
        printf(":value:(");
        print_choices(o->choices);
        putchar(')');
    } else if (o->type != LKI_OPTION_FLAG) {
        printf(":value:_files");
    }
    putchar('\'');
}

static void print_zsh_command(const lki_command *command)
{
    printf("        %s)\n        _arguments", command->name);
    for (const lki_option *o = command->options; o && o->name; o++) {
        char word[64];
        const char *many = o->type == LKI_OPTION_TEXTS ? "*" : "";
        snprintf(word, sizeof word, "--%s", o->name);
        print_zsh_spec(many, word, o);
        snprintf(word, sizeof word, "-%c", o->letter);
        if (o->letter) print_zsh_spec(many, word, o);
    }
    if (strcmp(command->name, "help") == 0)
        printf(" \\\n            '*:name:($(lockstep components --names 2>/dev/null))' ;;\n");
    else
        printf(" \\\n            '--help[print the options]' '*:file:_files' ;;\n");
}

static void print_zsh(void)
{
    printf(
        "#compdef lockstep\n# Zsh completion of lockstep, as `lockstep completion --shell zsh` prints it.\n"
        "_lockstep()\n{\n    local -a commands\n    commands=(\n");
    for (int i = 0; lki_commands[i]; i++) {
        printf("        '%s:", lki_commands[i]->name);
        print_quoted(lki_commands[i]->summary, true);
        printf("'\n");
    }
    printf(
        "    )\n    if ((CURRENT == 2)); then\n        _describe command commands\n        return\n    fi\n"
        "    local command=$words[2]\n    shift words\n    ((CURRENT--))\n    case $command in\n");
    for (int i = 0; lki_commands[i]; i++) print_zsh_command(lki_commands[i]);
    printf("    esac\n}\n"
           "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n    _lockstep \"$@\"\nelse\n"
           "    compdef _lockstep lockstep\nfi\n");
}

static int run(const void *pointer)
{
    const completion_options *options = pointer;
    if (options->list && options->shell) {
        lki_fail(LK_ERR_CONFIG,
                 "completion: --list prints no script, so --shell has no effect: leave one out");
        return lki_report(LKI_EXIT_WRONG);
    }
    if (options->list)
        print_list();
    else if (options->shell && !strcmp(options->shell, "fish"))
        print_fish();
    else if (options->shell && !strcmp(options->shell, "zsh"))
        print_zsh();
    else
        print_script();
    return LKI_EXIT_DONE;
}

const lki_command lki_command_completion = {
    .name = "completion",
    .usage = "[--shell bash|fish|zsh] [--list]",
    .summary = "Prints the completion script for bash, fish or zsh.",
    .options = table,
    .options_nbytes = sizeof(completion_options),
    .run = run,
    .notes = "Use it with: source <(lockstep completion)\n"
             "In fish:     lockstep completion --shell fish | source\n"
             "In zsh:      source <(lockstep completion --shell zsh)",
};
