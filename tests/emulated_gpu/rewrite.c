/* Makes C++ of a CUDA source: `rewrite IN OUT`.
 *
 * Two things of CUDA are no C++ that a header could define. A launch
 *     kernel<T><<<grid, block, shared, stream>>>(arguments)
 * becomes
 *     lkt_gpu::launch("kernel", kernel<T>, lkt_gpu::config(grid, block, shared, stream), arguments)
 * and a block's dynamic memory
 *     extern __shared__ __align__(16) unsigned char memory[];
 * a pointer to it. Lines stay where they are, and messages name the source that was read. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *path;

static void give_up(const char *why)
{
    fprintf(stderr, "%s: %s\n", path, why);
    exit(1);
}

static char *read_all(const char *name)
{
    FILE *file = fopen(name, "rb");
    size_t capacity = 1 << 20;
    char *text = malloc(capacity);
    if (!file || !text) give_up("cannot be read");
    size_t length = fread(text, 1, capacity, file);
    if (length == capacity) give_up("is too long");
    text[length] = '\0';
    fclose(file);
    return text;
}

static int is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Where the expression that ends before `end` begins: a name and its template arguments. */
static const char *kernel_begin(const char *text, const char *end)
{
    const char *at = end;
    while (at > text && isspace((unsigned char)at[-1])) at--;
    if (at > text && at[-1] == '>') {
        int depth = 0;
        do {
            at--;
            depth += *at == '>' ? 1 : *at == '<' ? -1 : 0;
        } while (depth > 0 && at > text);
    }
    while (at > text && isspace((unsigned char)at[-1])) at--;
    while (at > text && is_word(at[-1])) at--;
    return at;
}

/* The bracket that closes the one at `at`. */
static const char *closing(const char *at)
{
    int depth = 0;
    for (; *at; at++) {
        if (strchr("([{", *at)) depth++;
        if (strchr(")]}", *at) && --depth == 0) return at;
    }
    give_up("a launch's arguments do not end");
    return NULL;
}

static void copy(FILE *out, const char *begin, const char *end)
{
    fwrite(begin, 1, (size_t)(end - begin), out);
}

static int is_blank(const char *begin, const char *end)
{
    while (begin < end && isspace((unsigned char)*begin)) begin++;
    return begin == end;
}

/* Writes the launch whose `<<<` is at `at`; what precedes it from `text` on has not been written yet. */
static const char *write_launch(FILE *out, const char *text, const char *at)
{
    const char *kernel = kernel_begin(text, at), *name_end = kernel;
    while (is_word(*name_end)) name_end++;
    const char *close = strstr(at, ">>>");
    const char *open = close ? strchr(close, '(') : NULL;
    if (!open || !is_blank(close + 3, open)) give_up("a launch without arguments");
    const char *end = closing(open);
    copy(out, text, kernel);
    fprintf(out, "lkt_gpu::launch(\"%.*s\", ", (int)(name_end - kernel), kernel);
    copy(out, kernel, at);
    fputs(", lkt_gpu::config(", out);
    copy(out, at + 3, close);
    fputs(is_blank(open + 1, end) ? ")" : "), ", out);
    copy(out, open + 1, end);
    fputs(")", out);
    return end + 1;
}

/* Writes the declaration that begins at `at`. */
static const char *write_dynamic(FILE *out, const char *text, const char *at)
{
    const char *begin = at + strlen("extern __shared__"), *end = strstr(begin, "[]");
    if (!end) give_up("dynamic shared memory that is no array");
    while (isspace((unsigned char)*begin)) begin++;
    if (!strncmp(begin, "__align__", 9)) begin = closing(strchr(begin, '(')) + 1;
    const char *name = end;
    while (is_word(name[-1])) name--;
    copy(out, text, at);
    copy(out, begin, name);
    fputs("*", out);
    copy(out, name, end);
    fputs(" = (", out);
    copy(out, begin, name);
    fputs("*)lkt_gpu::dynamic_shared()", out);
    return end + 2;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: rewrite IN OUT\n");
        return 2;
    }
    path = argv[1];
    char *all = read_all(path);
    const char *text = all;
    FILE *out = fopen(argv[2], "wb");
    if (!out) give_up("its result cannot be written");
    fprintf(out, "#line 1 \"%s\"\n", path);
    for (;;) {
        const char *launch = strstr(text, "<<<"), *dynamic = strstr(text, "extern __shared__");
        if (!launch && !dynamic) break;
        text = launch && (!dynamic || launch < dynamic) ? write_launch(out, text, launch)
                                                        : write_dynamic(out, text, dynamic);
    }
    fputs(text, out);
    free(all);
    if (fclose(out) != 0) give_up("its result cannot be written");
    return 0;
}
