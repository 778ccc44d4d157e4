#include "config/tree/tree.h"

#include "base/number_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Beyond this a double no longer tells neighbouring integers apart. */
#define MAX_EXACT 9007199254740992.0

static const char *const null_words[] = {"", "~", "null", "Null", "NULL", "None", NULL};
static const char *const true_words[] = {"y", "yes", "true", "on", "1", NULL};
static const char *const false_words[] = {"n", "no", "false", "off", "0", NULL};

bool lki_node_is_null(const lki_node *node)
{
    if (!node) return true;
    if (node->kind != LKI_NODE_SCALAR || node->quoted) return false;
    for (int i = 0; null_words[i]; i++)
        if (!strcmp(node->text, null_words[i])) return true;
    return false;
}

static bool is_word_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (!strcasecmp(text, *words)) return true;
    return false;
}

bool lki_parse_bool(const char *text, bool *out)
{
    *out = is_word_of(text, true_words);
    return *out || is_word_of(text, false_words);
}

/* The text without YAML's digit separators, and its sign apart; false where nothing is left or it is too
 * long. */
static bool strip_number(const char *text, char *digits, size_t capacity, bool *negative)
{
    size_t length = 0;
    *negative = *text == '-';
    if (*text == '-' || *text == '+') text++;
    for (; *text; text++) {
        if (*text == '_' && length > 0) continue;
        if (length + 1 >= capacity) return false;
        digits[length++] = *text;
    }
    digits[length] = 0;
    return length > 0;
}

/* YAML 1.1: 0b101, 0x1f, 0o17, 017 and plain decimals. */
static int base_of(const char **digits)
{
    const char *text = *digits;
    if (text[0] != '0' || !text[1]) return 10;
    if (text[1] == 'x' || text[1] == 'X') return *digits += 2, 16;
    if (text[1] == 'b' || text[1] == 'B') return *digits += 2, 2;
    if (text[1] == 'o' || text[1] == 'O') return *digits += 2, 8;
    return *digits += 1, 8;
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return 99;
}

static bool parse_digits(const char *digits, int base, bool negative, int64_t *out)
{
    uint64_t value = 0, limit = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    if (!*digits) return false;
    for (; *digits; digits++) {
        int digit = digit_value(*digits);
        if (digit >= base) return false;
        if (value > (limit - (uint64_t)digit) / (uint64_t)base) return false;
        value = value * (uint64_t)base + (uint64_t)digit;
    }
    *out = negative ? (int64_t)(0 - value) : (int64_t)value;
    return true;
}

bool lki_parse_int(const char *text, int64_t *out)
{
    char buffer[80];
    const char *digits = buffer;
    bool negative;
    double value;
    if (!strip_number(text, buffer, sizeof buffer, &negative)) return false;
    int base = base_of(&digits);
    if (parse_digits(digits, base, negative, out)) return true;
    /* 1e4 is what people write for ten thousand. */
    if (!strpbrk(buffer, "eE.") || !lki_parse_float(text, &value)) return false;
    if (!(fabs(value) <= MAX_EXACT) || value != floor(value)) return false;
    *out = (int64_t)value;
    return true;
}

bool lki_parse_float(const char *text, double *out)
{
    char digits[80], *end;
    bool negative;
    if (!strip_number(text, digits, sizeof digits, &negative)) return false;
    const char *word = digits[0] == '.' ? digits + 1 : digits;
    if (!strcasecmp(word, "inf") || !strcasecmp(word, "infinity"))
        *out = HUGE_VAL;
    else if (!strcasecmp(word, "nan"))
        *out = NAN;
    else {
        if (strspn(digits, "0123456789.eE+-") != strlen(digits) || strchr("eE+-", digits[0])) return false;
        *out = lki_strtod(digits, &end);
        if (*end) return false;
    }
    if (negative) *out = -*out;
    return true;
}

const char *lki_node_describe(const lki_node *node, char *buffer, size_t capacity)
{
    if (lki_node_is_null(node)) return "nothing";
    if (node->kind == LKI_NODE_LIST) return "a list";
    if (node->kind == LKI_NODE_MAP) return "a map";
    bool is_long = strlen(node->text) > 60;
    snprintf(buffer, capacity, "%s\"%.60s%s\"", node->quoted ? "the string " : "", node->text,
             is_long ? "..." : "");
    return buffer;
}

static lk_status fail_expected(const lki_node *node, const char *key, const char *expected)
{
    char found[LKI_DESCRIBE_CAPACITY];
    return lki_fail_at(node->place, "%s: expected %s, found %s", key, expected,
                       lki_node_describe(node, found, sizeof found));
}

static bool is_plain(const lki_node *node)
{
    return node->kind == LKI_NODE_SCALAR && !node->quoted;
}

lk_status lki_node_int(const lki_node *node, const char *key, int64_t *out)
{
    if (is_plain(node) && lki_parse_int(node->text, out)) return LK_OK;
    return fail_expected(node, key, "an integer");
}

lk_status lki_node_float(const lki_node *node, const char *key, double *out)
{
    int64_t whole;
    if (is_plain(node)) {
        if (lki_parse_float(node->text, out)) return LK_OK;
        if (lki_parse_int(node->text, &whole)) return *out = (double)whole, LK_OK;
    }
    return fail_expected(node, key, "a number");
}

lk_status lki_node_bool(const lki_node *node, const char *key, bool *out)
{
    if (is_plain(node) && lki_parse_bool(node->text, out)) return LK_OK;
    return fail_expected(node, key, "a boolean (true or false)");
}

lk_status lki_node_string(const lki_node *node, const char *key, const char **out)
{
    if (node->kind != LKI_NODE_SCALAR || lki_node_is_null(node)) return fail_expected(node, key, "a string");
    *out = node->text;
    return LK_OK;
}
