/* Text: files of tokens, windows of a text, lines. */
#include "config/components/components.h"

#include "base/arguments.h"
#include "base/status.h"

#include <lockstep/text.h>

#include <string.h>

/* The tokenizer that the keys say. Characters without a vocabulary are those of the text itself. */
static lk_tokenizer *make_tokenizer(lk_args *args)
{
    const char *kind = lk_arg_string(args, "tokenizer"), *vocab = lk_arg_string(args, "vocab");
    const char *merges = lk_arg_string(args, "merges");
    bool is_bpe = !strcmp(kind, "bpe"), is_bytes = !strcmp(kind, "bytes");
    if (is_bpe && !(vocab && merges))
        return lki_fail_null(
            LK_ERR_CONFIG, "tokenizer: bpe needs two files: write vocab: vocab.json and merges: merges.txt");
    if (merges && !is_bpe)
        return lki_fail_null(LK_ERR_CONFIG, "merges: only byte pairs have any: write tokenizer: bpe");
    if (vocab && is_bytes)
        return lki_fail_null(LK_ERR_CONFIG, "vocab: bytes need none: write tokenizer: chars or bpe");
    if (is_bytes) return lk_byte_tokenizer();
    if (is_bpe) return lk_bpe_tokenizer(vocab, merges);
    return vocab ? lk_char_tokenizer(vocab) : lk_char_tokenizer_of_file(lk_arg_string(args, "path"));
}

static lk_token_dataset_options window_options(lk_args *args)
{
    return (lk_token_dataset_options){
        LK_SIZE(lk_token_dataset_options),
        .stride = lk_arg_given(args, "stride") ? lk_arg_int64(args, "stride") : 0,
        .random = lk_arg_bool(args, "random"),
        .count = lk_arg_given(args, "count") ? lk_arg_int64(args, "count") : 0,
        .begin = lk_arg_float(args, "begin"),
        .end = lk_arg_float(args, "end"),
        .vocab_size = lk_arg_given(args, "vocab_size") ? lk_arg_int64(args, "vocab_size") : 0,
    };
}

/* What zero means "left out" for in C must not be written as zero. */
static lk_status check_windows(lk_args *args)
{
    static const char *const positive[] = {"stride", "count", "vocab_size"};
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (lk_arg_given(args, positive[i]) && lk_arg_int64(args, positive[i]) < 1)
            return lki_fail(LK_ERR_CONFIG, "%s: expected at least 1, found %lld", positive[i],
                            (long long)lk_arg_int64(args, positive[i]));
    if (lk_arg_float(args, "end") > 0) return LK_OK;
    return lki_fail(LK_ERR_CONFIG, "end: expected a part of the file above begin, found %g",
                    lk_arg_float(args, "end"));
}

static lk_status build_tokens(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    LKI_TRY(check_windows(args));
    lk_token_dataset_options options = window_options(args);
    options.token_nbytes = lk_arg_given(args, "token_nbytes") ? lk_arg_int(args, "token_nbytes") : 0;
    return lki_built(
        lk_token_dataset_with(lk_arg_string(args, "path"), lk_arg_int64(args, "block_size"), &options), out);
}

static lk_status build_text(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    LKI_TRY(check_windows(args));
    lk_token_dataset_options options = window_options(args);
    return lki_built(lk_text_dataset_with(lk_arg_string(args, "path"), make_tokenizer(args),
                                          lk_arg_int64(args, "block_size"), &options),
                     out);
}

static lk_text_lines_options line_options(lk_args *args)
{
    lk_text_lines_options options = {
        LK_SIZE(lk_text_lines_options),
        .truncate = lk_arg_bool(args, "truncate"),
        .next_token = lk_arg_bool(args, "next_token"),
        .pad_value = lki_number_meant((double)lk_arg_int64(args, "pad_value")),
        .end_token = lk_arg_string(args, "end_token"),
    };
    if (lk_arg_given(args, "ignore_value"))
        options.ignore_value = lki_number_meant((double)lk_arg_int64(args, "ignore_value"));
    return options;
}

static lk_status build_lines(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    lk_text_lines_options options = line_options(args);
    return lki_built(lk_text_lines_with(lk_arg_string(args, "path"), make_tokenizer(args),
                                        lk_arg_int64(args, "max_length"), &options),
                     out);
}

