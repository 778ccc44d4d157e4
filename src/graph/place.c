/* Place: every value of the arena gets an offset, so that values that are never alive at the same time share
 * memory.
 *
 * A value's life goes from the node that writes it to the last node that reads it or one of its views. Values
 * are placed from the largest to the smallest, each at the lowest offset that is free for its whole life. An
 * elementwise node writes over an input that dies there, where it can. What a node that stands aside reads
 * lives to the end. On a device, what is small altogether lies apart: calls that share no memory need not
 * wait for one another.
 *
 * That takes the square of the number of values. A program of very many, such as a loop over time, is placed
 * in its own order instead: what dies gives its bytes back, and each value takes the smallest gap that it
 * fits. */
#include "graph/graph.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, APART_NBYTES = 1 << 22, VERY_MANY = 4096 };

typedef struct placement {
    lk_value *value;
    size_t nbytes;
    bool has_given; /* place_in_order's: its bytes to the value that overwrites it */
    int before;     /* place_in_order's: the value before it that dies with it */
} placement;

static size_t aligned(size_t nbytes)
{
    return (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static bool lives_in_arena(const lk_value *value)
{
    return value->storage == LKI_STORAGE_ARENA && !(lk_op_flags(value->node->op) & LK_OP_IS_LEAF);
}

static void touch(lk_value *value, int order)
{
    lk_value *root = lki_value_root(value);
    if (root->last < order) root->last = order;
}

static int measure_lives(lk_graph *graph)
{
    int count = 0;
    lki_graph_number(graph);
    int end = graph->last ? graph->last->order + 1 : 0;
    for (lki_node *node = graph->first; node; node = node->next) {
        if (node->dead) continue;
        for (int i = 0; i < node->output_count; i++) {
            lk_value *value = node->out[i];
            if (value->storage == LKI_STORAGE_VIEW) continue;
            value->first = value->last = node->order;
            if (lives_in_arena(value)) count++;
        }
        for (int i = 0; i < node->input_count; i++)
            if (node->in[i]) touch(node->in[i], node->aside ? end : node->order);
    }
    for (int i = 0; i < graph->output_count; i++) touch(graph->outputs[i], end);
    return count;
}

/* An elementwise node reads element i before it writes element i, so it may write over an input of its own
 * shape. */
static bool may_overwrite(const lki_node *node, const lk_value *input)
{
    const lk_value *output = node->out[0];
    return (lk_op_flags(node->op) & LK_OP_IS_ELEMENTWISE) && lk_shape_equal(input->shape, output->shape) &&
           lk_dtype_nbytes(input->dtype) == lk_dtype_nbytes(output->dtype) && input->layout == output->layout;
}

static int by_size(const void *a, const void *b)
{
    const placement *left = a, *right = b;
    if (left->nbytes != right->nbytes) return left->nbytes < right->nbytes ? 1 : -1;
    return left->value->first -
           right->value->first; /* a total order: the same graph is placed the same way */
}

static bool overwrites(const lk_value *writer, const lk_value *victim)
{
    const lki_node *node = writer->node;
    bool reads_it = false;
    if (writer->first != victim->last || writer->index != 0) return false;
    for (int i = 0; i < node->input_count; i++) {
        if (!node->in[i] || lki_value_root(node->in[i]) != victim) continue;
        if (!may_overwrite(node, node->in[i])) return false;
        reads_it = true;
    }
    return reads_it;
}

static bool is_placed(const lk_value *value)
{
    return lives_in_arena(value) && value->number >= 0;
}

static bool alive_together(const lk_value *a, const lk_value *b)
{
    return a->last >= b->first && b->last >= a->first;
}

/* Whether b, already placed, forbids a its bytes. Exact aliasing is fine where one overwrites the other in
 * place. */
static bool conflicts(const placement *a, size_t offset, const placement *b)
{
    const lk_value *va = a->value, *vb = b->value;
    if (!alive_together(va, vb)) return false;
    if (offset >= vb->offset + b->nbytes || vb->offset >= offset + a->nbytes) return false;
    bool in_place = overwrites(va, vb) || overwrites(vb, va);
    return !(in_place && offset == vb->offset && lki_value_nbytes(va) == lki_value_nbytes(vb));
}

static size_t lowest_free_offset(const placement *placed, int placed_count, const placement *fresh)
{
    size_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < placed_count; i++) {
            if (!conflicts(fresh, offset, &placed[i])) continue;
            offset = placed[i].value->offset + placed[i].nbytes;
            moved = true;
        }
    }
    return offset;
}

