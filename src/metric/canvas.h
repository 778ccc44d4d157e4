/* A picture to draw into: rectangles and text in a small font of our own. One thread. */
#ifndef LKI_METRIC_CANVAS_H
#define LKI_METRIC_CANVAS_H

#include <lockstep/tensor.h>

typedef struct lki_colour {
    uint8_t red, green, blue;
} lki_colour;

/* What is drawn beyond the edges is cut off. */
typedef struct lki_canvas {
    lk_tensor *pixels; /* u8 (height, width, 3) */
    int width, height;
} lki_canvas;

/* A letter takes so many pixels at scale 1, its gap to the next included. */
enum { LKI_GLYPH_WIDTH = 6, LKI_GLYPH_HEIGHT = 10 };

/* The pixels are the caller's to free. */
lk_status lki_canvas_init(lki_canvas *canvas, int width, int height, lki_colour background);
void lki_canvas_fill(lki_canvas *canvas, int x, int y, int width, int height, lki_colour colour);

/* Text from its upper left corner. Upwards, it reads from the bottom to the top, and (x, y) is its lower left
 * corner. Letters that the font does not have show as a box. */
void lki_canvas_text(lki_canvas *canvas, int x, int y, int scale, const char *text, lki_colour colour);
void lki_canvas_text_upwards(lki_canvas *canvas, int x, int y, int scale, const char *text,
                             lki_colour colour);
/* The width in pixels, without the last letter's gap. */
int lki_text_width(const char *text, int scale);
/* How many letters a text has: characters, not bytes. */
int lki_text_length(const char *text);
/* The text, or its first letters and two dots where it has more than `limit`. Returns out. */
const char *lki_text_shorten(char *out, size_t capacity, const char *text, int limit);

#endif
