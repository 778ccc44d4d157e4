/* Tokenizers, files of tokens, windows and lines. The byte pairs' golden values are from
 * tests/oracle/gpt2_bpe.py. */
#include "lktest.h"

#include <lockstep/data.h>
#include <lockstep/text.h>

#include "base/atomic_file.h"
#include "base/memory.h"

#define GOLDEN LK_SOURCE_DIR "/tests/golden/text/"

static const char *folder(void)
{
    static char path[1024];
    if (!*path) snprintf(path, sizeof path, "%s", lkt_scratch_folder("text"));
    return path;
}

static const char *file(const char *name, const void *data, size_t nbytes)
{
    static char path[4][1200];
    static int next;
    char *out = path[next++ % 4];
    snprintf(out, 1200, "%s/%s", folder(), name);
    lkt_ok(lki_write_file_atomic(out, data, nbytes));
    return out;
}

static const char *text_file(const char *name, const char *text)
{
    return file(name, text, strlen(text));
}

static void assert_tokens(const lk_tokenizer *tokenizer, const char *text, size_t nbytes,
                          const int64_t *expected, int64_t count)
{
    size_t back_nbytes = 0;
    lk_tensor *tokens = lk_tokenizer_encode(tokenizer, text, nbytes);
    lkt_not_null(tokens);
    assert_int_equal(lk_tensor_count(tokens), count);
    if (count) assert_memory_equal(tokens->data, expected, (size_t)count * sizeof *expected);
    char *back = lk_tokenizer_decode(tokenizer, tokens->data, count, &back_nbytes);
    lkt_not_null(back);
    assert_int_equal(back_nbytes, nbytes);
    assert_memory_equal(back, text, nbytes);
    lk_text_free(back);
    lk_tensor_free(tokens);
}

/* ---- Byte pairs ---- */

static size_t from_hex(const char *hex, size_t digits, char *out)
{
    for (size_t i = 0; i < digits / 2; i++) {
        unsigned byte;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        out[i] = (char)byte;
    }
    return digits / 2;
}

static int check_cases(const lk_tokenizer *bpe, char *cases)
{
    static char text[1 << 16];
    static int64_t expected[1 << 14];
    int count = 0;
    for (char *line = cases, *end; (end = strchr(line, '\n')); line = end + 1, count++) {
        char *colon = strchr(line, ':'), *at = colon + 1;
        size_t nbytes = from_hex(line, (size_t)(colon - line), text);
        int64_t tokens = 0;
        while (at < end) expected[tokens++] = strtoll(at, &at, 10);
        assert_tokens(bpe, text, nbytes, expected, tokens);
    }
    return count;
}

static void byte_pairs_are_gpt2s(void **state)
{
    (void)state;
    char *cases;
    size_t nbytes;
    lk_tokenizer *bpe = lk_bpe_tokenizer(GOLDEN "vocab.json", GOLDEN "merges.txt");
    lkt_not_null(bpe);
    assert_int_equal(lk_tokenizer_find(bpe, "<|endoftext|>"), lk_tokenizer_vocab_size(bpe) - 1);
    lkt_ok(lki_read_file(&cases, &nbytes, GOLDEN "cases.txt"));
    assert_true(check_cases(bpe, cases) > 150);
    /* The vocabulary as it is written here is read as the same. */
    char path[1200];
    snprintf(path, sizeof path, "%s/saved.json", folder());
    lkt_ok(lk_tokenizer_save(bpe, path));
    lk_tokenizer *again = lk_bpe_tokenizer(path, GOLDEN "merges.txt");
    lkt_not_null(again);
    check_cases(again, cases);
    lki_free(cases);
    lk_tokenizer_free(again);
    lk_tokenizer_free(bpe);
}

