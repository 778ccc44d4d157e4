#include "base/trace.h"

#include "base/memory.h"

#include <string.h>

__thread lki_trace *lki_trace_now;

const char *lki_trace_kind_name(lki_trace_kind kind)
{
    static const char *const names[] = {
#define X(symbol, name) name,
        LKI_TRACE_KIND_LIST(X)
#undef X
    };
    return names[kind];
}

lki_trace *lki_trace_create(int64_t span_capacity)
{
    static uint64_t last_number;
    lki_trace *trace = LKI_NEW(lki_trace);
    if (!trace) return NULL;
    trace->number = __atomic_add_fetch(&last_number, 1, __ATOMIC_RELAXED);
    trace->span_capacity = span_capacity;
    trace->spans = LKI_NEW_ARRAY(lki_trace_span, span_capacity + 1);
    if (trace->spans) return trace;
    lki_trace_free(trace);
    return NULL;
}

void lki_trace_free(lki_trace *trace)
{
    if (!trace) return;
    if (lki_trace_now == trace) lki_trace_now = NULL;
    for (int i = 0; i < trace->site_count; i++) lki_free(trace->sites[i].where);
    lki_free(trace->sites);
    lki_free(trace->spans);
    lki_free(trace);
}

int lki_trace_add_site(lki_trace *trace, lki_trace_site site)
{
    if (trace->site_count == trace->site_capacity) {
        int capacity = trace->site_capacity ? 2 * trace->site_capacity : 64;
        lki_trace_site *sites =
            lki_realloc(trace->sites, sizeof *sites * (size_t)capacity, "the places of a trace");
        if (!sites) return -1;
        trace->sites = sites;
        trace->site_capacity = capacity;
    }
    site.where = lki_strdup(site.where);
    trace->sites[trace->site_count] = site;
    return trace->site_count++;
}

/* From the last one: what is met now was met a moment ago. */
int lki_trace_find_site(lki_trace *trace, lki_trace_kind kind, const char *name, const void *key)
{
    for (int i = trace->site_count - 1; i >= 0; i--) {
        const lki_trace_site *site = &trace->sites[i];
        if (site->kind == kind && site->key == key && strcmp(site->name, name) == 0) return i;
    }
    return -1;
}

void lki_trace_finish(lki_trace_kind kind, const char *name, const char *where, int64_t begin_ns)
{
    int64_t end_ns = lki_now_ns();
    lki_trace *trace = lki_trace_now;
    if (!trace) return;
    int site = lki_trace_find_site(trace, kind, name, where);
    if (site < 0)
        site = lki_trace_add_site(trace, (lki_trace_site){.kind = kind,
                                                          .name = name,
                                                          .where = (char *)where,
                                                          .key = where,
                                                          .flops = -1,
                                                          .nbytes = -1,
                                                          .dtype = -1});
    lki_trace_add(trace, site, begin_ns, end_ns);
}
