/* Small programs: notes of what a recorded step does, what becomes one op of them, and between which ops all
 * blocks have to wait. */
#include "engine/cuda/small.cuh"

#include <limits.h>
#include <string.h>

/* What the last launch took in: as long as that stays, so do the barriers. */
typedef struct taken {
    void *out[LKI_CUDA_MAX_GATHERS];
    int64_t width[LKI_CUDA_MAX_GATHERS];
    int row_count[LKI_CUDA_MAX_GATHERS], conversion[LKI_CUDA_MAX_GATHERS], count;
} taken;

struct lki_cuda_small {
    lki_cuda_note note[LKI_CUDA_SMALL_OPS];
    int count, run_count; /* of them; the last ones may be there only for others */
    lki_cuda_small_op op[LKI_CUDA_SMALL_OPS];
    lki_cuda_small_args args;
    lki_cuda_small_facts facts;
    char *memory; /* device: the ops, then the samples' losses */
    taken seen;
    bool is_planned;
    int blocks, wait_count;
    size_t shared_nbytes;
};

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

/* Moves a note forwards or backwards. */
static void move_note(lki_cuda_small *s, int from, int to)
{
    lki_cuda_note moved = s->note[from];
    if (from < to)
        memmove(&s->note[from], &s->note[from + 1], sizeof moved * (size_t)(to - from));
    else
        memmove(&s->note[to + 1], &s->note[to], sizeof moved * (size_t)(from - to));
    s->note[to] = moved;
}

static void remove_note(lki_cuda_small *s, int index)
{
    move_note(s, index, --s->count);
}

static int find_kind(const lki_cuda_small *s, lki_cuda_small_kind kind)
{
    for (int i = 0; i < s->count; i++)
        if (s->note[i].op.kind == (short)kind) return i;
    return -1;
}

/* ---- Who waits for whom ---- */

static bool meet(const lki_cuda_touch *a, const lki_cuda_touch *b)
{
    return a->begin < b->begin + b->nbytes && b->begin < a->begin + a->nbytes && (a->writes || b->writes);
}

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
            if (meet(&before->touch[i], &after->touch[j]) && !is_own(&before->touch[i], &after->touch[j]))
                return true;
    }
    return false;
}

static bool depend(const lki_cuda_note *before, const lki_cuda_note *after)
{
    for (int i = 0; i < before->touch_count; i++)
        for (int j = 0; j < after->touch_count; j++)
            if (meet(&before->touch[i], &after->touch[j])) return true;
    return false;
}