static void bytes_that_are_no_utf8_are_kept(void **state)
{
    (void)state;
    static const char odd[] = "a\xff\xc3 \xe2\x82 b\xf0\x9f\x98 \xed\xa0\x80";
    lk_tokenizer *bpe = lk_bpe_tokenizer(GOLDEN "vocab.json", GOLDEN "merges.txt");
    lk_tensor *tokens = lk_tokenizer_encode(bpe, odd, sizeof odd - 1);
    lkt_not_null(tokens);
    size_t nbytes;
    char *back = lk_tokenizer_decode(bpe, tokens->data, lk_tensor_count(tokens), &nbytes);
    assert_int_equal(nbytes, sizeof odd - 1);
    assert_memory_equal(back, odd, nbytes);
    int64_t none = lk_tokenizer_vocab_size(bpe);
    assert_null(lk_tokenizer_decode(bpe, &none, 1, NULL));
    lkt_contains(lk_error(), "no such number");
    lk_text_free(back);
    lk_tensor_free(tokens);
    lk_tokenizer_free(bpe);
}

static void refuse_bpe(const char *vocab, const char *merges, const char *fragment)
{
    assert_null(lk_bpe_tokenizer(text_file("v.json", vocab), text_file("m.txt", merges)));
    lkt_contains(lk_error(), fragment);
}

static void wrong_files_are_refused(void **state)
{
    (void)state;
    assert_null(lk_bpe_tokenizer("nowhere/vocab.json", GOLDEN "merges.txt"));
    lkt_contains(lk_error(), "nowhere/vocab.json");
    refuse_bpe("", "", "v.json:1: expected \"{\", found the end of the file");
    refuse_bpe("{}", "", "expected at least one token");
    refuse_bpe("{\"a\": 1", "", "expected \"}\"");
    refuse_bpe("{\"a\": -1}", "", "expected the number of a token, found \"-\"");
    refuse_bpe("{\"a\": 99999999999}", "", "expected a smaller number");
    refuse_bpe("{\"a\": 0} x", "", "expected the end of the file");
    refuse_bpe("{\"a\": 0, \"b\": 0}", "", "two tokens have the number 0");
    refuse_bpe("{\"a\": 0, \"a\": 1}", "", "a token has the numbers 0 and 1");
    refuse_bpe("{\"\\ud83d\": 0}", "", "second half");
    refuse_bpe("{\"\\u0\": 0}", "", "four hexadecimal digits");
    refuse_bpe("{\"a b\": 0}", "", "stands for no byte");
    refuse_bpe("{\"a\": 0}", "#version: 0.2\na\n", "m.txt:2: expected two tokens");
    refuse_bpe("{\"a\": 0}", "a a\na a\n", "m.txt:2: this merge stands in the file twice");
    lk_tokenizer *few =
        lk_bpe_tokenizer(text_file("v.json", "{\"a\": 0, \"ba\": 3}"), text_file("m.txt", "b a\n"));
    assert_tokens(few, "aba", 3, (int64_t[]){0, 3}, 2);
    assert_null(lk_tokenizer_encode(few, "b", 1));
    lkt_contains(lk_error(), "no number for \"b\"");
    lk_tokenizer_free(few);
}

/* ---- Bytes and characters ---- */

static void bytes_and_characters(void **state)
{
    (void)state;
    lk_tokenizer *bytes = lk_byte_tokenizer();
    assert_int_equal(lk_tokenizer_vocab_size(bytes), 256);
    assert_tokens(bytes, "a\xff", 3, (int64_t[]){97, 255, 0}, 3);
    lk_tokenizer_free(bytes);
    lk_tokenizer *chars = lk_char_tokenizer_of("bäa\n", 5);
    assert_int_equal(lk_tokenizer_vocab_size(chars), 4);
    assert_tokens(chars, "ab\nä", 5, (int64_t[]){1, 2, 0, 3}, 4);
    char path[1200];
    snprintf(path, sizeof path, "%s/chars.json", folder());
    lkt_ok(lk_tokenizer_save(chars, path));
    lk_tokenizer *again = lk_char_tokenizer(path);
    lkt_not_null(again);
    assert_tokens(again, "ab\nä", 5, (int64_t[]){1, 2, 0, 3}, 4);
    assert_null(lk_tokenizer_encode(again, "a\nc", 3));
    lkt_contains(lk_error(), "line 2: the vocabulary has no character \"c\"");
    assert_null(lk_char_tokenizer_of("a\xff", 2));
    lkt_contains(lk_error(), "0xff is no UTF-8");
    assert_null(lk_char_tokenizer_of("", 0));
    assert_null(lk_char_tokenizer(GOLDEN "vocab.json"));
    lkt_contains(lk_error(), "is not one character");
    lk_tokenizer_free(again);
    lk_tokenizer_free(chars);
}

