/* Files of tokens: flat uint16 or uint32, or with llm.c's header. Any thread. */
#ifndef LKI_DATA_TOKEN_FILE_H
#define LKI_DATA_TOKEN_FILE_H

#include <lockstep/text.h>

#include <stddef.h>
#include <stdint.h>

typedef struct lki_token_file {
    const void *tokens; /* (count) of token_nbytes each; borrowed */
    int token_nbytes;
    int64_t count;
} lki_token_file;

/* Finds the tokens among a file's bytes. `token_nbytes` is what the caller expects, 0 for either. */
lk_status lki_token_file_open(lki_token_file *out, const char *path, const void *data, size_t nbytes,
                              int token_nbytes);

/* Writes the tokens of several texts, one behind the other, as lk_tokenize_file does: all of them, or none.
 */
lk_status lki_tokenize_files(const lk_tokenizer *tokenizer, const char *token_path,
                             const char *const *text_paths, int count, const char *end_token);

static inline int64_t lki_token_at(const lki_token_file *file, int64_t place)
{
    return file->token_nbytes == 2 ? ((const uint16_t *)file->tokens)[place]
                                   : ((const uint32_t *)file->tokens)[place];
}

#endif
