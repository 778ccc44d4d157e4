/* lockstep tokenize: texts to one file of tokens, which TokenDataset reads. */
#include "cli/commands.h"

#include "base/status.h"
#include "data/token_file.h"

#include <lockstep/text.h>

#include <string.h>

typedef struct tokenize_options {
    lki_texts files;
    const char *output, *tokenizer, *vocab, *merges, *end_token, *save_vocab;
} tokenize_options;

#define OFFSET(field) offsetof(tokenize_options, field)

static const lki_option table[] = {
    {"output", 'o', LKI_OPTION_TEXT, OFFSET(output), "FILE", NULL, "the file to write", 0},
    {"tokenizer", 't', LKI_OPTION_TEXT, OFFSET(tokenizer), NULL, "bytes|chars|bpe",
     "what a token is; bpe if there are merges, else bytes", 0},
    {"vocab", 0, LKI_OPTION_TEXT, OFFSET(vocab), "FILE", NULL, "vocab.json: the numbers of the tokens", 0},
    {"merges", 0, LKI_OPTION_TEXT, OFFSET(merges), "FILE", NULL, "merges.txt, for bpe", 0},
    {"end-token", 0, LKI_OPTION_TEXT, OFFSET(end_token), "TOKEN", NULL,
     "a token to put behind each text, such as <|endoftext|>", 0},
    {"save-vocab", 0, LKI_OPTION_TEXT, OFFSET(save_vocab), "FILE", NULL,
     "write the numbers of the tokens, as vocab.json", 0},
    {0},
};

static lk_tokenizer *make_tokenizer(const tokenize_options *options)
{
    const char *kind = options->tokenizer ? options->tokenizer : options->merges ? "bpe" : "bytes";
    bool is_bpe = !strcmp(kind, "bpe"), is_bytes = !strcmp(kind, "bytes");
    if (is_bpe && !(options->vocab && options->merges))
        return lki_fail_null(LK_ERR_CONFIG, "tokenize: bpe needs --vocab FILE and --merges FILE");
    if (options->merges && !is_bpe)
        return lki_fail_null(LK_ERR_CONFIG, "tokenize: --merges: only byte pairs have any: write -t bpe");
    if (options->vocab && is_bytes)
        return lki_fail_null(LK_ERR_CONFIG, "tokenize: --vocab: bytes need none: write -t chars");
    if (is_bytes) return lk_byte_tokenizer();
    if (is_bpe) return lk_bpe_tokenizer(options->vocab, options->merges);
    if (options->vocab) return lk_char_tokenizer(options->vocab);
    if (options->files.count > 1)
        return lki_fail_null(LK_ERR_CONFIG,
                             "tokenize: chars of several texts need one vocabulary: write --vocab FILE");
    return lk_char_tokenizer_of_file(options->files.items[0]);
}

static lk_status write_tokens(const lk_tokenizer *tokenizer, const tokenize_options *options)
{
    LKI_TRY(lki_tokenize_files(tokenizer, options->output, options->files.items, options->files.count,
                               options->end_token));
    if (options->save_vocab) LKI_TRY(lk_tokenizer_save(tokenizer, options->save_vocab));
    printf("%s: tokens of %d bytes, vocabulary of %lld\n", options->output,
           lk_tokenizer_vocab_size(tokenizer) > UINT16_MAX + 1 ? 4 : 2,
           (long long)lk_tokenizer_vocab_size(tokenizer));
    return LK_OK;
}

static int run(const void *pointer)
{
    const tokenize_options *options = pointer;
    if (!options->output) {
        lki_fail(LK_ERR_CONFIG, "tokenize: needs --output FILE");
        return lki_report(LKI_EXIT_WRONG);
    }
    lk_tokenizer *tokenizer = make_tokenizer(options);
    if (!tokenizer) return lki_report(lki_last_status() == LK_ERR_CONFIG ? LKI_EXIT_WRONG : LKI_EXIT_FAILED);
    lk_status status = write_tokens(tokenizer, options);
    lk_tokenizer_free(tokenizer);
    return status ? lki_report(LKI_EXIT_FAILED) : LKI_EXIT_DONE;
}

const lki_command lki_command_tokenize = {
    .name = "tokenize",
    .usage = "FILE ... -o OUTPUT [options]",
    .summary = "Turns texts into a file of tokens.",
    .options = table,
    .options_nbytes = sizeof(tokenize_options),
    .positional = "a text",
    .positional_offset = offsetof(tokenize_options, files),
    .positional_minimum = 1,
    .notes = "The file is flat: uint16, or uint32 for more than 65,536 tokens, as nanoGPT's train.bin.\n",
    .run = run,
};
