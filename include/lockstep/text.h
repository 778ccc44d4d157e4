/* Text: tokenizers, files of tokens, and datasets of lines and of windows for language models.
 *
 *     lk_tokenizer *bpe = lk_bpe_tokenizer("vocab.json", "merges.txt");
 *     lk_status status = lk_tokenize_file(bpe, "train.bin", "train.txt");
 *     lk_loader *loader = lk_loader(lk_token_dataset("train.bin", 256, .random = true),
 *                                   .batch_size = 12);
 *
 * Life: tokenizers count their holders. A dataset that gets a tokenizer owns that hold from the
 * call on, also if the call fails; hand over lk_tokenizer_share(tokenizer) to keep it.
 *
 * Threads: a tokenizer never changes, so any number of threads may use it at once. */
#ifndef LOCKSTEP_TEXT_H
#define LOCKSTEP_TEXT_H

#include <lockstep/arguments.h>
#include <lockstep/sys/stream.h>
#include <lockstep/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Tokenizers ---- */

/* Text to numbers of tokens, and back. Text is bytes; what is not UTF-8 is kept by tokenizers that
 * work on bytes, and refused by the one that works on characters. */
typedef struct lk_tokenizer lk_tokenizer;

/* Each byte is a token: 256 of them. NULL on failure, as all constructors below. */
lk_tokenizer *lk_byte_tokenizer(void);
/* Each character is a token. The characters of this text, in the order of their code points, are
 * numbered from 0. Any other character is an error. */
lk_tokenizer *lk_char_tokenizer_of(const char *text, size_t nbytes);
/* The same for the text of a file. */
lk_tokenizer *lk_char_tokenizer_of_file(const char *path);
/* The same with the numbers that a JSON file gives the characters: {"a": 0, "b": 1}. */
lk_tokenizer *lk_char_tokenizer(const char *vocab_path);
/* Byte pair encoding on bytes, with the files vocab.json and merges.txt in GPT-2's form. Encodes
 * as GPT-2 does: the text is cut before spaces, letters, digits and other signs by GPT-2's
 * pattern, and within each piece the pair of the best rank is merged until none is left. Bytes
 * that are not UTF-8 count as other signs. Text that looks like a special token is text. */
lk_tokenizer *lk_bpe_tokenizer(const char *vocab_path, const char *merges_path);

/* Another hold; NULL gives NULL. */
lk_tokenizer *lk_tokenizer_share(lk_tokenizer *tokenizer);
void lk_tokenizer_free(lk_tokenizer *tokenizer);

/* One more than the largest number of a token: the number of rows of an embedding. */
int64_t lk_tokenizer_vocab_size(const lk_tokenizer *tokenizer);
/* The number of the token with this text, such as "<|endoftext|>", or -1. */
int64_t lk_tokenizer_find(const lk_tokenizer *tokenizer, const char *token);
/* Writes the tokens and their numbers as JSON, for lk_char_tokenizer or for GPT-2's vocab.json. */
lk_status lk_tokenizer_save(const lk_tokenizer *tokenizer, const char *vocab_path);

/* Returns the tokens of a text, i64 (count). The caller frees the tensor. */
lk_tensor *lk_tokenizer_encode(const lk_tokenizer *tokenizer, const char *text, size_t nbytes);
/* Returns the text of tokens with a zero byte behind it; `nbytes` may be NULL. The caller frees it
 * with lk_text_free. NULL with LK_ERR_RANGE for a number that is no token's. */
char *lk_tokenizer_decode(const lk_tokenizer *tokenizer, const int64_t *tokens, int64_t count,
                          size_t *nbytes);

typedef struct lk_tokenize_options {
    size_t struct_size;
    /* The token with this text is written behind the text, such as "<|endoftext|>". */
    const char *end_token;
    bool append; /* behind what is in the file; the file is written anew without it */
} lk_tokenize_options;
/* Writes the tokens of a text file as a flat file of uint16, or uint32 if the tokenizer has more
 * than 65,536 tokens, in the byte order of the machine, as nanoGPT's train.bin. */