/* ---- Windows ---- */

typedef struct pair {
    int64_t features[8], targets[8];
} pair;

static pair sample(lk_dataset *dataset, int64_t index, int64_t epoch)
{
    pair out;
    lk_pass pass = {.seed = 3, .epoch = epoch};
    lkt_ok(lk_dataset_gather(dataset, &pass, &index, 1, (void *[]){out.features, out.targets}));
    return out;
}

static void assert_window(lk_dataset *dataset, int64_t index, int64_t first)
{
    pair out = sample(dataset, index, 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(out.features[i], first + i);
        assert_int_equal(out.targets[i], first + i + 1);
    }
}

static void windows_of_flat_files(void **state)
{
    (void)state;
    uint16_t narrow[103];
    uint32_t wide[103];
    for (uint32_t i = 0; i < 103; i++) narrow[i] = (uint16_t)(i + 1000), wide[i] = i + 100000;
    lk_dataset *dataset = lk_token_dataset(file("n.bin", narrow, sizeof narrow), 4);
    assert_int_equal(lk_dataset_length(dataset), 25); /* 25 * 4 tokens and the one behind them */
    assert_window(dataset, 0, 1000);
    assert_window(dataset, 24, 1096);
    lk_dataset_free(dataset);
    dataset =
        lk_token_dataset(file("w.bin", wide, sizeof wide), 4, .token_nbytes = 4, .stride = 1, .begin = .5);
    assert_int_equal(lk_dataset_length(dataset), 48); /* tokens 51 to 102 */
    assert_window(dataset, 0, 100051);
    assert_window(dataset, 47, 100098);
    lk_dataset_free(dataset);
    /* The last token of the file is the last target. */
    dataset = lk_token_dataset(file("n.bin", narrow, 9 * sizeof *narrow), 4);
    assert_int_equal(lk_dataset_length(dataset), 2);
    assert_window(dataset, 1, 1004);
    lk_dataset_free(dataset);
}

static void windows_of_llm_c_files(void **state)
{
    (void)state;
    static int32_t words[256 + 64];
    uint16_t *narrow = (uint16_t *)(words + 256);
    words[0] = 20240520, words[1] = 1, words[2] = 100;
    for (int i = 0; i < 100; i++) narrow[i] = (uint16_t)(i + 7);
    lk_dataset *dataset = lk_token_dataset(file("l.bin", words, 1024 + 200), 4);
    assert_int_equal(lk_dataset_length(dataset), 24);
    assert_window(dataset, 0, 7);
    lk_dataset_free(dataset);
    words[0] = 20240801, words[1] = 7, words[2] = 50;
    for (int i = 0; i < 50; i++) words[256 + i] = i + 70000;
    dataset = lk_token_dataset(file("l.bin", words, 1024 + 200), 4);
    assert_window(dataset, 1, 70004);
    lk_dataset_free(dataset);
    assert_null(lk_token_dataset(file("l.bin", words, 1024 + 196), 4));
    lkt_contains(lk_error(), "the header says 50 tokens, but the file has 49");
    words[1] = 2;
    assert_null(lk_token_dataset(file("l.bin", words, 1024 + 200), 4));
    lkt_contains(lk_error(), "a header of version 2");
}

