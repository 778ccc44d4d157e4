#include "data/text_lines.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "data/file.h"
#include "tensor/buffer.h"

#include <math.h>
#include <string.h>

/* ---- One line ---- */

static bool is_token(double value)
{
    return value == floor(value) && fabs(value) <= INT32_MAX;
}

static lk_status fill_form(lki_line_form *form, const lk_text_lines_options *options)
{
    form->options = *options;
    form->options.end_token = NULL;
    form->options.pad_value = lki_number_or(options->pad_value, 0);
    form->options.ignore_value = lki_number_or(options->ignore_value, -100);
    form->end = -1;
    if (form->max_length < 1 || form->max_length > INT32_MAX)
        return lki_fail(LK_ERR_INVALID, "max_length: expected at least 1, found %lld",
                        (long long)form->max_length);
    if (!is_token(form->options.pad_value) || !is_token(form->options.ignore_value))
        return lki_fail(LK_ERR_INVALID, "pad_value and ignore_value: expected whole numbers");
    if (options->ignore_value != 0 && !options->next_token)
        return lki_fail(LK_ERR_INVALID, "ignore_value: there are no targets without next_token");
    return options->end_token ? lki_tokenizer_number(form->tokenizer, options->end_token, &form->end) : LK_OK;
}

lk_status lki_line_form_init(lki_line_form *out, const char *path, lk_tokenizer *tokenizer,
                             int64_t max_length, const lk_text_lines_options *options)
{
    *out = (lki_line_form){.tokenizer = tokenizer, .max_length = max_length};
    lk_status status = path ? LK_OK : lki_fail(LK_ERR_INVALID, "lines: the path is missing");
    if (!status) status = fill_form(out, options);
    if (!status && !(out->path = lki_strdup(path))) status = LK_ERR_NOMEM;
    if (status) {
        lki_line_form_fini(out);
        return status;
    }
    out->fields[out->field_count++] = (lk_field){"features", LK_I64, LK_SHAPE(max_length)};
    out->fields[out->field_count++] = (lk_field){"features_lengths", LK_I64, (lk_shape){0}};
    if (options->next_token)
        out->fields[out->field_count++] = (lk_field){"targets", LK_I64, LK_SHAPE(max_length)};
    return LK_OK;
}

void lki_line_form_fini(lki_line_form *form)
{
    lk_tokenizer_free(form->tokenizer);
    lki_free(form->path);
    *form = (lki_line_form){0};
}

size_t lki_line_nbytes(const char *text, const char *end, const char **next)
{
    const char *found = memchr(text, '\n', (size_t)(end - text));
    *next = found ? found + 1 : end;
    if (!found) found = end;
    if (found > text && found[-1] == '\r') found--;
    return (size_t)(found - text);
}

static void write_line(const lki_line_form *form, const lki_tokens *tokens, int64_t length,
                       void *const *slots)
{
    int64_t *features = slots[0], *lengths = slots[1];
    *lengths = length;
    for (int64_t i = 0; i < form->max_length; i++)
        features[i] = i < length ? tokens->ids[i] : (int64_t)form->options.pad_value;
    if (!form->options.next_token) return;
    int64_t *targets = slots[2];
    for (int64_t i = 0; i < form->max_length; i++)
        targets[i] = i < length ? tokens->ids[i + 1] : (int64_t)form->options.ignore_value;
}

static lk_status cut_line(const lki_line_form *form, const lki_tokens *tokens, int64_t *length)
{
    *length = tokens->count - form->options.next_token;
    if (*length < 1)
        return lki_fail(LK_ERR_INVALID,
                        "one token has none behind it to predict: leave the line out, or set end_token");
    if (*length > form->max_length && !form->options.truncate)
        return lki_fail(LK_ERR_RANGE, "%lld tokens, but max_length is %lld: set truncate or a larger one",
                        (long long)*length, (long long)form->max_length);
    if (*length > form->max_length) *length = form->max_length;
    return LK_OK;
}

lk_status lki_line_get(const lki_line_form *form, const char *line, size_t nbytes, int64_t number,
                       void *const *slots)
{
    lki_tokens tokens = {0};
    int64_t length = 0;
    lk_status status = lki_tokenizer_encode(form->tokenizer, line, nbytes, &tokens);
    if (!status && form->end >= 0) status = lki_tokens_add(&tokens, form->end);
    if (!status) status = cut_line(form, &tokens, &length);
    if (!status) write_line(form, &tokens, length, slots);
    lki_free(tokens.ids);
    return status ? lki_fail_prefix(status, "%s:%lld", form->path, (long long)number) : LK_OK;
}

/* ---- The dataset ---- */

typedef struct place {
    int64_t offset, number; /* of a line */
} place;

typedef struct lines {
    lki_line_form form;
    lk_buffer *text;
    place *places;
    int64_t count, capacity;
} lines;

static int64_t lines_length(void *context)
{
    return ((lines *)context)->count;
}

static lk_status lines_get(void *context, const lk_pass *pass, int64_t index, void *const *slots)
{
    const lines *self = context;
    const char *text = lki_buffer_data(self->text), *next;
    const char *line = text + self->places[index].offset;
    size_t nbytes = lki_line_nbytes(line, text + lki_buffer_nbytes(self->text), &next);
    (void)pass;
    return lki_line_get(&self->form, line, nbytes, self->places[index].number, slots);
}

static void lines_free(void *context)
{
    lines *self = context;
    lki_line_form_fini(&self->form);
    lki_buffer_release(self->text);
    lki_free(self->places);
    lki_free(self);
}

static const lk_dataset_ops lines_ops = {LK_SIZE(lk_dataset_ops), .length = lines_length, .get = lines_get,
                                         .free = lines_free};

static lk_status add_place(lines *self, int64_t offset, int64_t number)
{
    if (self->count == self->capacity) {
        int64_t capacity = self->capacity ? self->capacity * 2 : 256;
        place *places = lki_realloc(self->places, (size_t)capacity * sizeof *places, "the lines of a text");
        if (!places) return LK_ERR_NOMEM;
        self->places = places;
        self->capacity = capacity;
    }
    self->places[self->count++] = (place){offset, number};
    return LK_OK;
}

static lk_status find_lines(lines *self)
{
    LKI_TRY(lki_file_read(&self->text, self->form.path));
    const char *text = lki_buffer_data(self->text), *end = text + lki_buffer_nbytes(self->text), *next;
    int64_t number = 0;
    for (const char *at = text; at < end; at = next) {
        size_t nbytes = lki_line_nbytes(at, end, &next);
        number++;
        if (nbytes) LKI_TRY(add_place(self, at - text, number));
    }
    return LK_OK;
}

lk_dataset *lk_text_lines_with(const char *path, lk_tokenizer *tokenizer, int64_t max_length,
                               const lk_text_lines_options *given)
{
    lk_text_lines_options options;
    if (!tokenizer) return NULL;
    lines *self = lki_take(&options, sizeof options, given, "lk_text_lines_options") ? NULL : LKI_NEW(lines);
    if (!self) {
        lk_tokenizer_free(tokenizer);
        return NULL;
    }
    if (lki_line_form_init(&self->form, path, tokenizer, max_length, &options) || find_lines(self)) {
        lines_free(self);
        return NULL;
    }
    return lk_dataset_create(&lines_ops, self->form.fields, self->form.field_count, self);
}
