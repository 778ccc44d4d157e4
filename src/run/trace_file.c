#include "run/trace_file.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"
#include "run/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE_NBYTES = 1 << 20, THREAD_NUMBER = 1 };

/* Of two that begin and end together, the outer one was noted later. */
static int compare_spans(const void *a, const void *b)
{
    const lki_trace_span *x = a, *y = b;
    if (x->begin_ns != y->begin_ns) return x->begin_ns < y->begin_ns ? -1 : 1;
    if (x->end_ns != y->end_ns) return x->end_ns > y->end_ns ? -1 : 1;
    return x->order > y->order ? -1 : x->order < y->order;
}

void lki_trace_sort(lki_trace *trace)
{
    for (int64_t i = 0; i < trace->span_count; i++) trace->spans[i].order = (int32_t)i;
    qsort(trace->spans, (size_t)trace->span_count, sizeof *trace->spans, compare_spans);
}

static void put_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 32)
            fprintf(out, "\\u%04x", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

/* Nanoseconds as microseconds, without a rounding that could move a span out of another. */
static void put_us(FILE *out, const char *key, int64_t ns)
{
    fprintf(out, ",\"%s\":%" PRId64 ".%03d", key, ns / 1000, (int)(ns % 1000));
}

static void put_name(FILE *out, const lk_runner *runner)
{
    char host[128] = "a host";
    gethostname(host, sizeof host - 1);
    fprintf(out,
            "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"args\":{\"name\":", runner->rank);
    LKI_SCOPED char *name = lki_format("rank %d (%s)", runner->rank, host);
    put_text(out, name && lki_is_utf8(name) ? name : "a rank");
    fprintf(out, "}},\n{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"args\":{",
            runner->rank);
    fprintf(out, "\"sort_index\":%d}},\n{\"name\":\"thread_name\",\"ph\":\"M\",", runner->rank);
    fprintf(out, "\"pid\":%d,\"tid\":%d,\"args\":{\"name\":\"training\"}}", runner->rank, THREAD_NUMBER);
}

static void put_span(FILE *out, const lk_runner *runner, const lki_trace_span *span)
{
    const lki_profile *profile = &runner->run->profile;
    const lki_trace_site *site = &profile->trace->sites[span->site];
    fputs(",\n{\"name\":", out);
    put_text(out, site->name);
    fprintf(out, ",\"cat\":\"%s\",\"ph\":\"X\"", lki_trace_kind_name(site->kind));
    put_us(out, "ts", span->begin_ns + profile->offset_ns - profile->origin_ns);
    put_us(out, "dur", span->end_ns - span->begin_ns);
    fprintf(out, ",\"pid\":%d,\"tid\":%d,\"args\":{", runner->rank, THREAD_NUMBER);
    if (span->batch) fprintf(out, "\"batch\":%d", span->batch);
    if (site->where) {
        fputs(span->batch ? ",\"at\":" : "\"at\":", out);
        put_text(out, site->where);
    }
    fputs("}}", out);
}

/* This rank's events. */
static lk_status describe(const lk_runner *runner, char **text, size_t *nbytes)
{
    lki_trace *trace = runner->run->profile.trace;
    FILE *out = open_memstream(text, nbytes);
    if (!out) return lki_fail(LK_ERR_NOMEM, "out of memory for the trace");
    lki_trace_sort(trace);
    if (runner->rank > 0) fputs(",\n", out);
    put_name(out, runner);
    for (int64_t i = 0; i < trace->span_count; i++) put_span(out, runner, &trace->spans[i]);
    return fclose(out) == 0 ? LK_OK : lki_fail(LK_ERR_NOMEM, "out of memory for the trace");
}

/* What rank `from` has to say goes to rank 0, piece by piece. `file`: NULL on the others. */
static lk_status pass_on(lk_runner *runner, int from, const char *text, size_t nbytes, lki_atomic_file *file)
{
    lk_comm *comm = runner->run->ranks.comm;
    int64_t length = (int64_t)nbytes;
    if (from == 0) return file ? lki_atomic_file_write(file, text, nbytes) : LK_OK;
    LKI_SCOPED char *piece = LKI_NEW_ARRAY(char, PIECE_NBYTES);
    if (!piece) return LK_ERR_NOMEM;
    LKI_TRY(lk_comm_broadcast(comm, &length, 1, LK_I64, from));
    for (int64_t at = 0; at < length; at += PIECE_NBYTES) {
        int64_t count = length - at < PIECE_NBYTES ? length - at : PIECE_NBYTES;
        if (runner->rank == from) memcpy(piece, text + at, (size_t)count);
        LKI_TRY(lk_comm_broadcast(comm, piece, count, LK_U8, from));
        if (file) LKI_TRY(lki_atomic_file_write(file, piece, (size_t)count));
    }
    return LK_OK;
}

static lk_status put_head(lki_atomic_file *file, const lk_runner *runner)
{
    const lki_profile *profile = &runner->run->profile;
    return lki_atomic_file_printf(file,
                                  "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"ranks\":%d,\"epoch\":%" PRId64
                                  ",\"train_batches\":%" PRId64 ",\"train_batches_of_epoch\":%" PRId64
                                  ",\"other_batches\":%" PRId64 ",\"other_batches_of_epoch\":%" PRId64
                                  ",\"events_left_out\":%" PRId64 "},\n\"traceEvents\":[\n",
                                  runner->world_size, runner->epoch_step, profile->traced, profile->seen,
                                  profile->evaluated, profile->evaluations, profile->trace->left_out);
}

static lk_status write_all(lk_runner *runner, const char *text, size_t nbytes, lki_atomic_file *file)
{
    if (file) LKI_TRY(put_head(file, runner));
    for (int r = 0; r < runner->world_size; r++) LKI_TRY(pass_on(runner, r, text, nbytes, file));
    return file ? lki_atomic_file_printf(file, "\n]}\n") : LK_OK;
}

lk_status lki_trace_file_write(lk_runner *runner)
{
    char *text = NULL;
    size_t nbytes = 0;
    lki_atomic_file *file = NULL;
    LKI_SCOPED char *path = lki_profile_path(runner);
    lk_status status = path ? describe(runner, &text, &nbytes) : LK_ERR_NOMEM;
    if (!status && runner->is_master) status = lki_atomic_file_open(&file, path);
    if (!status) status = write_all(runner, text, nbytes, file);
    free(text);
    if (status) {
        lki_atomic_file_abort(file);
        return status;
    }
    return file ? lki_atomic_file_commit(file) : LK_OK;
}
