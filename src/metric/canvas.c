#include "metric/canvas.h"

#include "base/status.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { GLYPH_ROWS = 7, GLYPH_COLUMNS = 5, FIRST_LETTER = 32, LAST_LETTER = 126 };

/* The letters from space to tilde: seven rows each, five bits a row, the highest bit on the left. Letters
 * that reach below the line are drawn two rows lower. */
static const uint8_t font[LAST_LETTER - FIRST_LETTER + 1][GLYPH_ROWS] = {
    {0, 0, 0, 0, 0, 0, 0},        {4, 4, 4, 4, 0, 0, 4},        {10, 10, 10, 0, 0, 0, 0},
    {10, 10, 31, 10, 31, 10, 10}, {4, 15, 20, 14, 5, 30, 4},    {24, 25, 2, 4, 8, 19, 3},
    {12, 18, 20, 8, 21, 18, 13},  {4, 4, 8, 0, 0, 0, 0},        {2, 4, 8, 8, 8, 4, 2},
    {8, 4, 2, 2, 2, 4, 8},        {0, 4, 21, 14, 21, 4, 0},     {0, 4, 4, 31, 4, 4, 0},
    {0, 0, 0, 0, 12, 4, 8},       {0, 0, 0, 31, 0, 0, 0},       {0, 0, 0, 0, 0, 12, 12},
    {0, 1, 2, 4, 8, 16, 0},       {14, 17, 19, 21, 25, 17, 14}, {4, 12, 4, 4, 4, 4, 14},
    {14, 17, 1, 2, 4, 8, 31},     {31, 2, 4, 2, 1, 17, 14},     {2, 6, 10, 18, 31, 2, 2},
    {31, 16, 30, 1, 1, 17, 14},   {6, 8, 16, 30, 17, 17, 14},   {31, 1, 2, 4, 8, 8, 8},
    {14, 17, 17, 14, 17, 17, 14}, {14, 17, 17, 15, 1, 2, 12},   {0, 12, 12, 0, 12, 12, 0},
    {0, 12, 12, 0, 12, 4, 8},     {2, 4, 8, 16, 8, 4, 2},       {0, 0, 31, 0, 31, 0, 0},
    {8, 4, 2, 1, 2, 4, 8},        {14, 17, 1, 2, 4, 0, 4},      {14, 17, 1, 13, 21, 21, 14},
    {14, 17, 17, 31, 17, 17, 17}, {30, 17, 17, 30, 17, 17, 30}, {14, 17, 16, 16, 16, 17, 14},
    {28, 18, 17, 17, 17, 18, 28}, {31, 16, 16, 30, 16, 16, 31}, {31, 16, 16, 30, 16, 16, 16},
    {14, 17, 16, 23, 17, 17, 15}, {17, 17, 17, 31, 17, 17, 17}, {14, 4, 4, 4, 4, 4, 14},
    {7, 2, 2, 2, 2, 18, 12},      {17, 18, 20, 24, 20, 18, 17}, {16, 16, 16, 16, 16, 16, 31},
    {17, 27, 21, 21, 17, 17, 17}, {17, 17, 25, 21, 19, 17, 17}, {14, 17, 17, 17, 17, 17, 14},
    {30, 17, 17, 30, 16, 16, 16}, {14, 17, 17, 17, 21, 18, 13}, {30, 17, 17, 30, 20, 18, 17},
    {15, 16, 16, 14, 1, 1, 30},   {31, 4, 4, 4, 4, 4, 4},       {17, 17, 17, 17, 17, 17, 14},
    {17, 17, 17, 17, 17, 10, 4},  {17, 17, 17, 21, 21, 21, 10}, {17, 17, 10, 4, 10, 17, 17},
    {17, 17, 17, 10, 4, 4, 4},    {31, 1, 2, 4, 8, 16, 31},     {14, 8, 8, 8, 8, 8, 14},
    {0, 16, 8, 4, 2, 1, 0},       {14, 2, 2, 2, 2, 2, 14},      {4, 10, 17, 0, 0, 0, 0},
    {0, 0, 0, 0, 0, 0, 31},       {8, 4, 2, 0, 0, 0, 0},        {0, 0, 14, 1, 15, 17, 15},
    {16, 16, 22, 25, 17, 17, 30}, {0, 0, 14, 16, 16, 17, 14},   {1, 1, 13, 19, 17, 17, 15},
    {0, 0, 14, 17, 31, 16, 14},   {6, 9, 8, 28, 8, 8, 8},       {15, 17, 17, 17, 15, 1, 14},
    {16, 16, 22, 25, 17, 17, 17}, {4, 0, 12, 4, 4, 4, 14},      {2, 0, 6, 2, 2, 18, 12},
    {16, 16, 18, 20, 24, 20, 18}, {12, 4, 4, 4, 4, 4, 14},      {0, 0, 26, 21, 21, 17, 17},
    {0, 0, 22, 25, 17, 17, 17},   {0, 0, 14, 17, 17, 17, 14},   {30, 17, 17, 17, 30, 16, 16},
    {15, 17, 17, 17, 15, 1, 1},   {0, 0, 22, 25, 16, 16, 16},   {0, 0, 14, 16, 14, 1, 30},
    {8, 8, 28, 8, 8, 9, 6},       {0, 0, 17, 17, 17, 19, 13},   {0, 0, 17, 17, 17, 10, 4},
    {0, 0, 17, 17, 21, 21, 10},   {0, 0, 17, 10, 4, 10, 17},    {17, 17, 17, 17, 15, 1, 14},
    {0, 0, 31, 2, 4, 8, 31},      {2, 4, 4, 8, 4, 4, 2},        {4, 4, 4, 4, 4, 4, 4},
    {8, 4, 4, 2, 4, 4, 8},        {0, 0, 8, 21, 2, 0, 0},
};
static const uint8_t unknown[GLYPH_ROWS] = {31, 17, 17, 17, 17, 17, 31};

