/* Between which ops of a small program all blocks have to wait, which kernel runs it, and with how much
 * shared memory. */
#include "engine/cuda/small/small_program.cuh"

#include <limits.h>
#include <string.h>

/* ---- Who waits for whom ---- */

/* Whether a block sees what matters of `a` at once: it has written all of it itself, or the same piece of
 * both ops touches it, which the same block takes. */
static bool is_own(const lki_cuda_touch *a, const lki_cuda_touch *b)
{
    if (a->every) return !b->writes;
    return a->piece && a->piece == b->piece && a->begin == b->begin;
}

/* `ignored`: what is written there `after` reads elsewhere. */
static bool must_wait(const lki_cuda_note *before, const lki_cuda_note *after, const void *ignored)
{
    for (int i = 0; i < before->touch_count; i++) {
        if (before->touch[i].begin == ignored) continue;
        for (int j = 0; j < after->touch_count; j++)
            if (lki_cuda_meet(&before->touch[i], &after->touch[j]) &&
                !is_own(&before->touch[i], &after->touch[j]))
                return true;
    }
    return false;
}

/* The news as an op. */
static void note_news(const lki_cuda *cuda, const lki_cuda_step_news *news, lki_cuda_note *out)
{
    memset(out, 0, sizeof *out);
    lki_cuda_writes(out, cuda->live, sizeof *cuda->live, 0);
    for (int i = 0; i < news->gather_count; i++) {
        const lki_cuda_gather *g = &news->gather[i];
        static const size_t sizes[] = {4, 8, 8, 1, 2, 4, 8, 16, 8}; /* of what each conversion gives */
        size_t row_nbytes = (size_t)g->width * sizes[g->conversion];
        bool tiny = lki_cuda_is_tiny(*g);
        lki_cuda_writes(out, g->out, (size_t)g->row_count * row_nbytes, tiny ? 0 : row_nbytes);
        out->touch[out->touch_count - 1].every = tiny;
        if (!tiny && g->row_count > out->op.pieces) out->op.pieces = (short)g->row_count;
    }
}

/* Which gather of the news an op may read where its rows come from, or has at hand; -1: none. */
static int find_gather(const lki_cuda_small *s, int i)
{
    const lki_cuda_step_news *news = &s->args.news;
    const lki_cuda_small_op *op = &s->op[i];
    const lki_cuda_small_product *p = &op->product;
    bool dots = op->kind == LKI_CUDA_SMALL_DOTS_ROW || op->kind == LKI_CUDA_SMALL_DOTS_TILE;
    bool loses = op->kind == LKI_CUDA_SMALL_LOSS || op->kind == LKI_CUDA_SMALL_TOTAL;
    for (int k = 0; k < news->gather_count; k++) {
        const lki_cuda_gather *g = &news->gather[k];
        bool rows = dots && g->out == p->a && g->conversion == LKI_CUDA_COPY_16 && g->row_count == p->m;
        if (rows && g->width * 4 == p->k) return k;
        bool all = g->row_count * g->width == op->loss.l.samples;
        if (loses && g->out == op->loss.l.target && all && lki_cuda_is_tiny(*g)) return k;
    }
    return -1;
}

/* What the news tell an op about where its operands are. */
static const void *look_at_news(lki_cuda_small *s, const lki_cuda_note *news, int i)
{
    lki_cuda_small_op *op = &s->op[i];
    int found = find_gather(s, i);
    for (int k = 0; k < i && found >= 0; k++) /* unless somebody has changed them since */
        for (int t = 0; t < s->note[k].touch_count; t++) {
            const lki_cuda_touch *touched = &s->note[k].touch[t];
            if (found >= 0 && touched->writes && lki_cuda_meet(touched, &news->touch[1 + found])) found = -1;
        }
    if (op->kind == LKI_CUDA_SMALL_LOSS || op->kind == LKI_CUDA_SMALL_TOTAL) {
        op->loss.tiny = (short)found;
        return NULL;
    }
    if (op->kind != LKI_CUDA_SMALL_DOTS_ROW && op->kind != LKI_CUDA_SMALL_DOTS_TILE) return NULL;
    op->product.gather = (short)found;
    return found < 0 ? NULL : op->product.a;
}

static bool goes_by_rows(const lki_cuda_note *note)
{
    for (int i = 0; i < note->touch_count; i++)
        if (note->touch[i].piece) return true;
    return false;
}

/* Barriers only where they are needed: before the first op that must wait for one behind the last barrier.
 * Between two barriers ops that do not go by rows begin at blocks that have nothing to do yet. */