/* Whether note `which` touches nothing that the notes begin..end - 1 do. */
static bool is_free(const lki_cuda_small *s, int which, int begin, int end)
{
    for (int i = begin; i < end; i++)
        if (i != which && depend(&s->note[i], &s->note[which])) return false;
    return true;
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
static const void *look_at_news(lki_cuda_small *s, int i)
{
    lki_cuda_small_op *op = &s->op[i];
    int found = find_gather(s, i);
    for (int k = 0; k < i && found >= 0; k++) /* unless somebody has changed them since */
        for (int t = 0; t < s->note[k].touch_count; t++) {
            const lki_cuda_touch *touched = &s->note[k].touch[t];
            if (touched->writes && touched->begin == s->args.news.gather[found].out) found = -1;
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
    for (int i = 0; i < s->run_count; i++) {
        lki_cuda_small_op *op = &s->op[i];
        const void *elsewhere = look_at_news(s, i);
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
    for (int i = 0; i < s->run_count; i++) s->op[i].shift = (short)(s->op[i].shift % s->blocks);
}

/* ---- Losses ---- */

/* A loss and its gradient become one op, its sum and the watch another. False where they do not fit. */
static bool join_losses(const lki_cuda *cuda, lki_cuda_small *s, float *losses)
{
    int at = find_kind(s, LKI_CUDA_SMALL_LOSS), grad = find_kind(s, LKI_CUDA_SMALL_LOSS_GRAD);
    if (at < 0) return grad < 0 && find_kind(s, LKI_CUDA_SMALL_WATCH) < 0;
    if (s->count == LKI_CUDA_SMALL_OPS) return false;
    lki_cuda_small_loss *o = &s->note[at].op.loss;
    o->losses = losses;
    if (grad >= 0) {
        const lki_cuda_small_loss *g = &s->note[grad].op.loss;
        bool fits = grad > at && g->x == o->logp && g->l.target == o->l.target && g->lanes == o->lanes;
        if (!fits || !is_free(s, grad, at + 1, grad)) return false;
        o->grad = g->grad;
        o->dloss = g->dloss;
        size_t row = sizeof(float) * (size_t)o->l.classes;
        lki_cuda_reads(&s->note[at], o->dloss, sizeof(float), 0);
        lki_cuda_writes(&s->note[at], o->grad, (size_t)o->l.samples * row, row);
        remove_note(s, grad);
    }
    size_t nbytes = sizeof(float) * (size_t)o->l.samples;
    lki_cuda_writes(&s->note[at], losses, nbytes, sizeof(float));
    lki_cuda_note *total = &s->note[s->count++];
    memset(total, 0, sizeof *total);
    total->op.kind = LKI_CUDA_SMALL_TOTAL;
    total->op.loss = *o;
    lki_cuda_reads(total, losses, nbytes, 0);
    lki_cuda_reads(total, o->l.target, (size_t)o->l.samples * lki_cuda_dtype_nbytes(o->l.target_dtype), 0);
    lki_cuda_writes(total, o->out, sizeof(float), 0);
    move_note(s, s->count - 1, at + 1);
    int watch = find_kind(s, LKI_CUDA_SMALL_WATCH);
    if (watch < 0) return true;
    total = &s->note[at + 1];
    bool same = watch > at && s->note[watch].op.loss.out == total->op.loss.out;
    total->op.loss.host = s->note[watch].op.loss.host;
    total->op.loss.guard = s->note[watch].op.loss.guard;
    lki_cuda_writes(total, cuda->live, sizeof *cuda->live, 0);
    total->touch[total->touch_count - 1].every = true; /* as far as a block looks at it */
    remove_note(s, watch);
    return same && find_kind(s, LKI_CUDA_SMALL_WATCH) < 0 && find_kind(s, LKI_CUDA_SMALL_LOSS_GRAD) < 0;
}

/* The sum is needed by updates, and by those who read it: until then nobody has to wait for it. */
static void delay_total(lki_cuda_small *s)
{
    int at = find_kind(s, LKI_CUDA_SMALL_TOTAL), to = at;
    if (at < 0) return;
    while (to + 1 < s->count) {
        const lki_cuda_small_op *next = &s->note[to + 1].op;
        bool updates = next->kind == LKI_CUDA_SMALL_UPDATE ||
                       (next->kind == LKI_CUDA_SMALL_TILES && next->product.update >= 0);
        if (updates || depend(&s->note[at], &s->note[to + 1])) break;
        to++;
    }
    move_note(s, at, to);
}

/* ---- ReLU's gradients beside the products before them ---- */

static void join_masks(lki_cuda_small *s)
{
    for (int i = 0; i + 1 < s->count; i++) {
        lki_cuda_small_product *p = &s->note[i].op.product;
        const lki_cuda_note *next = &s->note[i + 1];
        const lki_cuda_small_pointwise *o = &next->op.pointwise;
        bool fits = s->note[i].op.kind == LKI_CUDA_SMALL_ROW && !p->masked &&
                    next->op.kind == LKI_CUDA_SMALL_RELU_GRAD && o->dy == p->c && o->width == p->n &&
                    o->count == p->m * p->n;
        if (!fits) continue;
        p->mask = o->y;
        p->masked = o->out;
        for (int t = 1; t < next->touch_count; t++)
            s->note[i].touch[s->note[i].touch_count++] = next->touch[t];
        remove_note(s, i + 1);
    }
}

/* ---- Updates beside their gradients ---- */

static bool lies_in(const void *data, size_t nbytes, const void *whole, size_t whole_nbytes)
{
    const char *begin = (const char *)data, *all = (const char *)whole;
    return begin >= all && begin + nbytes <= all + whole_nbytes;
}

/* Takes elements begin..end - 1 out of the ranges; false where there is no room for what is left. */
static bool take_range(lki_cuda_small_update *u, int begin, int end)
{
    for (int i = 0; i < u->range_count; i++) {
        int to = u->end[i];
        if (begin < u->begin[i] || end > to) continue;
        if (u->range_count == LKI_CUDA_SMALL_RANGES) return false;
        u->end[i] = begin;
        u->begin[u->range_count] = end;
        u->end[u->range_count++] = to;
        return true;
    }
    return false;
}

static bool take_gradient(lki_cuda_small_update *u, const float *gradient, int64_t count)
{
    if (!gradient) return true;
    int64_t begin = gradient - u->data[1];
    return take_range(u, (int)begin, (int)(begin + count));
}

/* What an update of `count` elements from `begin` on touches. */
static void touch_update(lki_cuda_note *note, const lki_cuda *cuda, const lki_cuda_small_update *u,
                         int64_t begin, int64_t count)
{
    size_t nbytes = sizeof(float) * (size_t)count;
    for (int k = 0; k < 5; k++)
        if (u->data[k]) touch(note, u->data[k] + begin, nbytes, 0, k != 1);
    lki_cuda_reads(note, cuda->live, sizeof *cuda->live, 0);
}

/* What is left to the update itself. */
static void touch_ranges(lki_cuda_note *note, const lki_cuda *cuda)
{
    lki_cuda_small_update *u = &note->op.update;
    int kept = 0, first = INT32_MAX, last = 0, count = 0;
    for (int i = 0; i < u->range_count; i++) {
        int begin = u->begin[i], end = u->end[i];
        if (begin >= end) continue;
        u->begin[kept] = begin;
        u->end[kept++] = end;
        if (begin < first) first = begin;
        if (end > last) last = end;
        count += end - begin;
    }
    u->range_count = kept;
    note->op.pieces = (short)((count + 1023) / 1024);
    note->touch_count = 0;
    if (6 * kept > LKI_CUDA_SMALL_TOUCHES) { /* one range around them all */
        touch_update(note, cuda, u, first, last - first);
        return;
    }
    for (int i = 0; i < kept; i++) touch_update(note, cuda, u, u->begin[i], u->end[i] - u->begin[i]);
}

/* Whether the gradients of note `t` can be used up at once by the update `u` that comes later: between them
 * nobody reads them or changes what they are made of. */
static bool may_update(const lki_cuda_small *s, int t, int u)
{
    const lki_cuda_small_op *op = &s->note[t].op;
    const lki_cuda_small_product *p = &op->product;
    const lki_cuda_touch *all = &s->note[u].touch[1]; /* the gradients */
    if (op->kind != LKI_CUDA_SMALL_TILES || p->update >= 0 || p->bias || p->relu) return false;
    if (!lies_in(p->c, sizeof(float) * (size_t)p->m * (size_t)p->n, all->begin, all->nbytes)) return false;
    if (p->sums && !lies_in(p->sums, sizeof(float) * (size_t)p->m, all->begin, all->nbytes)) return false;
    return is_free(s, t, t + 1, u);
}

/* Products get the number of their update; its place is known when all have theirs. */
static void update_at_once(const lki_cuda *cuda, lki_cuda_small *s, int u)
{
    lki_cuda_small_update *update = &s->note[u].op.update;
    for (int left = u, t = 0; left > 0; left--) {
        lki_cuda_small_product *p = &s->note[t].op.product;
        lki_cuda_small_update before = *update;
        bool moves = may_update(s, t, u) && take_gradient(update, p->c, (int64_t)p->m * p->n) &&
                     take_gradient(update, p->sums, p->m);
        if (!moves) {
            *update = before;
            t++;
            continue;
        }
        p->update = update->number;
        touch_update(&s->note[t], cuda, update, p->c - update->data[1], (int64_t)p->m * p->n);
        if (p->sums) touch_update(&s->note[t], cuda, update, p->sums - update->data[1], p->m);
        move_note(s, t, u - 1);
    }
    touch_ranges(&s->note[u], cuda);
}

/* False where there are too many groups of parameters. */
static bool join_updates(const lki_cuda *cuda, lki_cuda_small *s)
{
    int count = 0;
    for (int i = 0; i < s->count; i++) {
        if (s->note[i].op.kind != LKI_CUDA_SMALL_UPDATE) continue;
        if (count == LKI_CUDA_SMALL_UPDATES) return false;
        s->note[i].op.update.number = count++;
        update_at_once(cuda, s, i);
    }
    s->args.update_count = (short)count;
    return true;
}

/* ---- Shared memory ---- */

static size_t tile_nbytes(const lki_cuda_small_op *op)
{
    if (op->kind != LKI_CUDA_SMALL_TILES) return 0;
    size_t side = (size_t)lki_cuda_tile_side(op->product.m, op->product.n);
    return sizeof(float) * LKI_CUDA_SMALL_DEPTH * (side + 4 + side + 1);
}

static void plan_shared(lki_cuda_small *s)
{
    for (int i = 0; i < s->run_count; i++) {
        size_t nbytes = tile_nbytes(&s->op[i]);
        if (nbytes > s->shared_nbytes) s->shared_nbytes = nbytes;
    }
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

/* ---- Programs ---- */

/* The notes become ops; false where they cannot. */
static bool arrange(const lki_cuda *cuda, lki_cuda_small *s)
{
    float *losses = (float *)(s->memory + sizeof s->op);
    join_masks(s);
    if (!join_losses(cuda, s, losses) || !join_updates(cuda, s)) return false;
    delay_total(s);
    for (int i = 0; i < s->count; i++) {
        s->op[i] = s->note[i].op;
        if (s->op[i].kind == LKI_CUDA_SMALL_UPDATE) s->args.update[s->op[i].update.number] = (short)i;
    }
    for (int i = 0; i < s->count; i++)
        if (s->op[i].kind == LKI_CUDA_SMALL_TILES && s->op[i].product.update >= 0)
            s->op[i].product.update = s->args.update[s->op[i].product.update];
    s->run_count = s->count;
    while (s->run_count > 0) {
        const lki_cuda_small_op *last = &s->op[s->run_count - 1];
        if (last->kind != LKI_CUDA_SMALL_UPDATE || last->update.range_count) break;
        s->run_count--;
    }
    plan_shared(s);
    return true;
}

static lk_status fill(lki_cuda *cuda, lki_cuda_small *s, bool *fits)
{
    size_t nbytes = sizeof s->op + sizeof(float) * LKI_CUDA_SMALL_SAMPLES;
    memcpy(s->note, cuda->notes->note, sizeof *s->note * (size_t)cuda->notes->count);
    s->count = cuda->notes->count;
    LKI_CUDA(cudaMalloc((void **)&s->memory, nbytes));
    *fits = arrange(cuda, s);
    s->args.op = (const lki_cuda_small_op *)s->memory;
    s->args.op_count = s->count;
    s->args.live = cuda->live;
    s->args.faults = cuda->fault.position;
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

static void see(taken *t, const lki_cuda_step_news *news)
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

/* Plans anew where this step takes in something else than the last. */
static lk_status plan(lki_cuda *cuda, lki_cuda_small *s)
{
    taken now;
    see(&now, &s->args.news);
    if (s->is_planned && memcmp(&now, &s->seen, sizeof now) == 0) return LK_OK;
    plan_waits(cuda, s);
    s->facts = find_facts(s);
    s->seen = now;
    s->is_planned = true;
    LKI_CUDA(cudaMemcpyAsync(s->memory, s->op, sizeof s->op, cudaMemcpyHostToDevice, cuda->compute));
    return LK_OK;
}

/* One launch a phase, where blocks cannot wait for one another. */
static lk_status launch_phases(lki_cuda *cuda, const lki_cuda_small *s)
{
    int begin = -1;
    for (int i = 0; i <= s->run_count; i++) {
        if (i < s->run_count && !s->op[i].waits) continue;
        LKI_TRY(
            lki_cuda_small_launch(cuda, &s->facts, &s->args, begin, i, s->blocks, s->shared_nbytes, false));
        begin = i;
    }
    return LK_OK;
}

lk_status lki_cuda_small_replay(lki_cuda *cuda, lki_cuda_small *s, lk_generator *generator)
{
    bool matters;
    LKI_TRY(lki_cuda_collect_news(cuda, generator, &s->args.news, &matters));
    LKI_TRY(plan(cuda, s));
    s->args.waits = cuda->is_cooperative && s->wait_count;
    if (!cuda->is_cooperative) return launch_phases(cuda, s);
    s->args.arrived = cuda->arrived;
    LKI_TRY(lki_cuda_small_launch(cuda, &s->facts, &s->args, -1, s->run_count, s->blocks, s->shared_nbytes,
                                  s->args.waits));
    cuda->arrived += (unsigned)(s->wait_count * s->blocks);
    return LK_OK;
}
