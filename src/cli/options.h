/* Commands and their options as tables, from which come the parser, --help, the completion and the check of
 * the man page.
 *
 * A command's options land in a struct of its own, zero at the start: a table entry says at which offset and
 * of what type. Texts point into argv. */
#ifndef LKI_CLI_OPTIONS_H
#define LKI_CLI_OPTIONS_H

#include <lockstep/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef enum lki_option_type {
    LKI_OPTION_FLAG,  /* bool */
    LKI_OPTION_TEXT,  /* const char * */
    LKI_OPTION_INT,   /* lki_option_int */
    LKI_OPTION_TEXTS, /* lki_texts: may be given several times, and takes several words at once */
} lki_option_type;

typedef struct lki_texts {
    const char **items;
    int count;
} lki_texts;

typedef struct lki_option_int {
    bool given;
    long long value;
} lki_option_int;

typedef struct lki_option {
    const char *name; /* without dashes; NULL ends a table */
    char letter;      /* 0: none */
    lki_option_type type;
    size_t offset;
    const char *value;   /* what --help calls the value: "FILE" */
    const char *choices; /* "cpu|cuda"; NULL: any */
    const char *help;
    long long minimum; /* of an int */
} lki_option;

typedef struct lki_command {
    const char *name;
    const char *usage; /* what follows the name: "-C FILE [-C FILE ...] [options]" */
    const char *summary;
    const lki_option *options;
    size_t options_nbytes; /* of the struct the options land in */

    /* Words that are no options; NULL: none are taken. */
    const char *positional;
    size_t positional_offset; /* of an lki_texts */
    int positional_minimum;

    bool takes_overrides;    /* --a/b/c=VALUE */
    size_t overrides_offset; /* of an lki_texts: "a/b/c=VALUE" */

    const char *notes; /* after the options in --help; NULL: none */

    /* Does the work and returns the exit code. */
    int (*run)(const void *options);
} lki_command;

/* All commands, NULL at the end; and one by name. */
extern const lki_command *const lki_commands[];
const lki_command *lki_command_find(const char *name);

/* The option whose name is nearest to one that is none; NULL where no slip of the hand explains it. */
const char *lki_option_near(const lki_command *command, const char *name);

/* Fills `options` from the words after the command's name. *wants_help is set by -h and --help, and parsing
 * ends. */
lk_status lki_options_parse(const lki_command *command, int count, char **words, void *options,
                            bool *wants_help);
void lki_options_free(const lki_command *command, void *options);

void lki_command_print_help(FILE *out, const lki_command *command);

/* What `print` writes, folded to the width of stdout if that is a terminal. */
void lki_print_for_terminal(void (*print)(FILE *out, const void *what), const void *what);

/* 0 done, 1 the run failed, 2 the command or config is wrong. */
enum { LKI_EXIT_DONE = 0, LKI_EXIT_FAILED = 1, LKI_EXIT_WRONG = 2 };

/* Prints "lockstep: <lk_error()>" to stderr and returns the code. */
int lki_report(int exit_code);

#endif
