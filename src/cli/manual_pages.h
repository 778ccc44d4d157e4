/* The manual that the command carries: the pages of docs/, in one deflated text that cmake/Manual.cmake
 * makes, and how a page looks in a terminal. */
#ifndef LKI_CLI_MANUAL_PAGES_H
#define LKI_CLI_MANUAL_PAGES_H

#include <stddef.h>
#include <stdio.h>

extern const unsigned char lki_manual_deflated[];
extern const size_t lki_manual_deflated_nbytes, lki_manual_nbytes;

typedef struct lki_manual_page {
    const char *name; /* "guides/gan" */
    const char *text; /* Markdown */
} lki_manual_page;

/* All pages, a NULL name at the end, or NULL. lki_manual_close takes them back. */
lki_manual_page *lki_manual_open(void);
void lki_manual_close(lki_manual_page *pages);

/* The heading that a page begins with, in a buffer. */
const char *lki_manual_title(const lki_manual_page *page, char *title, size_t capacity);

/* Writes Markdown as text that breaks before `columns`; headings are bold if `is_bold`. */
void lki_print_markdown(FILE *out, const char *markdown, int columns, int is_bold);

#endif
