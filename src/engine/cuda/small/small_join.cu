/* The notes of a recorded step become the ops of a small program: fewer than they were, where one does what
 * several were noted for. */
#include "engine/cuda/small/small_program.cuh"

#include <string.h>

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

static bool depend(const lki_cuda_note *before, const lki_cuda_note *after)
{
    for (int i = 0; i < before->touch_count; i++)
        for (int j = 0; j < after->touch_count; j++)
            if (lki_cuda_meet(&before->touch[i], &after->touch[j])) return true;
    return false;
}

/* Whether note `which` touches nothing that the notes begin..end - 1 do. */
static bool is_free(const lki_cuda_small *s, int which, int begin, int end)
{
    for (int i = begin; i < end; i++)
        if (i != which && depend(&s->note[i], &s->note[which])) return false;
    return true;
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
        if (u->data[k]) (k == 1 ? lki_cuda_reads : lki_cuda_writes)(note, u->data[k] + begin, nbytes, 0);
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

/* ---- All of it ---- */

bool lki_cuda_small_join(const lki_cuda *cuda, lki_cuda_small *s)
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
    s->args.run_count = s->count;
    while (s->args.run_count > 0) {
        const lki_cuda_small_op *last = &s->op[s->args.run_count - 1];
        if (last->kind != LKI_CUDA_SMALL_UPDATE || last->update.range_count) break;
        s->args.run_count--;
    }
    return true;
}