static bool is_free(const placement *placed, int placed_count, const placement *fresh, size_t offset)
{
    for (int i = 0; i < placed_count; i++)
        if (conflicts(fresh, offset, &placed[i])) return false;
    return true;
}

/* The place of the input that was written last, where the node may write over it: those bytes are in the
 * caches. */
static size_t best_offset(const placement *placed, int placed_count, const placement *fresh)
{
    const lk_value *victim = NULL;
    const lki_node *node = fresh->value->node;
    for (int i = 0; i < node->input_count; i++) {
        const lk_value *input = node->in[i] ? lki_value_root(node->in[i]) : NULL;
        if (input && is_placed(input) && overwrites(fresh->value, input) &&
            (!victim || input->first > victim->first))
            victim = input;
    }
    if (victim && is_free(placed, placed_count, fresh, victim->offset)) return victim->offset;
    return lowest_free_offset(placed, placed_count, fresh);
}

static size_t sum_of(const placement *placements, int count)
{
    size_t nbytes = 0;
    for (int i = 0; i < count; i++) nbytes += placements[i].nbytes;
    return nbytes;
}

static void place_by_size(placement *placements, int count, bool apart, size_t *arena_nbytes)
{
    qsort(placements, (size_t)count, sizeof *placements, by_size);
    for (int i = 0; i < count; i++) placements[i].value->number = -1;
    for (int i = 0; i < count; i++) {
        size_t offset = apart ? *arena_nbytes : best_offset(placements, i, &placements[i]);
        placements[i].value->offset = offset;
        placements[i].value->number = i;
        if (offset + placements[i].nbytes > *arena_nbytes) *arena_nbytes = offset + placements[i].nbytes;
    }
}

typedef struct gap {
    size_t begin, end;
} gap;

/* The bytes below `top` that nobody has, in order of address. */
typedef struct gaps {
    gap *items;
    int count;
    size_t top, highest;
} gaps;

static void remove_gap(gaps *all, int index)
{
    memmove(&all->items[index], &all->items[index + 1],
            sizeof *all->items * (size_t)(all->count - index - 1));
    all->count--;
}

static void give_back(gaps *all, size_t begin, size_t end)
{
    int low = 0, high = all->count; /* the first gap behind it */
    while (low < high) {
        int middle = (low + high) / 2;
        if (all->items[middle].begin < begin)
            low = middle + 1;
        else
            high = middle;
    }
    bool touches_next = low < all->count && all->items[low].begin == end;
    if (low > 0 && all->items[low - 1].end == begin) {
        all->items[--low].end = end;
        if (touches_next) {
            all->items[low].end = all->items[low + 1].end;
            remove_gap(all, low + 1);
        }
    } else if (touches_next) {
        all->items[low].begin = begin;
    } else {
        memmove(&all->items[low + 1], &all->items[low], sizeof *all->items * (size_t)(all->count - low));
        all->items[low] = (gap){begin, end};
        all->count++;
    }
    if (all->items[low].end < all->top) return;
    all->top = all->items[low].begin;
    remove_gap(all, low);
}

static size_t take_gap(gaps *all, size_t nbytes)
{
    int best = -1;
    for (int i = 0; i < all->count; i++) {
        size_t room = all->items[i].end - all->items[i].begin;
        if (room >= nbytes && (best < 0 || room < all->items[best].end - all->items[best].begin)) best = i;
    }
    size_t offset = best < 0 ? all->top : all->items[best].begin;
    if (best < 0) {
        all->top += nbytes;
        if (all->top > all->highest) all->highest = all->top;
    } else if ((all->items[best].begin += nbytes) == all->items[best].end) {
        remove_gap(all, best);
    }
    return offset;
}

/* The input whose bytes it takes over, the one that was written last; NULL if there is none. */
static placement *victim_of(placement *placements, const lk_value *fresh)
{
    const lk_value *victim = NULL;
    for (int i = 0; i < fresh->node->input_count; i++) {
        lk_value *input = fresh->node->in[i] ? lki_value_root(fresh->node->in[i]) : NULL;
        if (input && lives_in_arena(input) && lki_value_nbytes(input) == lki_value_nbytes(fresh) &&
            overwrites(fresh, input) && (!victim || input->first > victim->first))
            victim = input;
    }
    return victim ? &placements[victim->number] : NULL;
}

