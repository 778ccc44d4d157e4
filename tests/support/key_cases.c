#include "key_cases.h"

#include "lktest.h"

typedef struct reader {
    lkt_key_cases *cases;
    const char *path;
    char *at;
    int line;
} reader;

static char *next_line(reader *r)
{
    char *line = r->at;
    if (!line || !*line) return NULL;
    size_t length = strcspn(line, "\n");
    r->at = line[length] ? line + length + 1 : NULL;
    line[length] = 0;
    r->line++;
    return line;
}

static void *grow(void *items, int count, size_t nbytes)
{
    void *larger = realloc(items, nbytes * (size_t)(count + 1));
    assert_non_null(larger);
    memset((char *)larger + nbytes * (size_t)count, 0, nbytes);
    return larger;
}

/* Cuts `text` at a separator; what follows it, or NULL. */
static char *cut(char *text, const char *separator)
{
    char *found = text ? strstr(text, separator) : NULL;
    if (!found) return NULL;
    char *end = found;
    while (end > text && end[-1] == ' ') *--end = 0;
    *found = 0;
    found += strlen(separator);
    return found + strspn(found, " ");
}

static void read_config(reader *r, char *line)
{
    lkt_key_cases *f = r->cases;
    assert_true(f->config_count < LKT_MAX_KEY_CONFIGS);
    lkt_key_config *config = &f->configs[f->config_count++];
    config->name = line + strlen("config ");
    config->path = cut((char *)config->name, " ");
    if (!config->path) fail_msg("%s:%d: expected `config NAME PATH`", r->path, r->line);
    char *begin = r->at, *end = begin;
    config->text = begin;
    for (char *next; (next = next_line(r)) && strcmp(next, "end"); end = next + strlen(next)) {
        if (next > begin) next[-1] = '\n';
    }
    *end = 0;
}

static void read_block(reader *r, char *line)
{
    lkt_key_cases *f = r->cases;
    f->blocks = grow(f->blocks, f->block_count, sizeof *f->blocks);
    lkt_key_block *block = &f->blocks[f->block_count++];
    *block = (lkt_key_block){.components = line + strlen("== "), .file = r->path, .line = r->line};
    const char *name = cut((char *)block->components, " in ");
    for (int i = 0; name && i < f->config_count; i++)
        if (!strcmp(f->configs[i].name, name)) block->config = &f->configs[i];
    if (!block->config) fail_msg("%s:%d: expected `== COMPONENT in CONFIG`", r->path, r->line);
}

static void read_case(reader *r, char *line)
{
    if (!r->cases->block_count) fail_msg("%s:%d: a case before the first component", r->path, r->line);
    lkt_key_block *block = &r->cases->blocks[r->cases->block_count - 1];
    if (*line == '{') {
        block->base = line;
        return;
    }
    block->cases = grow(block->cases, block->case_count, sizeof *block->cases);
    lkt_key_case *c = &block->cases[block->case_count++];
    *c = (lkt_key_case){.key = line, .file = r->path, .line = r->line};
    c->watches = cut(line, "%%");
    if ((c->text = cut(line, "!!"))) c->outcome = LKT_KEY_FAILS;
    if (!c->text && (c->text = cut(line, "??"))) c->outcome = LKT_KEY_SAYS;
    char *further = cut(line, "&&");
    for (int i = 0; further && i < LKT_MAX_FURTHER; i++) {
        c->further[i] = further;
        further = cut(further, "&&");
    }
    c->value = cut(line, ": ");
    if (!c->value) fail_msg("%s:%d: expected `KEY: VALUE`", r->path, r->line);
}

static char *read_text(const char *path)
{
    FILE *stream = fopen(path, "r");
    long nbytes;
    if (!stream || fseek(stream, 0, SEEK_END) || (nbytes = ftell(stream)) < 0) {
        fail_msg("cannot read %s", path);
        return NULL;
    }
    rewind(stream);
    char *text = calloc(1, (size_t)nbytes + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)nbytes, stream), nbytes);
    fclose(stream);
    return text;
}

void lkt_key_cases_read(lkt_key_cases *cases, const char *path)
{
    const char *slash = strrchr(path, '/');
    assert_true(cases->text_count < LKT_MAX_KEY_FILES);
    reader r = {.cases = cases, .path = strdup(slash ? slash + 1 : path), .at = read_text(path)};
    cases->names[cases->text_count] = (char *)r.path;
    cases->texts[cases->text_count++] = r.at;
    for (char *line; (line = next_line(&r));) {
        if (!*line || *line == '#') continue;
        if (!strncmp(line, "~~ ", 3)) {
            assert_true(cases->alike_count < LKT_MAX_KEY_FILES);
            cases->alike[cases->alike_count++] = line + 3;
            continue;
        }
        if (!strncmp(line, "config ", 7))
            read_config(&r, line);
        else if (!strncmp(line, "== ", 3))
            read_block(&r, line);
        else
            read_case(&r, line);
    }
}

void lkt_key_cases_free(lkt_key_cases *cases)
{
    for (int i = 0; i < cases->block_count; i++) free(cases->blocks[i].cases);
    for (int i = 0; i < cases->text_count; i++) free(cases->texts[i]), free(cases->names[i]);
    free(cases->blocks);
}

const char *lkt_word_at(const char *words, int index, char *buffer, int capacity)
{
    for (;; index--) {
        words += strspn(words, " ");
        int length = (int)strcspn(words, " ");
        if (!length) return NULL;
        if (index == 0) {
            snprintf(buffer, (size_t)capacity, "%.*s", length, words);
            return buffer;
        }
        words += length;
    }
}
