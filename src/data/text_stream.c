/* Lines of a text as a stream. */
#include "data/text_lines.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUFFER = 1 << 16 };

typedef struct cursor {
    FILE *file;
    char *buffer; /* the file's */
    char *line;   /* getline's */
    size_t capacity;
    int64_t number; /* of the line that was read last, from 1 */
    int64_t seen;   /* lines that are samples */
    int shard, shard_count;
} cursor;

static void close_lines(void *context, void *pointer)
{
    cursor *self = pointer;
    (void)context;
    if (!self) return;
    if (self->file) fclose(self->file);
    free(self->line);
    lki_free(self->buffer);
    lki_free(self);
}

static lk_status open_lines(void *context, const lk_pass *pass, int shard, int shard_count, void **out)
{
    const lki_line_form *form = context;
    (void)pass;
    cursor *self = LKI_NEW(cursor);
    if (!self) return LK_ERR_NOMEM;
    self->shard = shard;
    self->shard_count = shard_count;
    self->buffer = lki_calloc(BUFFER, "a buffer of a file");
    self->file = self->buffer ? fopen(form->path, "re") : NULL;
    if (!self->file) {
        lk_status status =
            self->buffer ? lki_fail(LK_ERR_NOT_FOUND, "%s: %s", form->path, strerror(errno)) : LK_ERR_NOMEM;
        close_lines(context, self);
        return status;
    }
    setvbuf(self->file, self->buffer, _IOFBF, BUFFER);
    *out = self;
    return LK_OK;
}

/* The shard's next line; *nbytes is 0 at the end. */
static lk_status read_line(const lki_line_form *form, cursor *self, size_t *nbytes)
{
    for (*nbytes = 0;;) {
        errno = 0;
        ssize_t got = getline(&self->line, &self->capacity, self->file);
        if (got < 0 && (ferror(self->file) || errno == ENOMEM))
            return lki_fail(LK_ERR_IO, "%s: %s", form->path, strerror(errno));
        if (got < 0) return LK_OK;
        const char *next;
        size_t length = lki_line_nbytes(self->line, self->line + got, &next);
        self->number++;
        if (length == 0 || self->seen++ % self->shard_count != self->shard) continue;
        *nbytes = length;
        return LK_OK;
    }
}

static lk_status next_line(void *context, void *pointer, void *const *slots, bool *found)
{
    const lki_line_form *form = context;
    cursor *self = pointer;
    size_t nbytes;
    LKI_TRY(read_line(form, self, &nbytes));
    *found = nbytes > 0;
    return *found ? lki_line_get(form, self->line, nbytes, self->number, slots) : LK_OK;
}

static lk_status skip_lines(void *context, void *pointer, int64_t count, int64_t *skipped)
{
    size_t nbytes;
    for (*skipped = 0; *skipped < count; ++*skipped) {
        LKI_TRY(read_line(context, pointer, &nbytes));
        if (nbytes == 0) break;
    }
    return LK_OK;
}

static void free_lines(void *context)
{
    lki_line_form_fini(context);
    lki_free(context);
}

static const lk_stream_ops line_stream_ops = {LK_SIZE(lk_stream_ops), .open = open_lines,
                                              .next = next_line,      .skip = skip_lines,
                                              .close = close_lines,   .free = free_lines};

static lk_text_lines_options line_options(const lk_text_stream_options *options)
{
    return (lk_text_lines_options){LK_SIZE(lk_text_lines_options),        .truncate = options->truncate,
                                   .next_token = options->next_token,     .pad_value = options->pad_value,
                                   .ignore_value = options->ignore_value, .end_token = options->end_token};
}

/* A file that is not there is known before the first batch. */
static lk_status check_file(const char *path)
{
    FILE *file = fopen(path, "re");
    if (!file) return lki_fail(LK_ERR_NOT_FOUND, "%s: %s", path, strerror(errno));
    bool is_packed = getc(file) == 0x1f && getc(file) == 0x8b;
    fclose(file);
    if (!is_packed) return LK_OK;
    return lki_fail(LK_ERR_UNSUPPORTED, "%s: a stream does not unpack gzip: unpack the file first", path);
}

lk_dataset *lk_text_stream_with(const char *path, lk_tokenizer *tokenizer, int64_t max_length,
                                const lk_text_stream_options *given)
{
    lk_text_stream_options options;
    if (!tokenizer) return NULL;
    lk_status status = lki_take(&options, sizeof options, given, "lk_text_stream_options");
    lki_line_form *form = status ? NULL : LKI_NEW(lki_line_form);
    if (!form) {
        lk_tokenizer_free(tokenizer);
        return NULL;
    }
    lk_text_lines_options lines = line_options(&options);
    status = lki_line_form_init(form, path, tokenizer, max_length, &lines);
    if (!status) status = check_file(path);
    if (status) {
        free_lines(form);
        return NULL;
    }
    return lk_stream_dataset(&line_stream_ops, form->fields, form->field_count, form,
                             .shuffle_buffer = options.shuffle_buffer);
}
