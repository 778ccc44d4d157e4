/* What a thread is doing, in a few words that others may read at any moment: ranks that wait for this one say
 * it. The words lie where the reader looks, such as in memory that processes share. A text that is read while
 * it changes may be a mixture of two; nothing else can happen. Writing costs a few stores, and nothing where
 * nobody reads. */
#ifndef LKI_BASE_ACTIVITY_H
#define LKI_BASE_ACTIVITY_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { LKI_ACTIVITY_WORDS = 8, LKI_ACTIVITY_NBYTES = 8 * LKI_ACTIVITY_WORDS };

typedef struct lki_activity {
    _Atomic uint64_t words[LKI_ACTIVITY_WORDS]; /* text that ends with a zero byte, or is full */
} lki_activity;

/* From now on this thread's words go to `place`; NULL: nowhere. */
void lki_activity_publish(lki_activity *place);
/* Takes the place away if it is this thread's. */
void lki_activity_withdraw(const lki_activity *place);

/* "in callback Checkpoint": `what` and then `name`, which may be NULL. Both must live until the next call. */
typedef struct lki_activity_words {
    const char *what, *name;
} lki_activity_words;
void lki_activity_set(const char *what, const char *name);
/* What was set last, to set it again after something that lies within. */
lki_activity_words lki_activity_current(void);
void lki_activity_read(const lki_activity *place, char *text, size_t capacity);

#endif
