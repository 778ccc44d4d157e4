#include "cli/options.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/suggest.h"
#include "base/terminal.h"
#include "config/components/components.h"
#include "config/tree/tree.h"

#include <stdlib.h>
#include <string.h>

typedef struct parser {
    const lki_command *command;
    int count, at;
    char **words;
    char *options;
} parser;

const lki_command *lki_command_find(const char *name)
{
    for (int i = 0; lki_commands[i]; i++)
        if (!strcmp(lki_commands[i]->name, name)) return lki_commands[i];
    return NULL;
}

int lki_report(int exit_code)
{
    fflush(stdout);
    fprintf(stderr, "lockstep: %s\n", lk_error());
    return exit_code;
}

static const lki_option *find_long(const parser *p, const char *name, size_t length)
{
    for (const lki_option *o = p->command->options; o && o->name; o++)
        if (strlen(o->name) == length && !strncmp(o->name, name, length)) return o;
    return NULL;
}

static const lki_option *find_letter(const parser *p, char letter)
{
    for (const lki_option *o = p->command->options; o && o->name; o++)
        if (o->letter == letter) return o;
    return NULL;
}

const char *lki_option_near(const lki_command *command, const char *name)
{
    lki_suggestion near = {.wanted = name};
    for (const lki_option *o = command->options; o && o->name; o++) lki_suggest_offer(&near, o->name);
    return near.best;
}

static lk_status fail_unknown(const parser *p, const char *name, size_t length)
{
    LKI_SCOPED char *wanted = lki_strndup(name, length);
    char hint[128] = "";
    if (!wanted) return LK_ERR_NOMEM;
    const char *near = lki_option_near(p->command, wanted);
    if (near) snprintf(hint, sizeof hint, "; did you mean --%s?", near);
    return lki_fail(LK_ERR_CONFIG, "%s: unknown option --%s%s", p->command->name, wanted, hint);
}

/* A path into the config, or one key, as no option is written: whether the config knows it is seen when it is
 * read. */
static bool may_be_override(const char *name, size_t length, bool has_value)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    return memchr(name, '/', length) || (has_value && length && strspn(name, letters) == length);
}

/* The list has room for every word of the command line: it is made once. */
static lk_status append(const parser *p, size_t offset, const char *text)
{
    lki_texts *texts = (lki_texts *)(p->options + offset);
    if (!texts->items) texts->items = LKI_NEW_ARRAY(const char *, p->count + 1);
    if (!texts->items) return LK_ERR_NOMEM;
    texts->items[texts->count++] = text;
    return LK_OK;
}

/* One of the choices, or one with a number behind it: "cuda:1". */
static bool is_choice(const char *choices, const char *text)
{
    char word[64];
    size_t length = strcspn(text, ":");
    const char *number = text[length] ? text + length + 1 : NULL;
    if (lki_choice_index(choices, text) >= 0) return true;
    if (!number || !*number || number[strspn(number, "0123456789")] || length >= sizeof word) return false;
    memcpy(word, text, length);
    word[length] = '\0';
    return lki_choice_index(choices, word) >= 0;
}

static lk_status set(const parser *p, const lki_option *o, const char *text)
{
    if (o->choices && !is_choice(o->choices, text))
        return lki_fail(LK_ERR_CONFIG, "%s: --%s: expected one of %s, found \"%.60s\"", p->command->name,
                        o->name, o->choices, text);
    if (o->type == LKI_OPTION_TEXTS) return append(p, o->offset, text);
    if (o->type == LKI_OPTION_TEXT) {
        *(const char **)(p->options + o->offset) = text;
        return LK_OK;
    }
    lki_option_int *number = (lki_option_int *)(p->options + o->offset);
    int64_t value;
    if (!lki_parse_int(text, &value))
        return lki_fail(LK_ERR_CONFIG, "%s: --%s: expected an integer, found \"%.60s\"", p->command->name,
                        o->name, text);
    if (value < o->minimum)
        return lki_fail(LK_ERR_CONFIG, "%s: --%s: expected at least %lld, found %lld", p->command->name,
                        o->name, o->minimum, (long long)value);
    number->given = true;
    number->value = value;
    return LK_OK;
}

/* `text` is what stood in the same word (--name=text, -Ctext), or NULL: then the next word is the value. */
static lk_status take(parser *p, const lki_option *o, const char *text)
{
    if (o->type == LKI_OPTION_FLAG) {
        if (text) return lki_fail(LK_ERR_CONFIG, "%s: --%s takes no value", p->command->name, o->name);
        *(bool *)(p->options + o->offset) = true;
        return LK_OK;
    }
    if (text) return set(p, o, text);
    if (p->at >= p->count)
        return lki_fail(LK_ERR_CONFIG, "%s: --%s needs a value", p->command->name, o->name);
    LKI_TRY(set(p, o, p->words[p->at++]));
    /* -C a.yml b.yml: a list takes the words that follow, where the command has no words of its own. */
    while (o->type == LKI_OPTION_TEXTS && !p->command->positional && p->at < p->count &&
           p->words[p->at][0] != '-')
        LKI_TRY(set(p, o, p->words[p->at++]));
    return LK_OK;
}