static void plan_waits(const lki_cuda *cuda, lki_cuda_small *s)
{
    lki_cuda_note news;
    note_news(cuda, &s->args.news, &news);
    int most = news.op.pieces, behind = -1, used = 0;
    s->wait_count = 0;
    for (int i = 0; i < s->args.run_count; i++) {
        lki_cuda_small_op *op = &s->op[i];
        const void *elsewhere = look_at_news(s, &news, i);
        op->waits = false;
        for (int k = behind; k < i; k++)
            op->waits = op->waits || (k < 0 ? must_wait(&news, &s->note[i], elsewhere)
                                            : must_wait(&s->note[k], &s->note[i], NULL));
        if (op->waits) {
            behind = i;
            used = 0;
        }
        s->wait_count += op->waits;
        op->shift = goes_by_rows(&s->note[i]) ? 0 : (short)used;
        if (!goes_by_rows(&s->note[i])) used += op->pieces;
        if (used > most) most = used;
        if (op->pieces > most) most = op->pieces;
    }
    s->blocks = most < 1 ? 1 : most < cuda->processor_count ? most : cuda->processor_count;
    for (int i = 0; i < s->args.run_count; i++) s->op[i].shift = (short)(s->op[i].shift % s->blocks);
}

/* ---- Shared memory ---- */

static size_t tile_nbytes(const lki_cuda_small_op *op)
{
    if (op->kind != LKI_CUDA_SMALL_TILES) return 0;
    size_t side = (size_t)lki_cuda_tile_side(op->product.m, op->product.n);
    return sizeof(float) * LKI_CUDA_SMALL_DEPTH * (side + 4 + side + 1);
}

static size_t find_shared(const lki_cuda_small *s)
{
    size_t most = 0;
    for (int i = 0; i < s->args.run_count; i++) {
        size_t nbytes = tile_nbytes(&s->op[i]);
        if (nbytes > most) most = nbytes;
    }
    return most;
}

/* ---- Usual steps ---- */

static bool is_plain(const lki_cuda_class_loss *l)
{
    return !l->weight && l->smoothing == 0 && l->mean && l->target_dtype == LK_I64;
}

static int state_count(const lki_cuda_small_update *u)
{
    int count = 0, last = 0;
    for (int k = 1; k <= 3; k++) {
        count += u->data[1 + k] != NULL;
        if (u->data[1 + k]) last = k;
    }
    return count == last ? count : -1; /* only the first ones, or it is unusual */
}

/* `found` where nothing was known yet, else -1 where it is not the same. */
static int agree(int known, int found)
{
    return known == INT_MAX || known == found ? found : -1;
}

static lki_cuda_small_facts find_facts(const lki_cuda_small *s)
{
    const lki_cuda_small_facts unusual = {-1, -1, -1, -1};
    lki_cuda_small_facts f = {INT_MAX, INT_MAX, INT_MAX, INT_MAX};
    for (int i = 0; i < s->count; i++) {
        const lki_cuda_small_op *op = &s->op[i];
        if (op->kind == LKI_CUDA_SMALL_LOSS && !is_plain(&op->loss.l)) return unusual;
        if (op->kind != LKI_CUDA_SMALL_UPDATE) continue;
        f.rule = agree(f.rule, op->update.rule);
        f.states = agree(f.states, state_count(&op->update));
    }
    for (int i = 0; i < s->args.news.gather_count; i++) {
        const lki_cuda_gather *g = &s->args.news.gather[i];
        int *known = lki_cuda_is_tiny(*g) ? &f.labels : &f.rows;
        *known = agree(*known, g->conversion);
    }
    return f;
}

/* ---- All of it ---- */

static void see(lki_cuda_taken *t, const lki_cuda_step_news *news)
{
    memset(t, 0, sizeof *t);
    t->count = news->gather_count;
    for (int i = 0; i < news->gather_count; i++) {
        t->out[i] = news->gather[i].out;
        t->width[i] = news->gather[i].width;
        t->row_count[i] = news->gather[i].row_count;
        t->conversion[i] = news->gather[i].conversion;
    }
}

lk_status lki_cuda_small_plan(lki_cuda *cuda, lki_cuda_small *s)
{
    lki_cuda_taken now;
    see(&now, &s->args.news);
    if (s->is_planned && memcmp(&now, &s->seen, sizeof now) == 0) return LK_OK;
    plan_waits(cuda, s);
    s->facts = find_facts(s);
    s->shared_nbytes = find_shared(s);
    s->seen = now;
    s->is_planned = true;
    LKI_CUDA(cudaMemcpyAsync(s->memory, s->op, sizeof s->op, cudaMemcpyHostToDevice, cuda->compute));
    return LK_OK;
}
