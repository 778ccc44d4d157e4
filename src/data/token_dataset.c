/* Windows of tokens, (input, the tokens behind it), out of a mapped file or a text that was tokenized. */
#include <lockstep/text.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "data/file.h"
#include "data/keyed.h"
#include "data/token_file.h"
#include "data/tokenizer.h"
#include "tensor/buffer.h"
#include "tensor/mapped.h"

#include <math.h>
#include <string.h>

/* Keys the places of random windows: no transform has this position. */
#define WINDOW_STREAM UINT64_C(0x77696e646f77)

typedef struct windows {
    char *path;        /* for messages */
    lk_buffer *buffer; /* holds the tokens */
    lki_token_file file;
    int64_t first, token_count; /* the part that is used, in tokens of the file */
    int64_t block_size, stride, count, vocab_size;
    bool random;
} windows;

static int64_t windows_length(void *context)
{
    return ((windows *)context)->count;
}

/* A window needs one token more than block_size. */
static int64_t begin_of(const windows *self, const lk_pass *pass, int64_t index)
{
    if (!self->random) return self->first + index * self->stride;
    lki_keyed random = lki_keyed_make(pass->seed, (uint64_t)pass->epoch, (uint64_t)index, WINDOW_STREAM);
    return self->first + lki_keyed_below(&random, self->token_count - self->block_size);
}

static lk_status check_token(const windows *self, int64_t token, int64_t place)
{
    if (!self->vocab_size || token < self->vocab_size) return LK_OK;
    return lki_fail(LK_ERR_RANGE, "%s: token %lld is %lld, but vocab_size is %lld", self->path,
                    (long long)place, (long long)token, (long long)self->vocab_size);
}

static lk_status windows_get(void *context, const lk_pass *pass, int64_t index, void *const *slots)
{
    const windows *self = context;
    int64_t begin = begin_of(self, pass, index), *features = slots[0], *targets = slots[1];
    for (int64_t i = 0; i <= self->block_size; i++) {
        int64_t token = lki_token_at(&self->file, begin + i);
        LKI_TRY(check_token(self, token, begin + i));
        if (i < self->block_size) features[i] = token;
        if (i > 0) targets[i - 1] = token;
    }
    return LK_OK;
}

static void windows_free(void *context)
{
    windows *self = context;
    lki_buffer_release(self->buffer);
    lki_free(self->path);
    lki_free(self);
}

static const lk_dataset_ops windows_ops = {LK_SIZE(lk_dataset_ops), .length = windows_length,
                                           .get = windows_get, .free = windows_free};

/* ---- Options ---- */

static lk_status check_numbers(int64_t block_size, const lk_token_dataset_options *options)
{
    if (block_size < 1)
        return lki_fail(LK_ERR_INVALID, "block_size: expected at least 1, found %lld", (long long)block_size);
    if (options->stride < 0)
        return lki_fail(LK_ERR_INVALID, "stride: expected at least 1, found %lld",
                        (long long)options->stride);
    if (options->stride && options->random)
        return lki_fail(LK_ERR_INVALID, "stride: random windows begin anywhere: leave one of them out");
    if (options->count < 0)
        return lki_fail(LK_ERR_INVALID, "count: expected at least 1, found %lld", (long long)options->count);
    if (options->count && !options->random)
        return lki_fail(LK_ERR_INVALID, "count: only random windows have any number: set random, too");
    if (options->token_nbytes != 0 && options->token_nbytes != 2 && options->token_nbytes != 4)
        return lki_fail(LK_ERR_INVALID, "token_nbytes: expected 2 or 4, found %d", options->token_nbytes);
    if (options->vocab_size < 0)
        return lki_fail(LK_ERR_INVALID, "vocab_size: expected at least 1, found %lld",
                        (long long)options->vocab_size);
    double begin = options->begin, end = options->end == 0 ? 1 : options->end;
    if (!(begin >= 0 && begin < end && end <= 1))
        return lki_fail(LK_ERR_INVALID, "begin and end: expected 0 <= begin < end <= 1, found %g and %g",
                        begin, end);
    return LK_OK;
}