lk_status lki_canvas_init(lki_canvas *canvas, int width, int height, lki_colour background)
{
    *canvas = (lki_canvas){lk_tensor_create(LK_U8, LK_SHAPE(height, width, 3)), width, height};
    if (!canvas->pixels) return lki_last_status();
    lki_canvas_fill(canvas, 0, 0, width, height, background);
    return LK_OK;
}

void lki_canvas_fill(lki_canvas *canvas, int x, int y, int width, int height, lki_colour colour)
{
    uint8_t *pixels = canvas->pixels->data;
    int left = x < 0 ? 0 : x, top = y < 0 ? 0 : y;
    int right = x + width > canvas->width ? canvas->width : x + width;
    int bottom = y + height > canvas->height ? canvas->height : y + height;
    for (int row = top; row < bottom; row++)
        for (int column = left; column < right; column++) {
            uint8_t *pixel = pixels + ((int64_t)row * canvas->width + column) * 3;
            pixel[0] = colour.red;
            pixel[1] = colour.green;
            pixel[2] = colour.blue;
        }
}

/* The next letter of a UTF-8 text; moves on by the whole character. */
static const uint8_t *next_glyph(const char **text)
{
    unsigned char first = (unsigned char)*(*text)++;
    if (first >= FIRST_LETTER && first <= LAST_LETTER) return font[first - FIRST_LETTER];
    while ((**text & 0xc0) == 0x80) (*text)++;
    return unknown;
}

int lki_text_length(const char *text)
{
    int length = 0;
    for (; *text; length++) next_glyph(&text);
    return length;
}

const char *lki_text_shorten(char *out, size_t capacity, const char *text, int limit)
{
    const char *end = text;
    if (lki_text_length(text) <= limit) {
        snprintf(out, capacity, "%s", text);
        return out;
    }
    for (int letters = 0; letters < limit - 2; letters++) next_glyph(&end);
    snprintf(out, capacity, "%.*s..", (int)(end - text), text);
    return out;
}

int lki_text_width(const char *text, int scale)
{
    int length = lki_text_length(text);
    return length ? (length * LKI_GLYPH_WIDTH - 1) * scale : 0;
}

static void draw_text(lki_canvas *canvas, int x, int y, int scale, const char *text, lki_colour colour,
                      bool upwards)
{
    for (int letter = 0; *text; letter++) {
        int drop = strchr("gpqy", *text) ? 2 : 0;
        const uint8_t *glyph = next_glyph(&text);
        for (int row = 0; row < GLYPH_ROWS; row++)
            for (int column = 0; column < GLYPH_COLUMNS; column++) {
                if (!(glyph[row] & (1 << (GLYPH_COLUMNS - 1 - column)))) continue;
                int along = (letter * LKI_GLYPH_WIDTH + column) * scale, across = (row + drop) * scale;
                if (upwards)
                    lki_canvas_fill(canvas, x + across, y - along - scale, scale, scale, colour);
                else
                    lki_canvas_fill(canvas, x + along, y + across, scale, scale, colour);
            }
    }
}

void lki_canvas_text(lki_canvas *canvas, int x, int y, int scale, const char *text, lki_colour colour)
{
    draw_text(canvas, x, y, scale, text, colour, false);
}

void lki_canvas_text_upwards(lki_canvas *canvas, int x, int y, int scale, const char *text, lki_colour colour)
{
    draw_text(canvas, x, y, scale, text, colour, true);
}
