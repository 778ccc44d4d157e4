#define _DEFAULT_SOURCE
#include "base/memory.h"

#include "base/number_text.h"
#include "base/status.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Blocks of a few huge pages begin at one, and ask for them: what passes over megabytes of activations
 * otherwise waits for the addresses of its small pages, twice as long on a virtual machine, and so much
 * longer where two ranks do it at a time. Only whole huge pages inside a block are asked for, so that it
 * takes no more memory than it would. */
enum { ALIGNMENT = 64, HUGE_PAGE = 2 << 20 };

static atomic_uint_fast64_t allocation_count;
static atomic_size_t allocation_limit;

const char *lki_format_nbytes(char *text, size_t capacity, uint64_t nbytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double amount = (double)nbytes;
    size_t unit = 0;
    while (amount >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        amount /= 1024;
        unit++;
    }
    lki_snprintf(text, capacity, unit ? "%.1f %s" : "%.0f %s", amount, units[unit]);
    return text;
}

static void *out_of_memory(size_t nbytes, const char *what)
{
    char amount[32];
    return lki_fail_null(LK_ERR_NOMEM, "out of memory: could not allocate %s for %s",
                         lki_format_nbytes(amount, sizeof amount, nbytes), what);
}

/* Counts the allocation, and says whether a test's limit forbids it. */
static int allowed(size_t nbytes)
{
    size_t limit = atomic_load_explicit(&allocation_limit, memory_order_relaxed);
    atomic_fetch_add_explicit(&allocation_count, 1, memory_order_relaxed);
    return limit == 0 || nbytes <= limit;
}

void *lki_calloc(size_t nbytes, const char *what)
{
    void *block = allowed(nbytes) ? calloc(1, nbytes ? nbytes : 1) : NULL;
    return block ? block : out_of_memory(nbytes, what);
}

void *lki_alloc_aligned(size_t nbytes, const char *what)
{
    size_t rounded = (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    void *block = NULL;
    size_t alignment = rounded >= HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
    if (rounded < nbytes || !allowed(nbytes)) return out_of_memory(nbytes, what);
    if (posix_memalign(&block, alignment, rounded ? rounded : ALIGNMENT)) return out_of_memory(nbytes, what);
#ifdef MADV_HUGEPAGE
    if (rounded >= HUGE_PAGE)
        (void)madvise(block, rounded / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* a wish: it may be refused */
#endif
    return block;
}

void *lki_calloc_aligned(size_t nbytes, const char *what)
{
    void *block = lki_alloc_aligned(nbytes, what);
    if (block) memset(block, 0, nbytes);
    return block;
}

void *lki_realloc(void *block, size_t nbytes, const char *what)
{
    void *grown = allowed(nbytes) ? realloc(block, nbytes ? nbytes : 1) : NULL;
    return grown ? grown : out_of_memory(nbytes, what);
}

void lki_free(void *block)
{
    free(block);
}

bool lki_same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* The length of the character at `at`, 0 where it is none: overlong, a surrogate, or beyond U+10FFFF. */
static int utf8_length(const unsigned char *at)
{
    int length = *at < 0x80 ? 1 : *at < 0xc2 ? 0 : *at < 0xe0 ? 2 : *at < 0xf0 ? 3 : *at < 0xf5 ? 4 : 0;
    for (int i = 1; i < length; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    bool is_wrong = (*at == 0xe0 && at[1] < 0xa0) || (*at == 0xed && at[1] >= 0xa0) ||
                    (*at == 0xf0 && at[1] < 0x90) || (*at == 0xf4 && at[1] >= 0x90);
    return is_wrong ? 0 : length;
}

bool lki_is_utf8(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    for (int length; *at; at += length)
        if (!(length = utf8_length(at))) return false;
    return true;
}

char *lki_strdup(const char *text)
{
    return text ? lki_strndup(text, strlen(text)) : NULL;
}

char *lki_strndup(const char *text, size_t length)
{
    char *copy = lki_calloc(length + 1, "a string");
    if (copy) memcpy(copy, text, length);
    return copy;
}

char *lki_format(const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = lki_vsnprintf(NULL, 0, format, arguments);
    char *text = length < 0 ? NULL : lki_calloc((size_t)length + 1, "a string");
    if (text) lki_vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    va_end(arguments);
    return text;
}

uint64_t lki_allocation_count(void)
{
    return atomic_load_explicit(&allocation_count, memory_order_relaxed);
}

void lki_set_allocation_limit(size_t nbytes)
{
    atomic_store_explicit(&allocation_limit, nbytes, memory_order_relaxed);
}

void lk_text_free(char *text)
{
    lki_free(text);
}
