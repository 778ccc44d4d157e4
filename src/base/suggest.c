#include "base/suggest.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { MAX_LENGTH = 127, UNRELATED = 1 << 20, STEP = 2 };

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static int replace_cost(char a, char b)
{
    if (a == b) return 0;
    return tolower((unsigned char)a) == tolower((unsigned char)b) ? 1 : STEP;
}

int lki_edit_distance(const char *a, const char *b)
{
    int rows[3][MAX_LENGTH + 1];
    size_t a_length = strlen(a), b_length = strlen(b);
    if (a_length > MAX_LENGTH || b_length > MAX_LENGTH) return UNRELATED;
    int *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= b_length; j++) last[j] = (int)j * STEP;
    for (size_t i = 1; i <= a_length; i++) {
        now[0] = (int)i * STEP;
        for (size_t j = 1; j <= b_length; j++) {
            int cost = last[j - 1] + replace_cost(a[i - 1], b[j - 1]);
            cost = smaller(cost, smaller(last[j], now[j - 1]) + STEP);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                cost = smaller(cost, before[j - 2] + STEP);
            now[j] = cost;
        }
        int *oldest = before;
        before = last;
        last = now;
        now = oldest;
    }
    return last[b_length];
}

void lki_suggest_offer(lki_suggestion *suggestion, const char *name)
{
    int distance = lki_edit_distance(suggestion->wanted, name);
    int limit = STEP * (int)(strlen(suggestion->wanted) + 2) / 3;
    if (distance > limit || (suggestion->best && distance >= suggestion->best_distance)) return;
    suggestion->best = name;
    suggestion->best_distance = distance;
}

const char *lki_suggest_text(const lki_suggestion *suggestion, char *buffer, size_t capacity)
{
    if (suggestion->best)
        snprintf(buffer, capacity, "; did you mean \"%s\"?", suggestion->best);
    else
        snprintf(buffer, capacity, "%s", "");
    return buffer;
}
