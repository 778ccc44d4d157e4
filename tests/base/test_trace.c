/* The trace of a thread: sites, spans, and what no longer fits. */
#include "lktest.h"

#include "base/trace.h"

static void test_nothing_is_traced_by_default(void **state)
{
    (void)state;
    assert_null(lki_trace_now);
    assert_true(lki_trace_begin() == 0);
    lki_trace_end(LKI_TRACE_LOADER, "nothing", 0);
}

static void test_spans_are_kept_under_their_sites(void **state)
{
    (void)state;
    lki_trace *trace = lki_trace_create(10);
    static const char *const moments[] = {"batch_start", "batch_end"};
    lki_trace_now = trace;
    trace->batch = 3;
    trace->trains = true;
    for (int i = 0; i < 4; i++) {
        int64_t begin_ns = lki_trace_begin();
        assert_true(begin_ns > 0);
        lki_trace_finish(LKI_TRACE_CALLBACK, "Timer", moments[i % 2], begin_ns);
    }
    lki_trace_end(LKI_TRACE_CALLBACK, "Timer", lki_trace_begin());
    lki_trace_now = NULL;
    assert_int_equal(trace->span_count, 5);
    assert_int_equal(trace->site_count, 3);
    assert_string_equal(trace->sites[trace->spans[1].site].where, "batch_end");
    assert_int_equal(trace->spans[3].site, trace->spans[1].site);
    assert_null(trace->sites[trace->spans[4].site].where);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(trace->spans[i].batch, 3);
        assert_true(trace->spans[i].trains && trace->spans[i].end_ns >= trace->spans[i].begin_ns);
    }
    lki_trace_free(trace);
}

static void test_what_does_not_fit_is_counted(void **state)
{
    (void)state;
    lki_trace *trace = lki_trace_create(2);
    lki_trace_now = trace;
    for (int i = 0; i < 5; i++) lki_trace_end(LKI_TRACE_BATCH, "batch", lki_trace_begin());
    assert_int_equal(trace->span_count, 2);
    assert_int_equal(trace->left_out, 3);
    lki_trace_free(trace);
    assert_null(lki_trace_now); /* nobody writes into what is gone */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_traced_by_default),
        cmocka_unit_test(test_spans_are_kept_under_their_sites),
        cmocka_unit_test(test_what_does_not_fit_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