static lk_status build_line_stream(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    lk_text_lines_options lines = line_options(args);
    lk_text_stream_options options = {
        LK_SIZE(lk_text_stream_options),
        .truncate = lines.truncate,
        .next_token = lines.next_token,
        .pad_value = lines.pad_value,
        .ignore_value = lines.ignore_value,
        .end_token = lines.end_token,
        .shuffle_buffer = lk_arg_given(args, "shuffle_buffer") ? lk_arg_int64(args, "shuffle_buffer") : 0,
    };
    if (lk_arg_given(args, "shuffle_buffer") && options.shuffle_buffer < 1)
        return lki_fail(LK_ERR_CONFIG, "shuffle_buffer: expected at least 1 sample, found %lld",
                        (long long)options.shuffle_buffer);
    return lki_built(lk_text_stream_with(lk_arg_string(args, "path"), make_tokenizer(args),
                                         lk_arg_int64(args, "max_length"), &options),
                     out);
}

#define WINDOWS                                                                                              \
    LKI_INT64("block_size", LKI_REQUIRED, "tokens of a window"),                                             \
        LKI_INT64("stride", LKI_OPTIONAL, "from one window to the next; block_size where left out"),         \
        LKI_BOOL("random", "false", "windows begin anywhere, elsewhere in every epoch"),                     \
        LKI_INT64("count", LKI_OPTIONAL, "random windows of an epoch; as many as fit side by side"),         \
        LKI_FLOAT("begin", "0", "where the part that is used begins, 0 to 1"),                               \
        LKI_FLOAT("end", "1", "where it ends"),                                                              \
        LKI_INT64("vocab_size", LKI_OPTIONAL, "tokens of this number or above are errors")
#define TOKENIZER                                                                                            \
    LKI_CHOICE("tokenizer", "bytes", "bytes|chars|bpe", "what a token is"),                                  \
        LKI_STRING("vocab", LKI_OPTIONAL,                                                                    \
                   "JSON with the tokens' numbers; chars without it are those of the text"),                 \
        LKI_STRING("merges", LKI_OPTIONAL, "merges.txt, for bpe")

static const lk_parameter token_parameters[] = {
    LKI_STRING("path", LKI_REQUIRED, "a flat file of uint16 or uint32, or one with llm.c's header"),
    WINDOWS,
    LKI_INT("token_nbytes", LKI_OPTIONAL, "2 or 4; as the header says, else 2"),
    {0},
};
static const lk_parameter text_parameters[] = {
    LKI_STRING("path", LKI_REQUIRED, "a text file"), WINDOWS, TOKENIZER, {0}};
#define LINES                                                                                                \
    LKI_STRING("path", LKI_REQUIRED, "a text file"),                                                         \
        LKI_INT64("max_length", LKI_REQUIRED, "tokens of the longest line"), TOKENIZER,                      \
        LKI_BOOL("truncate", "false", "cut longer lines, which are errors without it"),                      \
        LKI_BOOL("next_token", "false", "targets: the token behind each"),                                   \
        LKI_INT64("pad_value", "0", "features behind the line's end"),                                       \
        LKI_INT64("ignore_value", LKI_OPTIONAL, "targets there; -100 where left out"),                       \
        LKI_STRING("end_token", LKI_OPTIONAL, "a token that is put behind each line, such as <|endoftext|>")
static const lk_parameter line_parameters[] = {LINES, {0}};
static const lk_parameter line_stream_parameters[] = {
    LINES,
    LKI_INT64("shuffle_buffer", LKI_OPTIONAL, "samples of which a random one is next; the file's order"),
    {0},
};

const lk_component lki_text_components[] = {
    {"TokenDataset", NULL, LK_KIND_DATASET,
     "Windows of a token file: features and, one token on, targets, both (block_size).",
     .parameters = token_parameters, .build = build_tokens},
    {"TextDataset", NULL, LK_KIND_DATASET, "The same of a text, which is tokenized first.",
     .parameters = text_parameters, .build = build_text},
    {"TextLines", NULL, LK_KIND_DATASET,
     "Each line of a text is a sample: features (max_length) and features_lengths.",
     .parameters = line_parameters, .build = build_lines},
    {"TextStream", NULL, LK_KIND_DATASET,
     "The same lines as a stream, an IterableDataset: read as they are used, shared out among ranks.",
     .parameters = line_stream_parameters, .build = build_line_stream},
    {0},
};