static void random_windows_change_with_the_epoch(void **state)
{
    (void)state;
    uint16_t tokens[1000];
    int64_t seen_first = 0, seen_last = 0, changed = 0;
    for (int i = 0; i < 1000; i++) tokens[i] = (uint16_t)i;
    lk_dataset *dataset =
        lk_token_dataset(file("r.bin", tokens, sizeof tokens), 4, .random = true, .count = 20000);
    assert_int_equal(lk_dataset_length(dataset), 20000);
    for (int64_t i = 0; i < 20000; i++) {
        pair out = sample(dataset, i, 1), again = sample(dataset, i, 1), later = sample(dataset, i, 2);
        for (int t = 0; t < 4; t++) {
            assert_int_equal(out.features[t], out.features[0] + t);
            assert_int_equal(out.targets[t], out.features[0] + t + 1);
        }
        assert_int_equal(out.features[0], again.features[0]);
        changed += out.features[0] != later.features[0];
        seen_first += out.features[0] == 0;
        seen_last += out.features[0] == 995; /* its last target is token 999 */
    }
    assert_true(changed > 19000 && seen_first > 0 && seen_last > 0);
    lk_dataset_free(dataset);
}

static void refuse(lk_dataset *dataset, const char *fragment)
{
    if (dataset) fail_msg("\"%s\" was expected", fragment);
    lkt_contains(lk_error(), fragment);
}

static void wrong_windows_are_refused(void **state)
{
    (void)state;
    uint16_t tokens[] = {1, 2, 3, 4, 5};
    const char *path = file("s.bin", tokens, sizeof tokens);
    refuse(lk_token_dataset("nowhere.bin", 4), "nowhere.bin");
    refuse(lk_token_dataset(path, 0), "block_size");
    refuse(lk_token_dataset(path, 5), "5 tokens make no window of block_size 5");
    refuse(lk_token_dataset(path, 2, .stride = -1), "stride");
    refuse(lk_token_dataset(path, 2, .stride = 1, .random = true), "stride: random windows begin anywhere");
    refuse(lk_token_dataset(path, 2, .count = 3), "count: only random windows");
    refuse(lk_token_dataset(path, 2, .token_nbytes = 3), "token_nbytes");
    refuse(lk_token_dataset(path, 2, .token_nbytes = 4), "10 bytes are no whole number");
    refuse(lk_token_dataset(path, 2, .begin = .7, .end = .5), "begin and end");
    lk_dataset *dataset = lk_token_dataset(path, 2, .vocab_size = 5);
    int64_t last = 1, features[2], targets[2];
    lkt_fails(lk_dataset_gather(dataset, NULL, &last, 1, (void *[]){features, targets}), LK_ERR_RANGE,
              "token 4 is 5, but vocab_size is 5");
    lk_dataset_free(dataset);
}

static void text_becomes_tokens(void **state)
{
    (void)state;
    const char *path = text_file("t.txt", "abcdefgh");
    char out[1200];
    lk_dataset *dataset = lk_text_dataset(path, lk_char_tokenizer_of_file(path), 4, .stride = 1);
    assert_int_equal(lk_dataset_length(dataset), 4);
    assert_window(dataset, 3, 3);
    lk_dataset_free(dataset);
    snprintf(out, sizeof out, "%s/t.bin", folder());
    lk_tokenizer *chars = lk_char_tokenizer_of_file(path);
    lkt_ok(lk_tokenize_file(chars, out, path));
    lkt_ok(lk_tokenize_file(chars, out, path, .append = true, .end_token = "h"));
    lkt_fails(lk_tokenize_file(chars, out, path, .end_token = "x"), LK_ERR_NOT_FOUND, "no token \"x\"");
    dataset = lk_token_dataset(out, 4);
    assert_int_equal(lk_dataset_length(dataset), 4); /* 17 tokens */
    assert_window(dataset, 2, 0);
    lk_dataset_free(dataset);
    lk_tokenizer_free(chars);
}

/* ---- Lines ---- */

