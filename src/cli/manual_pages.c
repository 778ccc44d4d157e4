#include "cli/manual_pages.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/terminal.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* ---- The pages ---- */

static char *inflated(void)
{
    char *text = lki_calloc(lki_manual_nbytes + 1, "the manual");
    z_stream stream = {.next_in = (unsigned char *)lki_manual_deflated,
                       .avail_in = (unsigned)lki_manual_deflated_nbytes,
                       .next_out = (unsigned char *)text,
                       .avail_out = (unsigned)lki_manual_nbytes};
    if (!text || inflateInit2(&stream, -MAX_WBITS) != Z_OK) return lki_free(text), NULL;
    int end = inflate(&stream, Z_FINISH);
    inflateEnd(&stream);
    if (end == Z_STREAM_END && stream.total_out == lki_manual_nbytes) return text;
    lki_free(text);
    return lki_fail_null(LK_ERR_FORMAT, "the manual in this command is damaged: build it again");
}

lki_manual_page *lki_manual_open(void)
{
    char *text = inflated();
    size_t count = 0;
    for (const char *at = text; at && *at; at++) count += *at == '\f';
    lki_manual_page *pages = text ? LKI_NEW_ARRAY(lki_manual_page, count + 2) : NULL;
    if (!pages) return lki_free(text), NULL;
    pages[count + 1].text = text; /* what lki_manual_close frees */
    char *rest = NULL;
    lki_manual_page *page = pages;
    for (char *one = strtok_r(text, "\f", &rest); one; one = strtok_r(NULL, "\f", &rest)) {
        char *line_end = strchr(one, '\n');
        if (!line_end) continue;
        *line_end = '\0';
        *page++ = (lki_manual_page){.name = one, .text = line_end + 1};
    }
    return pages;
}

void lki_manual_close(lki_manual_page *pages)
{
    lki_manual_page *end = pages;
    while (end && end->name) end++;
    if (end) lki_free((void *)end[1].text);
    lki_free(pages);
}

const char *lki_manual_title(const lki_manual_page *page, char *title, size_t capacity)
{
    const char *text = page->text + strspn(page->text, "# \n");
    snprintf(title, capacity, "%.*s", (int)strcspn(text, "\n"), text);
    return title;
}

/* ---- Markdown as text ---- */

typedef struct printer {
    FILE *out;
    int columns, is_bold;
    bool in_code, in_comment, after_code;
    char *paragraph; /* its lines, joined by blanks */
    size_t nbytes;
    FILE *collected; /* what `paragraph` is written by; NULL between paragraphs */
} printer;

static void end_paragraph(printer *p)
{
    if (!p->collected) return;
    fputc('\n', p->collected);
    fclose(p->collected);
    p->collected = NULL;
    if (p->paragraph) lki_print_folded(p->out, p->paragraph, p->columns);
    free(p->paragraph);
    p->paragraph = NULL;
}

/* The text of a line without what marks emphasis and the targets of links. */
static void put_inline(FILE *out, const char *line, size_t length)
{
    bool in_code = false;
    for (size_t i = 0; i < length; i++) {
        if (line[i] == '`') in_code = !in_code;
        if (!in_code && line[i] == '*' && i + 1 < length && line[i + 1] == '*') {
            i++;
            continue;
        }
        if (!in_code && line[i] == '[') continue;
        if (!in_code && line[i] == ']') {
            const char *end = i + 1 < length && line[i + 1] == '(' ? memchr(line + i, ')', length - i) : NULL;
            if (end) i = (size_t)(end - line);
            continue;
        }
        fputc(line[i], out);
    }
}

/* The cells of a row in a line, the first one with room for most names. */
static void put_row(printer *p, const char *line, size_t length)
{
    if (strspn(line, "|-: ") >= length) return;
    for (size_t at = 1, cell = 0; at < length; cell++) {
        const char *bar = memchr(line + at, '|', length - at);
        while (bar && bar[-1] == '\\') bar = memchr(bar + 1, '|', length - (size_t)(bar + 1 - line));
        size_t end = bar ? (size_t)(bar - line) : length, next = end + 1;
        while (at < end && line[at] == ' ') at++;
        while (end > at && line[end - 1] == ' ') end--;
        if (cell) fputs("  ", p->collected);
        put_inline(p->collected, line + at, end - at);
        if (!cell) fprintf(p->collected, "%*s", end - at < 26 ? (int)(26 - (end - at)) : 0, "");
        at = next;
    }
}

static void put_heading(printer *p, const char *line, size_t length)
{
    size_t level = strspn(line, "# ");
    fputs(p->is_bold ? "\x1b[1m" : "", p->out);
    put_inline(p->out, line + level, length - level);
    fputs(p->is_bold ? "\x1b[0m\n" : "\n", p->out);
    if (p->is_bold) return;
    for (size_t i = level; i < length; i++) fputc(level == 2 ? '=' : '-', p->out);
    fputc('\n', p->out);
}

static bool begins_item(const char *line)
{
    const char *text = line + strspn(line, " ");
    size_t digits = strspn(text, "0123456789");
    return !strncmp(text, "- ", 2) || (digits && !strncmp(text + digits, ". ", 2));
}

/* A line of prose goes on with its paragraph; an item or a row begins one. */
static void put_prose(printer *p, const char *line, size_t length)
{
    bool is_row = line[0] == '|', is_item = begins_item(line);
    if (is_row || is_item) end_paragraph(p);
    bool is_first = !p->collected;
    if (is_first) p->collected = open_memstream(&p->paragraph, &p->nbytes);
    if (!p->collected) return;
    size_t indent = is_first ? 0 : strspn(line, " ");
    if (!is_first) fputc(' ', p->collected);
    if (is_row)
        put_row(p, line, length);
    else if (is_item) { /* two blanks: where the rest of the item is indented to */
        size_t mark = strcspn(line + strspn(line, " "), " ") + strspn(line, " ");
        fprintf(p->collected, "%.*s  ", (int)mark, line);
        put_inline(p->collected, line + mark + 1, length - mark - 1);
    } else
        put_inline(p->collected, line + indent, length - indent);
}

static void put_line(printer *p, const char *line, size_t length)
{
    if (!strncmp(line, "```", 3)) {
        end_paragraph(p);
        if (p->after_code) fputc('\n', p->out); /* a block right behind another one */
        p->after_code = p->in_code;
        p->in_code = !p->in_code;
        return;
    }
    if (p->in_code) {
        fprintf(p->out, "    %.*s\n", (int)length, line);
    } else if (p->in_comment || !strncmp(line, "<!--", 4)) {
        if (!strncmp(line, "<!-- file: ", 11)) /* the name of the file that follows */
            fprintf(p->out, "%.*s:\n\n", (int)strcspn(line + 11, " "), line + 11);
        const char *end = strstr(line, "-->");
        p->in_comment = !end || end >= line + length;
    } else if (length == 0) {
        end_paragraph(p);
        fputc('\n', p->out);
    } else if (line[0] == '#') {
        end_paragraph(p);
        put_heading(p, line, length);
    } else if (!strncmp(line, "    ", 4) && !p->collected) {
        fprintf(p->out, "%.*s\n", (int)length, line);
    } else {
        put_prose(p, line, length);
    }
    if (!p->in_code) p->after_code = false;
}

void lki_print_markdown(FILE *out, const char *markdown, int columns, int is_bold)
{
    printer p = {.out = out, .columns = columns, .is_bold = is_bold};
    while (*markdown) {
        size_t length = strcspn(markdown, "\n");
        put_line(&p, markdown, length);
        markdown += length + (markdown[length] == '\n');
    }
    end_paragraph(&p);
}
