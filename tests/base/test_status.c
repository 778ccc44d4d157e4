/* Failures that are kept while other calls are made. */
#include "lktest.h"

#include "base/status.h"

#include <string.h>

static void the_first_is_kept(void **state)
{
    lki_error first = {0};
    (void)state;
    assert_int_equal(lki_error_keep(&first, LK_OK), LK_OK);
    assert_int_equal(lki_error_restore(&first), LK_OK);
    assert_int_equal(lki_error_keep(&first, lki_fail(LK_ERR_IO, "the disk is %d%% full", 100)), LK_ERR_IO);
    assert_int_equal(lki_error_keep(&first, lki_fail(LK_ERR_PEER, "rank 1 is gone")), LK_ERR_PEER);
    assert_int_equal(lki_error_keep(&first, LK_OK), LK_OK);
    assert_string_equal(lk_error(), "rank 1 is gone");
    unsigned long said = lki_fail_count();
    assert_int_equal(lki_error_restore(&first), LK_ERR_IO);
    assert_string_equal(lk_error(), "the disk is 100% full");
    assert_int_equal(lk_error_status(), LK_ERR_IO);
    assert_int_equal(lki_fail_count(), said + 1);
}

/* Nothing is restored where nothing has failed: the sentence is another's. */
static void nothing_is_left_alone(void **state)
{
    lki_error none = {0};
    (void)state;
    lki_fail(LK_ERR_PEER, "rank 2 is gone");
    assert_int_equal(lki_error_restore(&none), LK_OK);
    assert_string_equal(lk_error(), "rank 2 is gone");
}

static void long_ones_are_kept_whole(void **state)
{
    char text[2 * LKI_ERROR_NBYTES];
    lki_error first = {0};
    (void)state;
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    lki_error_keep(&first, lki_fail(LK_ERR_IO, "%s", text));
    char before[LKI_ERROR_NBYTES];
    snprintf(before, sizeof before, "%s", lk_error());
    assert_int_equal(strlen(before), LKI_ERROR_NBYTES - 1);
    lki_fail(LK_ERR_PEER, "rank 1 is gone");
    assert_int_equal(lki_error_restore(&first), LK_ERR_IO);
    assert_string_equal(lk_error(), before);
}

/* A sentence is text, not a format. */
static void a_finished_sentence(void **state)
{
    (void)state;
    assert_int_equal(lk_fail_text(LK_ERR_RANGE, "100%s\nsure"), LK_ERR_RANGE);
    assert_string_equal(lk_error(), "100%s sure");
    assert_int_equal(lk_error_status(), LK_ERR_RANGE);
    assert_int_equal(lk_fail_text(LK_ERR_IO, NULL), LK_ERR_IO);
    assert_string_equal(lk_error(), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_is_kept),
        cmocka_unit_test(nothing_is_left_alone),
        cmocka_unit_test(long_ones_are_kept_whole),
        cmocka_unit_test(a_finished_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