/* `dying[t]` is the last of the values that nobody needs after instruction t, and `before` leads to the
 * others. */
static lk_status place_in_order(placement *placements, int count, size_t *arena_nbytes)
{
    int end = 0, done = 0;
    for (int i = 0; i < count; i++)
        if (placements[i].value->last >= end) end = placements[i].value->last + 1;
    int *dying = LKI_NEW_ARRAY(int, end + 1);
    gaps all = {.items = LKI_NEW_ARRAY(gap, count + 1)};
    lk_status status = dying && all.items ? LK_OK : LK_ERR_NOMEM;
    for (int i = 0; i < end && !status; i++) dying[i] = -1;
    for (int i = 0; i < count && !status; i++) {
        lk_value *value = placements[i].value;
        for (; done < value->first; done++)
            for (int k = dying[done]; k >= 0; k = placements[k].before)
                if (!placements[k].has_given)
                    give_back(&all, placements[k].value->offset,
                              placements[k].value->offset + placements[k].nbytes);
        placement *victim = victim_of(placements, value);
        if (victim) victim->has_given = true;
        value->offset = victim ? victim->value->offset : take_gap(&all, placements[i].nbytes);
        placements[i].before = dying[value->last];
        dying[value->last] = i;
    }
    *arena_nbytes = all.highest;
    lki_free(dying);
    lki_free(all.items);
    return status;
}

static placement *list_values(lk_graph *graph, int *count)
{
    placement *placements = LKI_NEW_ARRAY(placement, measure_lives(graph) + 1);
    *count = 0;
    for (lki_node *node = placements ? graph->first : NULL; node; node = node->next) {
        if (node->dead) continue;
        for (int i = 0; i < node->output_count; i++) {
            lk_value *value = node->out[i];
            if (!lives_in_arena(value)) continue;
            value->number = *count;
            placements[(*count)++] = (placement){.value = value, .nbytes = aligned(lki_value_nbytes(value))};
        }
    }
    return placements;
}

static lk_status place(lk_graph *graph, size_t apart_nbytes, size_t *arena_nbytes)
{
    int count;
    lk_status status = LK_OK;
    *arena_nbytes = 0;
    placement *placements = list_values(graph, &count);
    if (!placements) return LK_ERR_NOMEM;
    bool apart = sum_of(placements, count) <= apart_nbytes;
    if (count > VERY_MANY && !apart)
        status = place_in_order(placements, count, arena_nbytes);
    else
        place_by_size(placements, count, apart, arena_nbytes);
    lki_free(placements);
    return status;
}

/* The gradient of a weight that is written where the update finds it, and read by nobody before. */
static bool can_stand_aside(const lki_node *node)
{
    bool gradient = node->op == LK_OP_LINEAR_GRAD || node->op == LK_OP_CONV_GRAD_WEIGHT;
    if (node->dead || !gradient || node->section != LKI_SECTION_BACKWARD) return false;
    for (int i = 0; i < node->output_count; i++) {
        const lk_value *value = node->out[i];
        bool is_grad = value->storage == LKI_STORAGE_GRAD; /* which counts as a use */
        if (value->use_count > is_grad || value->is_output || (i == 0 && !is_grad)) return false;
    }
    return true;
}

/* Ranks that exchange gradients during the backward half read them there. */
static bool exchanges_early(const lk_graph *graph)
{
    for (const lki_node *node = graph->first; node; node = node->next)
        if (node->op == LK_OP_REDUCE_START) return true;
    return false;
}

static bool set_aside(lk_graph *graph, bool aside)
{
    bool any = false;
    for (lki_node *node = graph->first; node; node = node->next) {
        node->aside = aside && can_stand_aside(node);
        any = any || node->aside;
    }
    return any;
}

lk_status lki_pass_place(lk_graph *graph, size_t aside_nbytes, size_t *arena_nbytes)
{
    size_t all_nbytes = 0, apart_nbytes = aside_nbytes ? APART_NBYTES : 0;
    bool any = aside_nbytes && !exchanges_early(graph) && set_aside(graph, true);
    if (any) LKI_TRY(place(graph, apart_nbytes, &all_nbytes));
    set_aside(graph, false);
    LKI_TRY(place(graph, apart_nbytes, arena_nbytes));
    if (!any || all_nbytes > *arena_nbytes + aside_nbytes) return LK_OK;
    set_aside(graph, true);
    return place(graph, apart_nbytes, arena_nbytes);
}
