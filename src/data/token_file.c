#include "data/token_file.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "data/file.h"
#include "data/tokenizer.h"
#include "tensor/buffer.h"

#include <string.h>

/* llm.c's header: 256 int32, of which the first three are a magic number, a version and the count. */
enum { HEADER_NBYTES = 1024, UINT16_MAGIC = 20240520, UINT16_VERSION = 1, UINT32_MAGIC = 20240801 };
enum { UINT32_VERSION = 7 };

static lk_status read_header(lki_token_file *out, const char *path, const int32_t *header, size_t nbytes)
{
    int wide = header[0] == UINT32_MAGIC, version = wide ? UINT32_VERSION : UINT16_VERSION;
    if (header[1] != version)
        return lki_fail(LK_ERR_UNSUPPORTED, "%s: a header of version %d, this library reads %d", path,
                        header[1], version);
    int64_t found = (int64_t)(nbytes - HEADER_NBYTES) / (wide ? 4 : 2);
    if (header[2] < 0 || found != header[2])
        return lki_fail(LK_ERR_FORMAT, "%s: the header says %d tokens, but the file has %lld", path,
                        header[2], (long long)found);
    *out = (lki_token_file){(const char *)header + HEADER_NBYTES, wide ? 4 : 2, found};
    return LK_OK;
}

lk_status lki_token_file_open(lki_token_file *out, const char *path, const void *data, size_t nbytes,
                              int token_nbytes)
{
    const int32_t *header = data;
    if (nbytes >= HEADER_NBYTES && (header[0] == UINT16_MAGIC || header[0] == UINT32_MAGIC)) {
        LKI_TRY(read_header(out, path, header, nbytes));
        if (!token_nbytes || token_nbytes == out->token_nbytes) return LK_OK;
        return lki_fail(LK_ERR_INVALID,
                        "%s: the header says tokens of %d bytes, not %d: leave token_nbytes out", path,
                        out->token_nbytes, token_nbytes);
    }
    int width = token_nbytes ? token_nbytes : 2;
    if (nbytes % (size_t)width)
        return lki_fail(LK_ERR_FORMAT, "%s: %zu bytes are no whole number of tokens of %d bytes", path,
                        nbytes, width);
    *out = (lki_token_file){data, width, (int64_t)nbytes / width};
    return LK_OK;
}

/* ---- Writing ---- */

static lk_status write_tokens(lki_atomic_file *file, const lki_tokens *tokens, bool wide)
{
    enum { BLOCK = 4096 };
    uint16_t block[BLOCK];
    if (wide) return lki_atomic_file_write(file, tokens->ids, (size_t)tokens->count * sizeof *tokens->ids);
    for (int64_t begin = 0; begin < tokens->count; begin += BLOCK) {
        int64_t count = tokens->count - begin < BLOCK ? tokens->count - begin : BLOCK;
        for (int64_t i = 0; i < count; i++) block[i] = (uint16_t)tokens->ids[begin + i];
        LKI_TRY(lki_atomic_file_write(file, block, (size_t)count * sizeof *block));
    }
    return LK_OK;
}

/* The file appears whole, so what it had is written first. */
static lk_status copy_old(lki_atomic_file *file, const char *path, int width)
{
    LKI_SCOPED char *old = NULL;
    size_t nbytes;
    if (!lki_file_exists(path)) return LK_OK;
    LKI_TRY(lki_read_file(&old, &nbytes, path));
    if (nbytes % (size_t)width)
        return lki_fail(LK_ERR_FORMAT, "%s: %zu bytes are no whole number of tokens of %d bytes", path,
                        nbytes, width);
    return lki_atomic_file_write(file, old, nbytes);
}

static lk_status write_file(const lk_tokenizer *tokenizer, const char *path, const lki_tokens *tokens,
                            bool append)
{
    lki_atomic_file *file;
    bool wide = lk_tokenizer_vocab_size(tokenizer) > UINT16_MAX + 1;
    LKI_TRY(lki_atomic_file_open(&file, path));
    lk_status status = append ? copy_old(file, path, wide ? 4 : 2) : LK_OK;
    if (!status) status = write_tokens(file, tokens, wide);
    if (!status) return lki_atomic_file_commit(file);
    lki_atomic_file_abort(file);
    return status;
}

/* Appends the tokens of a text, and `end` if it is one. */
static lk_status encode_file(const lk_tokenizer *tokenizer, const char *path, int64_t end, lki_tokens *tokens)
{
    lk_buffer *text;
    LKI_TRY(lki_file_read(&text, path));
    lk_status status =
        lki_tokenizer_encode(tokenizer, lki_buffer_data(text), lki_buffer_nbytes(text), tokens);
    lki_buffer_release(text);
    if (status) return lki_fail_prefix(status, "%s", path);
    return end >= 0 ? lki_tokens_add(tokens, end) : LK_OK;
}

lk_status lki_tokenize_files(const lk_tokenizer *tokenizer, const char *token_path,
                             const char *const *text_paths, int count, const char *end_token)
{
    lki_tokens tokens = {0};
    int64_t end = -1;
    if (end_token) LKI_TRY(lki_tokenizer_number(tokenizer, end_token, &end));
    lk_status status = LK_OK;
    for (int i = 0; i < count && !status; i++) status = encode_file(tokenizer, text_paths[i], end, &tokens);
    if (!status) status = write_file(tokenizer, token_path, &tokens, false);
    lki_free(tokens.ids);
    return status;
}

lk_status lk_tokenize_file_with(const lk_tokenizer *tokenizer, const char *token_path, const char *text_path,
                                const lk_tokenize_options *given)
{
    LKI_TAKE(lk_tokenize_options, options, given, lk_error_status());
    lki_tokens tokens = {0};
    int64_t end = -1;
    if (!tokenizer || !token_path || !text_path)
        return lki_fail(LK_ERR_INVALID, "lk_tokenize_file: the tokenizer or a path is missing");
    if (options.end_token) LKI_TRY(lki_tokenizer_number(tokenizer, options.end_token, &end));
    lk_status status = encode_file(tokenizer, text_path, end, &tokens);
    if (!status) status = write_file(tokenizer, token_path, &tokens, options.append);
    lki_free(tokens.ids);
    return status;
}