static lk_status set_windows(windows *self, int64_t block_size, const lk_token_dataset_options *options)
{
    double count = (double)self->file.count, end = options->end == 0 ? 1 : options->end;
    self->first = (int64_t)floor(options->begin * count);
    self->token_count = (int64_t)floor(end * count) - self->first;
    self->block_size = block_size;
    self->random = options->random;
    self->vocab_size = options->vocab_size;
    self->stride = options->stride ? options->stride : block_size;
    if (self->token_count <= block_size)
        return lki_fail(LK_ERR_INVALID,
                        "%s: %lld tokens make no window of block_size %lld and the token "
                        "behind it",
                        self->path, (long long)self->token_count, (long long)block_size);
    self->count = options->count ? options->count : 1 + (self->token_count - block_size - 1) / self->stride;
    return LK_OK;
}

static windows *create(const char *path, int64_t block_size, const lk_token_dataset_options *options)
{
    if (!path) return lki_fail_null(LK_ERR_INVALID, "tokens: the path is missing");
    if (check_numbers(block_size, options)) return NULL;
    windows *self = LKI_NEW(windows);
    if (!self) return NULL;
    self->path = lki_strdup(path);
    if (self->path) return self;
    lki_free(self);
    return NULL;
}

static lk_dataset *finish(windows *self, int64_t block_size, const lk_token_dataset_options *options)
{
    if (set_windows(self, block_size, options)) {
        windows_free(self);
        return NULL;
    }
    const lk_field fields[] = {{"features", LK_I64, LK_SHAPE(block_size)},
                               {"targets", LK_I64, LK_SHAPE(block_size)}};
    return lk_dataset_create(&windows_ops, fields, 2, self);
}

lk_dataset *lk_token_dataset_with(const char *path, int64_t block_size, const lk_token_dataset_options *given)
{
    LKI_TAKE(lk_token_dataset_options, options, given, NULL);
    windows *self = create(path, block_size, &options);
    if (!self) return NULL;
    if (lki_map_file(&self->buffer, path) ||
        lki_token_file_open(&self->file, path, lki_buffer_data(self->buffer), lki_buffer_nbytes(self->buffer),
                            options.token_nbytes)) {
        windows_free(self);
        return NULL;
    }
    return finish(self, block_size, &options);
}

/* ---- Text ---- */

static void free_tokens(void *data, void *context)
{
    (void)context;
    lki_free(data);
}

static lk_status tokenize(windows *self, const lk_tokenizer *tokenizer)
{
    lk_buffer *text;
    lki_tokens tokens = {0};
    LKI_TRY(lki_file_read(&text, self->path));
    lk_status status =
        lki_tokenizer_encode(tokenizer, lki_buffer_data(text), lki_buffer_nbytes(text), &tokens);
    lki_buffer_release(text);
    if (status) {
        lki_free(tokens.ids);
        return lki_fail_prefix(status, "%s", self->path);
    }
    size_t nbytes = (size_t)tokens.count * sizeof *tokens.ids;
    self->file = (lki_token_file){.tokens = tokens.ids, .token_nbytes = 4, .count = tokens.count};
    self->buffer = lki_buffer_adopt(tokens.ids, nbytes, free_tokens, NULL);
    if (self->buffer) return LK_OK;
    lki_free(tokens.ids);
    return LK_ERR_NOMEM;
}

static lk_dataset *make_text_dataset(const char *path, const lk_tokenizer *tokenizer, int64_t block_size,
                                     const lk_token_dataset_options *given)
{
    LKI_TAKE(lk_token_dataset_options, options, given, NULL);
    if (options.token_nbytes)
        return lki_fail_null(LK_ERR_INVALID, "token_nbytes: a text has no tokens of bytes: leave it out");
    windows *self = create(path, block_size, &options);
    if (!self) return NULL;
    if (tokenize(self, tokenizer)) {
        windows_free(self);
        return NULL;
    }
    return finish(self, block_size, &options);
}

lk_dataset *lk_text_dataset_with(const char *path, lk_tokenizer *tokenizer, int64_t block_size,
                                 const lk_token_dataset_options *options)
{
    if (!tokenizer) return NULL;
    lk_dataset *dataset = make_text_dataset(path, tokenizer, block_size, options);
    lk_tokenizer_free(tokenizer);
    return dataset;
}
