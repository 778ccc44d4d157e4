#include "base/activity.h"

#include <stdio.h>
#include <string.h>

static _Thread_local lki_activity *published;
static _Thread_local lki_activity_words current = {"", NULL};

lki_activity_words lki_activity_current(void)
{
    return current;
}

void lki_activity_publish(lki_activity *place)
{
    published = place;
    lki_activity_set("", NULL);
}

void lki_activity_withdraw(const lki_activity *place)
{
    if (published == place) published = NULL;
}

static size_t append(char *text, size_t length, const char *more)
{
    size_t room = LKI_ACTIVITY_NBYTES - 1 - length, nbytes = strlen(more);
    if (nbytes > room) nbytes = room;
    memcpy(text + length, more, nbytes);
    return length + nbytes;
}

void lki_activity_set(const char *what, const char *name)
{
    union {
        char text[LKI_ACTIVITY_NBYTES];
        uint64_t words[LKI_ACTIVITY_WORDS];
    } both;
    current = (lki_activity_words){what, name};
    if (!published) return;
    size_t length = append(both.text, 0, what);
    if (name) length = append(both.text, length, name);
    memset(both.text + length, 0, LKI_ACTIVITY_NBYTES - length);
    for (int i = 0; i < LKI_ACTIVITY_WORDS; i++)
        atomic_store_explicit(&published->words[i], both.words[i], memory_order_relaxed);
}

void lki_activity_read(const lki_activity *place, char *text, size_t capacity)
{
    union {
        char text[LKI_ACTIVITY_NBYTES + 1];
        uint64_t words[LKI_ACTIVITY_WORDS];
    } both;
    for (int i = 0; i < LKI_ACTIVITY_WORDS; i++)
        both.words[i] = atomic_load_explicit(&place->words[i], memory_order_relaxed);
    both.text[LKI_ACTIVITY_NBYTES] = '\0';
    snprintf(text, capacity, "%s", both.text);
}
