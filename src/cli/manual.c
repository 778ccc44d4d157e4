/* The manual, which the command carries: the whole of it, or what is said of one subject, in a pager. And the
 * man pages of the commands, from the option tables. */
#include "cli/commands.h"
#include "cli/man_pages.h"
#include "cli/manual_pages.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/suggest.h"
#include "base/terminal.h"
#include "config/registry.h"

#include <ctype.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum { PLAIN_COLUMNS = 80, MOST_COLUMNS = 100 };

typedef struct manual_options {
    lki_texts topics;
    bool list;
    const char *man_pages;
} manual_options;

#define OFFSET(field) offsetof(manual_options, field)

static const lki_option table[] = {
    {"list", 'l', LKI_OPTION_FLAG, OFFSET(list), NULL, NULL, "print the names of the pages", 0},
    {"man-pages", 0, LKI_OPTION_TEXT, OFFSET(man_pages), "DIR", NULL,
     "write a man page for each command into this directory", 0},
    {0},
};

typedef struct look {
    FILE *out;
    int columns, is_bold;
} look;

/* ---- Which pages a topic means ---- */

/* "guides/gan" by that name, by "gan", and with all others of its folder by "guides"; "tutorial/2-csv" also
 * by "csv". */
static bool is_about(const char *name, const char *topic)
{
    const char *slash = strchr(name, '/'), *base = slash ? slash + 1 : name;
    size_t number = strspn(base, "0123456789");
    size_t folder = slash ? (size_t)(slash - name) : 0;
    return !strcasecmp(name, topic) || !strcasecmp(base, topic) ||
           (number && base[number] == '-' && !strcasecmp(base + number + 1, topic)) ||
           (folder && strlen(topic) == folder && !strncasecmp(name, topic, folder));
}

static const lki_command *command_about(const char *topic)
{
    return lki_command_find(strncmp(topic, "lockstep-", 9) ? topic : topic + 9);
}

static void print_page(const look *look, const lki_manual_page *page)
{
    lki_print_markdown(look->out, page->text, look->columns, look->is_bold);
    fputc('\n', look->out);
}

static void print_command(const look *look, const lki_command *command)
{
    char *text = NULL;
    size_t nbytes;
    FILE *stream = open_memstream(&text, &nbytes);
    if (!stream) return;
    lki_command_print_help(stream, command);
    fclose(stream);
    lki_print_folded(look->out, text, look->columns);
    fputc('\n', look->out);
    free(text);
}

static void print_all(const look *look, const lki_manual_page *pages)
{
    for (const lki_manual_page *page = pages; page->name; page++) print_page(look, page);
    fprintf(look->out, "Commands\n\n");
    for (int i = 0; lki_commands[i]; i++) print_command(look, lki_commands[i]);
}

static bool print_topic(const look *look, const lki_manual_page *pages, const char *topic)
{
    const lki_command *command = command_about(topic);
    const lk_component *component = command ? NULL : lk_component_find(topic);
    bool found = command || component;
    for (const lki_manual_page *page = pages; page->name; page++) {
        if (!is_about(page->name, topic)) continue;
        print_page(look, page);
        found = true;
    }
    if (command) print_command(look, command);
    if (component) lki_component_print_help(look->out, component);
    return found;
}

/* ---- A topic that no page is about ---- */

/* Whether a text has a word, with capitals or without. */
static bool mentions(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = text; *at; at++)
        if (!strncasecmp(at, word, length) && (at == text || !isalnum((unsigned char)at[-1]))) return true;
    return false;
}