lk_status lk_tokenize_file_with(const lk_tokenizer *tokenizer, const char *token_path, const char *text_path,
                                const lk_tokenize_options *options);
#define lk_tokenize_file(...) LK_CALL3_(lk_tokenize_file_with, lk_tokenize_options, __VA_ARGS__, )

/* ---- Windows of tokens: for language models ---- */

typedef struct lk_token_dataset_options {
    size_t struct_size;
    /* Tokens from the beginning of one window to that of the next; block_size. */
    int64_t stride;
    /* Each sample begins anywhere, drawn from (seed, epoch, index), elsewhere in every epoch. */
    bool random;
    int64_t count; /* samples of an epoch, with random only; as many as fit without overlapping */
    /* Bytes of a token of a file without a header: 2 or 4; 2. */
    int token_nbytes;
    /* Part of the file: fractions of its tokens; 0 and 1. */
    double begin, end;
    /* If set: a token of this number or above is an error that names its place. */
    int64_t vocab_size;
} lk_token_dataset_options;
/* "features" (block_size) i64, and "targets" (block_size) i64: the tokens that follow them. The
 * file is flat uint16 or uint32, as nanoGPT's train.bin, or has llm.c's header of 1,024 bytes,
 * which says which. It is mapped: ranks of one host share its pages, and memory holds only what
 * was used. */
lk_dataset *lk_token_dataset_with(const char *path, int64_t block_size,
                                  const lk_token_dataset_options *options);
#define lk_token_dataset(...) LK_CALL2_(lk_token_dataset_with, lk_token_dataset_options, __VA_ARGS__, )
/* The same over a text, which is tokenized in this call. Owns the tokenizer. */
lk_dataset *lk_text_dataset_with(const char *path, lk_tokenizer *tokenizer, int64_t block_size,
                                 const lk_token_dataset_options *options);
#define lk_text_dataset(...) LK_CALL3_(lk_text_dataset_with, lk_token_dataset_options, __VA_ARGS__, )

/* ---- Lines ---- */

typedef struct lk_text_lines_options {
    size_t struct_size;
    bool truncate; /* longer lines are cut; without it they are errors that name file and line */
    /* "targets" (max_length): the token behind each of "features". A line of n tokens then gives
     * n - 1. */
    bool next_token;
    double pad_value;      /* of "features" behind the line's end; 0 */
    double ignore_value;   /* of "targets" there; -100, which cross_entropy_loss ignores */
    const char *end_token; /* the token with this text is put behind each line */
} lk_text_lines_options;
/* Each line of a text file is a sample: "features" (max_length) i64, padded at its end, and
 * "features_lengths" i64. Empty lines are left out. lk_pad_collate cuts batches to their longest
 * line and makes the mask. Owns the tokenizer. */
lk_dataset *lk_text_lines_with(const char *path, lk_tokenizer *tokenizer, int64_t max_length,
                               const lk_text_lines_options *options);
#define lk_text_lines(...) LK_CALL3_(lk_text_lines_with, lk_text_lines_options, __VA_ARGS__, )

typedef struct lk_text_stream_options {
    size_t struct_size;
    /* As those of lk_text_lines. */
    bool truncate, next_token;
    double pad_value, ignore_value;
    const char *end_token;
    int64_t shuffle_buffer; /* as that of lk_stream_dataset */
} lk_text_stream_options;
/* The same lines as a stream, which reads the file as it is used and does not look for its lines
 * first: line i belongs to rank i % ranks. Owns the tokenizer. */
lk_dataset *lk_text_stream_with(const char *path, lk_tokenizer *tokenizer, int64_t max_length,
                                const lk_text_stream_options *options);
#define lk_text_stream(...) LK_CALL3_(lk_text_stream_with, lk_text_stream_options, __VA_ARGS__, )

#ifdef __cplusplus
}
#endif
#endif
