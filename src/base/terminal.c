#define _GNU_SOURCE /* strcasestr */
#include "base/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { DEFAULT_COLUMNS = 80, DEFAULT_ROWS = 24, MIN_TEXT = 20 };

static bool locale_is_utf8(void)
{
    const char *locale = getenv("LC_ALL");
    if (!locale || !*locale) locale = getenv("LC_CTYPE");
    if (!locale || !*locale) locale = getenv("LANG");
    return locale && (strcasestr(locale, "utf-8") || strcasestr(locale, "utf8"));
}

/* Open MPI gives every rank a terminal of its own, whose lines it forwards to wherever mpirun writes. */
static bool is_forwarded(void)
{
    return getenv("OMPI_COMM_WORLD_RANK") != NULL;
}

lki_terminal lki_terminal_of(int fd)
{
    struct winsize size;
    const char *kind = getenv("TERM"), *no_colour = getenv("NO_COLOR");
    bool is_dumb = kind && strcmp(kind, "dumb") == 0;
    lki_terminal terminal = {
        .has_unicode = locale_is_utf8(), .columns = DEFAULT_COLUMNS, .rows = DEFAULT_ROWS};
    terminal.is_terminal = isatty(fd) && !is_dumb && !is_forwarded();
    terminal.has_colour = terminal.is_terminal && !(no_colour && *no_colour);
    if (ioctl(fd, TIOCGWINSZ, &size) != 0) return terminal;
    if (size.ws_col > 0) terminal.columns = size.ws_col;
    if (size.ws_row > 0) terminal.rows = size.ws_row;
    return terminal;
}

int lki_terminal_columns(int fd)
{
    struct winsize size;
    return ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : DEFAULT_COLUMNS;
}

int lki_fold_columns(FILE *out)
{
    int fd = fileno(out);
    return fd >= 0 && isatty(fd) && !is_forwarded() ? lki_terminal_columns(fd) : 0;
}

/* ---- Wrapping ---- */

/* Where the text of a line starts, behind its columns. */
static int indent_of(const char *line, int length)
{
    int indent = 0, last = 0;
    while (indent < length && line[indent] == ' ') indent++;
    last = indent;
    for (int i = indent; i + 2 < length; i++)
        if (line[i] == ' ' && line[i + 1] == ' ' && line[i + 2] != ' ') last = i + 2;
    return last;
}

/* A byte within a character of UTF-8 takes no column. */
static bool is_column(char c)
{
    return ((unsigned char)c & 0xc0) != 0x80;
}

/* How many bytes of a text fit: up to a blank, or else the whole first word. */
static int fitting(const char *text, int length, int columns)
{
    int used = 0, cut = 0;
    for (int i = 0; i < length; i++) {
        if (text[i] == ' ' && i > 0) cut = i;
        used += is_column(text[i]);
        if (used > columns && cut > 0) return cut;
    }
    return length;
}

static void print_line(FILE *out, const char *line, int length, int columns)
{
    int indent = indent_of(line, length);
    if (columns - indent < MIN_TEXT) indent = 0;
    int taken = columns > 0 ? indent + fitting(line + indent, length - indent, columns - indent) : length;
    fprintf(out, "%.*s", taken, line);
    while (taken < length) {
        while (taken < length && line[taken] == ' ') taken++;
        int count = fitting(line + taken, length - taken, columns - indent);
        fprintf(out, "\n%*s%.*s", indent, "", count, line + taken);
        taken += count;
    }
}

void lki_print_folded(FILE *out, const char *text, int columns)
{
    if (columns < MIN_TEXT) columns = 0;
    while (*text) {
        int length = (int)strcspn(text, "\n");
        print_line(out, text, length, columns);
        text += length;
        if (*text == '\n') fputc(*text++, out);
    }
}