static void lines_are_samples(void **state)
{
    (void)state;
    int64_t features[2][4], lengths[2], targets[2][4], both[] = {0, 1};
    void *slots[] = {features, lengths, targets};
    const char *path = text_file("l.txt", "ab\r\n\n\nbca");
    lk_dataset *dataset = lk_text_lines(path, lk_byte_tokenizer(), 4, .next_token = true, .pad_value = -1);
    assert_int_equal(lk_dataset_length(dataset), 2);
    lkt_ok(lk_dataset_gather(dataset, NULL, both, 2, slots));
    assert_memory_equal(features, ((int64_t[2][4]){{'a', -1, -1, -1}, {'b', 'c', -1, -1}}), sizeof features);
    assert_memory_equal(targets, ((int64_t[2][4]){{'b', -100, -100, -100}, {'c', 'a', -100, -100}}),
                        sizeof targets);
    assert_memory_equal(lengths, ((int64_t[]){1, 2}), sizeof lengths);
    lk_dataset_free(dataset);
    dataset = lk_text_lines(path, lk_byte_tokenizer(), 2, .end_token = "c");
    lkt_fails(lk_dataset_gather(dataset, NULL, both, 2, slots), LK_ERR_RANGE,
              "l.txt:1: 3 tokens, but max_length is 2");
    lk_dataset_free(dataset);
    dataset = lk_text_lines(path, lk_byte_tokenizer(), 2, .end_token = "c", .truncate = true);
    lkt_ok(lk_dataset_gather(dataset, NULL, both, 2, slots));
    assert_int_equal(lengths[1], 2);
    lk_dataset_free(dataset);
    refuse(lk_text_lines(path, lk_byte_tokenizer(), 0), "max_length");
    refuse(lk_text_lines(path, lk_byte_tokenizer(), 4, .end_token = "zz"), "no token \"zz\"");
    refuse(lk_text_lines(path, lk_byte_tokenizer(), 4, .ignore_value = 3), "ignore_value");
    refuse(lk_text_lines("nowhere.txt", lk_byte_tokenizer(), 4), "nowhere.txt");
}

static void missing_parts_are_refused(void **state)
{
    (void)state;
    lk_tokenizer *bytes = lk_byte_tokenizer();
    assert_null(lk_bpe_tokenizer(NULL, NULL));
    assert_null(lk_bpe_tokenizer(GOLDEN "vocab.json", NULL));
    assert_null(lk_char_tokenizer(NULL));
    assert_null(lk_char_tokenizer_of_file(NULL));
    assert_null(lk_token_dataset(NULL, 4));
    assert_null(lk_text_dataset(NULL, lk_byte_tokenizer(), 4));
    assert_null(lk_text_dataset("x", lk_char_tokenizer(NULL), 4));
    lkt_contains(lk_error(), "vocabulary: the path is missing"); /* the first failure is kept */
    assert_null(lk_text_lines(NULL, lk_byte_tokenizer(), 4));
    assert_null(lk_text_stream(NULL, lk_byte_tokenizer(), 4));
    lkt_fails(lk_tokenize_file(bytes, NULL, "x"), LK_ERR_INVALID, "missing");
    lkt_fails(lk_tokenize_file(NULL, "y", "x"), LK_ERR_INVALID, "missing");
    lkt_fails(lk_tokenizer_save(bytes, NULL), LK_ERR_INVALID, "missing");
    assert_int_equal(lk_tokenizer_find(NULL, "x"), -1);
    assert_null(lk_tokenizer_encode(NULL, "x", 1));
    lk_tokenizer_free(bytes);
    lk_tokenizer_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_pairs_are_gpt2s),
        cmocka_unit_test(bytes_that_are_no_utf8_are_kept),
        cmocka_unit_test(wrong_files_are_refused),
        cmocka_unit_test(bytes_and_characters),
        cmocka_unit_test(windows_of_flat_files),
        cmocka_unit_test(windows_of_llm_c_files),
        cmocka_unit_test(random_windows_change_with_the_epoch),
        cmocka_unit_test(wrong_windows_are_refused),
        cmocka_unit_test(text_becomes_tokens),
        cmocka_unit_test(lines_are_samples),
        cmocka_unit_test(missing_parts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
