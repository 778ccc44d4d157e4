/* A trace: what this thread did when, as spans that lie inside one another.
 *
 * A thread is traced while lki_trace_now points at a trace. Otherwise a place that can be traced costs one
 * look at that pointer. A span belongs to a site: a call of a plan, a kind of callback, a collective. Sites
 * are made when they are first met; spans lie in memory that was allocated with the trace, and those that no
 * longer fit are counted and left out.
 *
 * Life: whoever makes a trace sets and clears lki_trace_now around what it wants to see. One thread. */
#ifndef LKI_BASE_TRACE_H
#define LKI_BASE_TRACE_H

#include "base/clock.h"
#include "base/status.h"

#include <stdbool.h>

#define LKI_TRACE_KIND_LIST(X)                                                                               \
    X(FORWARD, "forward")                                                                                    \
    X(CRITERION, "criterion")                                                                                \
    X(BACKWARD, "backward")                                                                                  \
    X(UPDATE, "update")                                                                                      \
    X(PROGRAM, "program") /* a step that a device runs as one program */                                     \
    X(COMMUNICATION, "communication")                                                                        \
    X(LOADER, "loader")                                                                                      \
    X(CALLBACK, "callback")                                                                                  \
    X(COMPILE, "compile")                                                                                    \
    X(BATCH, "batch")                                                                                        \
    X(PHASE, "phase") /* a loader's pass, an epoch */

typedef enum lki_trace_kind {
#define X(symbol, name) LKI_TRACE_##symbol,
    LKI_TRACE_KIND_LIST(X)
#undef X
        LKI_TRACE_KIND_COUNT
} lki_trace_kind;

const char *lki_trace_kind_name(lki_trace_kind kind);

typedef struct lki_trace_site {
    lki_trace_kind kind;
    const char *name;     /* static, or as long-lived as the trace */
    char *where;          /* the layer, the shape, …; owned; NULL for none */
    const void *key;      /* what else tells it from sites of that name */
    double flops, nbytes; /* of one span; below 0: not known */
    int dtype;            /* of its numbers, an lk_dtype */
    const char *fallback; /* why a plain kernel computes it; static text, or NULL if a fast one does */
} lki_trace_site;

typedef struct lki_trace_span {
    int64_t begin_ns, end_ns;
    int32_t site, batch; /* batch: its number in its loader; 0 outside of batches */
    bool trains;         /* inside a batch that trains */
    int32_t order;       /* as it was noted; set when spans are sorted */
} lki_trace_span;

typedef struct lki_trace {
    lki_trace_site *sites;
    int site_count, site_capacity;
    lki_trace_span *spans;
    int64_t span_count, span_capacity, left_out;
    int32_t batch; /* of spans that end now */
    bool trains;
    uint64_t number; /* no two traces of a process have the same */
} lki_trace;

extern __thread lki_trace *lki_trace_now;

lki_trace *lki_trace_create(int64_t span_capacity);
void lki_trace_free(lki_trace *trace);

/* The index of a new site, or of the one with that kind, name and key; -1 if there is no memory. `where` is
 * copied. */
int lki_trace_add_site(lki_trace *trace, lki_trace_site site);
int lki_trace_find_site(lki_trace *trace, lki_trace_kind kind, const char *name, const void *key);

static inline void lki_trace_add(lki_trace *trace, int site, int64_t begin_ns, int64_t end_ns)
{
    if (trace->span_count == trace->span_capacity || site < 0) {
        trace->left_out++;
        return;
    }
    trace->spans[trace->span_count++] =
        (lki_trace_span){begin_ns, end_ns, site, trace->batch, trace->trains, 0};
}

/* Around what is to be a span: begin gives 0 if nothing is traced, and end then does nothing.
 *
 *     int64_t begin_ns = lki_trace_begin();
 *     lk_status status = do_it();
 *     lki_trace_end(LKI_TRACE_LOADER, "next batch", begin_ns); */
static inline int64_t lki_trace_begin(void)
{
    return lki_trace_now ? lki_now_ns() : 0;
}

/* `where` is static text, or NULL. */
void lki_trace_finish(lki_trace_kind kind, const char *name, const char *where, int64_t begin_ns);
static inline void lki_trace_end(lki_trace_kind kind, const char *name, int64_t begin_ns)
{
    if (begin_ns) lki_trace_finish(kind, name, NULL, begin_ns);
}

#endif
