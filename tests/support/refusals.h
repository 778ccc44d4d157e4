/* Values that make no sense must be refused by the constructor that gets them, in one line that names them.
 *
 *     static void samplers(void **state)
 *     {
 *         REFUSED("num_samples", lk_sampler_free, lk_random_sampler(5, .num_samples = -1));
 *         lkt_all_refused();
 *     }
 *
 * The macros go on after a constructor that takes what it should not, so that one run shows all of them. */
#ifndef LKT_REFUSALS_H
#define LKT_REFUSALS_H

#include "lktest.h"

#include "base/status.h"

static int lkt_unrefused;

/* What is wrong with how something was refused; NULL if nothing is. */
static inline const char *lkt_judge_refusal(bool refused, unsigned long said, const char *fragment)
{
    if (!refused) return "is not refused";
    if (lki_fail_count() == said) return "is refused without a sentence";
    if (strchr(lk_error(), '\n')) return "is refused in more than one line";
    return strstr(lk_error(), fragment) ? NULL : "is refused without the word";
}

static inline void lkt_note_refusal(const char *expression, const char *fragment, bool refused,
                                    unsigned long said)
{
    const char *wrong = lkt_judge_refusal(refused, said, fragment);
    if (!wrong) return;
    lkt_unrefused++;
    print_error("%s %s \"%s\": %s\n", expression, wrong, fragment, refused ? lk_error() : "");
}

/* A constructor that must give NULL, and a sentence that contains `fragment`. */
#define REFUSED(fragment, free_function, ...)                                                                \
    do {                                                                                                     \
        unsigned long lkt_said_ = lki_fail_count();                                                          \
        __auto_type lkt_made_ = (__VA_ARGS__);                                                               \
        lkt_note_refusal(#__VA_ARGS__, fragment, !lkt_made_, lkt_said_);                                     \
        if (lkt_made_) free_function(lkt_made_);                                                             \
    } while (0)

/* A call that must fail so. */
#define REFUSED_CALL(fragment, ...)                                                                          \
    do {                                                                                                     \
        unsigned long lkt_said_ = lki_fail_count();                                                          \
        lk_status lkt_status_ = (__VA_ARGS__);                                                               \
        lkt_note_refusal(#__VA_ARGS__, fragment, lkt_status_ != LK_OK, lkt_said_);                           \
    } while (0)

static inline void lkt_all_refused(void)
{
    int count = lkt_unrefused;
    lkt_unrefused = 0;
    assert_int_equal(count, 0);
}

#endif