static lk_status parse_long(parser *p, const char *word)
{
    const char *name = word + 2, *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const lki_option *o = find_long(p, name, length);
    if (o) return take(p, o, equals ? equals + 1 : NULL);
    if (p->command->takes_overrides && may_be_override(name, length, equals != NULL)) {
        if (!equals)
            return lki_fail(LK_ERR_CONFIG, "%s: %s: an override is written --path/to/key=value",
                            p->command->name, word);
        return append(p, p->command->overrides_offset, name);
    }
    return fail_unknown(p, name, length);
}

static lk_status parse_short(parser *p, const char *word)
{
    for (const char *letter = word + 1; *letter; letter++) {
        const lki_option *o = find_letter(p, *letter);
        if (!o) return lki_fail(LK_ERR_CONFIG, "%s: unknown option -%c", p->command->name, *letter);
        if (o->type == LKI_OPTION_FLAG) {
            LKI_TRY(take(p, o, NULL));
            continue;
        }
        return take(p, o, letter[1] ? letter + 1 : NULL);
    }
    return LK_OK;
}

static lk_status parse_positional(parser *p, const char *word)
{
    if (!p->command->positional)
        return lki_fail(LK_ERR_CONFIG, "%s: \"%.100s\" is not an option; see lockstep %s --help",
                        p->command->name, word, p->command->name);
    return append(p, p->command->positional_offset, word);
}

lk_status lki_options_parse(const lki_command *command, int count, char **words, void *options,
                            bool *wants_help)
{
    parser p = {.command = command, .count = count, .words = words, .options = options};
    bool only_words = false;
    while (p.at < p.count) {
        const char *word = p.words[p.at++];
        if (only_words || word[0] != '-' || !word[1])
            LKI_TRY(parse_positional(&p, word));
        else if (!strcmp(word, "-h") || !strcmp(word, "--help"))
            return *wants_help = true, LK_OK;
        else if (!strcmp(word, "--"))
            only_words = true;
        else if (word[1] == '-')
            LKI_TRY(parse_long(&p, word));
        else
            LKI_TRY(parse_short(&p, word));
    }
    if (!command->positional) return LK_OK;
    const lki_texts *texts = (const lki_texts *)(p.options + command->positional_offset);
    if (texts->count >= command->positional_minimum) return LK_OK;
    return lki_fail(LK_ERR_CONFIG, "%s: needs %s", command->name, command->positional);
}

/* Two options may stand for the same texts. */
static void drop_texts(char *base, size_t offset)
{
    lki_texts *texts = (lki_texts *)(base + offset);
    lki_free(texts->items);
    *texts = (lki_texts){0};
}

void lki_options_free(const lki_command *command, void *options)
{
    for (const lki_option *o = command->options; o && o->name; o++)
        if (o->type == LKI_OPTION_TEXTS) drop_texts(options, o->offset);
    if (command->positional) drop_texts(options, command->positional_offset);
    if (command->takes_overrides) drop_texts(options, command->overrides_offset);
}

static void print_option(FILE *out, const lki_option *o, int width)
{
    char left[96];
    char letter[8] = "    ";
    if (o->letter) snprintf(letter, sizeof letter, "-%c, ", o->letter);
    const char *value = o->value ? o->value : o->choices;
    snprintf(left, sizeof left, "%s--%s%s%s", letter, o->name, value ? " " : "", value ? value : "");
    fprintf(out, "  %-*s  %s\n", width, left, o->help);
}

static int option_width(const lki_option *options)
{
    int widest = 0;
    for (const lki_option *o = options; o && o->name; o++) {
        const char *value = o->value ? o->value : o->choices;
        int width = 6 + (int)strlen(o->name) + (value ? 1 + (int)strlen(value) : 0);
        if (width > widest) widest = width;
    }
    return widest;
}

void lki_print_for_terminal(void (*print)(FILE *out, const void *what), const void *what)
{
    char *text = NULL;
    size_t nbytes;
    int columns = lki_fold_columns(stdout);
    FILE *stream = columns > 0 ? open_memstream(&text, &nbytes) : NULL;
    print(stream ? stream : stdout, what);
    if (!stream) return;
    fclose(stream);
    lki_print_folded(stdout, text, columns);
    free(text);
}

void lki_command_print_help(FILE *out, const lki_command *command)
{
    static const lki_option help = {.name = "help", .letter = 'h', .help = "print this help"};
    int width = option_width(command->options);
    if (width < 10) width = 10;
    fprintf(out, "lockstep %s %s\n\n%s\n\nOptions:\n", command->name, command->usage, command->summary);
    for (const lki_option *o = command->options; o && o->name; o++) print_option(out, o, width);
    print_option(out, &help, width);
    if (command->takes_overrides)
        fprintf(out, "  %-*s  %s\n", width, "    --a/b/0=VALUE[:type]", "override a value of the config");
    if (command->notes) fprintf(out, "\n%s\n", command->notes);
}