static int fail_unknown(const lki_manual_page *pages, const char *topic)
{
    char where[400] = "", hint[128];
    lki_suggestion near = {.wanted = topic};
    for (const lki_manual_page *page = pages; page->name; page++) {
        const char *base = strrchr(page->name, '/');
        size_t length = strlen(where);
        lki_suggest_offer(&near, base ? base + 1 : page->name);
        if (strlen(topic) > 2 && mentions(page->text, topic) &&
            length + strlen(page->name) + 3 < sizeof where)
            snprintf(where + length, sizeof where - length, "%s%s", length ? ", " : "", page->name);
    }
    for (int i = 0; lki_commands[i]; i++) lki_suggest_offer(&near, lki_commands[i]->name);
    if (*where)
        lki_fail(LK_ERR_CONFIG, "manual: no page is called \"%.100s\"; it stands in %s", topic, where);
    else
        lki_fail(LK_ERR_CONFIG, "manual: no page is called \"%.100s\"%s", topic,
                 near.best ? lki_suggest_text(&near, hint, sizeof hint) : "; see lockstep manual --list");
    return lki_report(LKI_EXIT_WRONG);
}

static bool is_known(const lki_manual_page *pages, const char *topic)
{
    for (const lki_manual_page *page = pages; page->name; page++)
        if (is_about(page->name, topic)) return true;
    return command_about(topic) || lk_component_find(topic);
}

/* ---- The pager ---- */

/* $PAGER, else less, which shows a short page without asking. NULL: stdout is no terminal, or there is none.
 */
static FILE *open_pager(void)
{
    const char *pager = getenv("PAGER");
    if (!isatty(STDOUT_FILENO)) return NULL;
    if (!pager || !*pager) pager = access("/usr/bin/less", X_OK) == 0 ? "less" : NULL;
    if (!pager || !strcmp(pager, "cat")) return NULL;
    setenv("LESS", "FRX", 0);
    signal(SIGPIPE, SIG_IGN); /* it may be left before its end */
    fflush(stdout);
    return popen(pager, "w");
}

static void list_pages(const lki_manual_page *pages)
{
    char title[200];
    for (const lki_manual_page *page = pages; page->name; page++)
        printf("%-28s %s\n", page->name, lki_manual_title(page, title, sizeof title));
    printf(
        "\nEach command is a topic, too, and each component: lockstep manual run, lockstep manual Linear.\n");
}

static int show(const manual_options *options, const lki_manual_page *pages)
{
    for (int i = 0; i < options->topics.count; i++)
        if (!is_known(pages, options->topics.items[i])) return fail_unknown(pages, options->topics.items[i]);
    int columns = isatty(STDOUT_FILENO) ? lki_terminal_columns(STDOUT_FILENO) : PLAIN_COLUMNS;
    FILE *pager = open_pager();
    look look = {.out = pager ? pager : stdout,
                 .columns = columns > MOST_COLUMNS ? MOST_COLUMNS : columns,
                 .is_bold = lki_terminal_of(STDOUT_FILENO).has_colour};
    if (!options->topics.count) print_all(&look, pages);
    for (int i = 0; i < options->topics.count; i++) print_topic(&look, pages, options->topics.items[i]);
    if (pager) pclose(pager);
    return LKI_EXIT_DONE;
}

static int run(const void *pointer)
{
    const manual_options *options = pointer;
    if (options->man_pages) return lki_write_man_pages(options->man_pages) ? lki_report(LKI_EXIT_FAILED) : 0;
    lki_manual_page *pages = lki_manual_open();
    if (!pages) return lki_report(LKI_EXIT_FAILED);
    int exit_code = LKI_EXIT_DONE;
    if (options->list)
        list_pages(pages);
    else
        exit_code = show(options, pages);
    lki_manual_close(pages);
    return exit_code;
}

const lki_command lki_command_manual = {
    .name = "manual",
    .usage = "[--list] [TOPIC ...]",
    .summary = "Shows the manual, or what it says of a topic.",
    .options = table,
    .options_nbytes = sizeof(manual_options),
    .positional = "a page, a command or a component",
    .positional_offset = OFFSET(topics),
    .notes = "It is shown in $PAGER, or in less. In a pipe it is plain text.",
    .run = run,
};
