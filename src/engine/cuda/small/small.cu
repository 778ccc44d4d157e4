/* Small programs: notes of what a recorded step does, and the one kernel that it becomes. */
#include "engine/cuda/small/small_program.cuh"

#include <string.h>

/* ---- Notes ---- */

enum { MOST_PIECES = 1 << 12 };

lki_cuda_note *lki_cuda_take_note(lki_cuda *cuda, lki_cuda_small_kind kind, int nodes, int64_t pieces)
{
    lki_cuda_notes *notes = cuda->notes;
    if (!notes || !cuda->recording || pieces > MOST_PIECES) return NULL;
    if (notes->count == LKI_CUDA_SMALL_OPS) {
        notes->overflowed = true;
        return NULL;
    }
    lki_cuda_note *note = &notes->note[notes->count++];
    memset(note, 0, sizeof *note);
    note->op.kind = (short)kind;
    note->op.pieces = (short)pieces;
    notes->node_count += nodes;
    return note;
}

static void touch(lki_cuda_note *note, const void *data, size_t nbytes, size_t piece, bool writes)
{
    if (!data || !nbytes) return;
    lki_cuda_touch *added = &note->touch[note->touch_count++];
    memset(added, 0, sizeof *added);
    added->begin = (const char *)data;
    added->nbytes = nbytes;
    added->piece = piece;
    added->writes = writes;
}

void lki_cuda_reads(lki_cuda_note *note, const void *data, size_t nbytes, size_t piece)
{
    touch(note, data, nbytes, piece, false);
}

void lki_cuda_writes(lki_cuda_note *note, const void *data, size_t nbytes, size_t piece)
{
    touch(note, data, nbytes, piece, true);
}

/* ---- Programs ---- */

static lk_status fill(lki_cuda *cuda, lki_cuda_small *s, bool *fits)
{
    size_t nbytes = sizeof s->op + sizeof(float) * LKI_CUDA_SMALL_SAMPLES;
    memcpy(s->note, cuda->notes->note, sizeof *s->note * (size_t)cuda->notes->count);
    s->count = cuda->notes->count;
    LKI_TRY(lki_cuda_malloc((void **)&s->memory, nbytes, "a step as one kernel"));
    *fits = lki_cuda_small_join(cuda, s);
    s->args.op = (const lki_cuda_small_op *)s->memory;
    s->args.op_count = s->count;
    s->args.live = cuda->live;
    s->args.faults = cuda->fault.first;
    s->args.arrivals = cuda->arrivals;
    return LK_OK;
}

lk_status lki_cuda_small_create(lki_cuda *cuda, cudaGraph_t graph, lki_cuda_small **out)
{
    const lki_cuda_notes *notes = cuda->notes;
    size_t nodes = 0;
    bool fits = false;
    *out = NULL;
    if (!notes || !notes->count || notes->overflowed || cuda->never_small) return LK_OK;
    LKI_CUDA(cudaGraphGetNodes(graph, NULL, &nodes));
    if (nodes != (size_t)notes->node_count) return LK_OK;
    lki_cuda_small *s = (lki_cuda_small *)lki_host->alloc(sizeof *s, "a small program");
    if (!s) return LK_ERR_NOMEM;
    lk_status status = fill(cuda, s, &fits);
    if (status == LK_OK && fits)
        *out = s;
    else
        lki_cuda_small_free(s);
    return status;
}

void lki_cuda_small_free(lki_cuda_small *small)
{
    if (!small) return;
    cudaFree(small->memory);
    lki_host->free(small);
}

lk_status lki_cuda_small_replay(lki_cuda *cuda, lki_cuda_small *s, lk_generator *generator)
{
    bool matters;
    LKI_TRY(lki_cuda_collect_news(cuda, generator, &s->args.news, &matters));
    LKI_TRY(lki_cuda_small_plan(cuda, s));
    s->args.waits = s->wait_count > 0;
    s->args.arrived = cuda->arrived;
    LKI_TRY(lki_cuda_small_launch(cuda, &s->facts, &s->args, s->blocks, s->shared_nbytes));
    cuda->arrived += (unsigned)(s->wait_count * s->blocks);
    return LK_OK;
}
