/* The known name that is nearest to one that is not known, for "did you mean ...?". */
#ifndef LKI_BASE_SUGGEST_H
#define LKI_BASE_SUGGEST_H

#include <stddef.h>

/* Zero is "nothing offered yet". Offer every known name; the best is kept where it is near enough to be a
 * slip of the hand: at most a third of the letters differ, case counting little. The names are borrowed. */
typedef struct lki_suggestion {
    const char *wanted, *best;
    int best_distance;
} lki_suggestion;

void lki_suggest_offer(lki_suggestion *suggestion, const char *name);

/* `; did you mean "x"?` into the buffer, or "" where nothing is near. Returns the buffer. */
const char *lki_suggest_text(const lki_suggestion *suggestion, char *buffer, size_t capacity);

/* The distance itself: insertions, deletions, replacements and swaps of neighbours cost 2, a change of
 * case 1. */
int lki_edit_distance(const char *a, const char *b);

#endif
