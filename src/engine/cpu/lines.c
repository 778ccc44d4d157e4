/* Ops along the lines of one axis: running sums and products, and elements by their numbers. */
#include "engine/cpu/cpu.h"

#include "base/status.h"

#include <string.h>

/* ---- Running sums and products ---- */

enum { WIDTH = 256 }; /* so many neighbouring lines are walked along at once */

/* x as (outer, length, inner). */
typedef struct lines {
    const lk_call *call;
    int64_t length, inner, pieces; /* pieces of at most WIDTH lines */
} lines;

/* Piece i: the lines from `first` on of slab `slab`. */
static void scan_piece(const lines *l, int64_t slab, int64_t first)
{
    double total[WIDTH];
    const lk_scan_attr *attr = &l->call->attr->scan;
    bool multiplies = l->call->op == LK_OP_CUMPROD;
    int64_t count = l->inner - first < WIDTH ? l->inner - first : WIDTH;
    for (int64_t i = 0; i < count; i++) total[i] = multiplies ? 1 : 0;
    for (int64_t k = 0; k < l->length; k++) {
        int64_t at = (slab * l->length + (attr->reverse ? l->length - 1 - k : k)) * l->inner + first;
        const float *x = lki_cpu_in(l->call, 0) + at;
        float *y = lki_cpu_out(l->call, 0) + at;
        if (multiplies)
            for (int64_t i = 0; i < count; i++) y[i] = (float)(total[i] *= x[i]);
        else
            for (int64_t i = 0; i < count; i++) y[i] = (float)(total[i] += x[i]);
    }
}

static void scan_range(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const lines *l = context;
    for (int64_t i = begin; i < end; i++) scan_piece(l, i / l->pieces, i % l->pieces * WIDTH);
}

static lk_status run_scan(const lk_call *call)
{
    lk_shape shape = call->in[0].shape;
    int axis = call->attr->scan.axis;
    lines l = {.call = call, .length = shape.dim[axis], .inner = lki_cpu_span(shape, axis + 1, shape.rank)};
    l.pieces = (l.inner + WIDTH - 1) / WIDTH;
    int64_t size = l.length * (l.inner < WIDTH ? l.inner : WIDTH);
    lki_parallel_for(lki_cpu_of(call)->pool, lki_cpu_span(shape, 0, axis) * l.pieces,
                     LKI_CPU_GRAIN / (size + 1) + 1, scan_range, &l);
    return LK_OK;
}

lk_status lki_cpu_prepare_scan(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (lki_cpu_all_f32(call, 0) && call->in[0].shape.rank > 0) call->run = run_scan;
    return LK_OK;
}

/* ---- Elements by their numbers ---- */

/* The index as (outer, length, inner) beside the tensor that it points into, whose other dimensions may be
 * larger. Slabs of different `outer` touch different elements, so threads take slabs, and within a slab
 * numbers are added in their order. */
typedef struct places {
    const lk_call *call;
    const int64_t *index;
    lk_shape shape, whole;
    int axis;
    int64_t outer, length, inner, stride; /* stride: of the axis in the whole tensor */
    bool is_flat;                         /* the dimensions behind the axis are the same */
} places;

static places places_of(const lk_call *call, lk_shape whole)
{
    int axis = call->attr->gather.axis;
    lk_shape shape = call->in[1].shape;
    places p = {.call = call, .index = call->in[1].data, .shape = shape, .whole = whole, .axis = axis};
    p.outer = lki_cpu_span(shape, 0, axis);
    p.length = shape.dim[axis];
    p.inner = lki_cpu_span(shape, axis + 1, shape.rank);
    p.stride = lki_cpu_span(whole, axis + 1, whole.rank);
    p.is_flat = true;
    for (int i = axis + 1; i < shape.rank; i++) p.is_flat = p.is_flat && shape.dim[i] == whole.dim[i];
    return p;
}

static lk_status check_index(const places *p)
{
    int64_t count = p->outer * p->length * p->inner, size = p->whole.dim[p->axis];
    for (int64_t i = 0; i < count; i++)
        if (p->index[i] < 0 || p->index[i] >= size)
            return lki_fail(LK_ERR_RANGE, "index %lld at position %lld is outside of 0..%lld",
                            (long long)p->index[i], (long long)i, (long long)size - 1);
    return LK_OK;
}

/* Where element i of the index's dimensions from `begin` to before `end` lies in those of the whole. */
static int64_t offset_of(const places *p, int begin, int end, int64_t i)
{
    int64_t offset = 0, stride = 1;
    for (int k = end - 1; k >= begin; k--) {
        offset += i % p->shape.dim[k] * stride;
        i /= p->shape.dim[k];
        stride *= p->whole.dim[k];
    }
    return offset;
}

static void gather_row(float *out, const float *x, const int64_t *index, const places *p)
{
    for (int64_t j = 0; j < p->inner; j++)
        out[j] = x[index[j] * p->stride + (p->is_flat ? j : offset_of(p, p->axis + 1, p->shape.rank, j))];
}

static void scatter_row(float *out, const float *from, const int64_t *index, const places *p, bool adds)
{
    for (int64_t j = 0; j < p->inner; j++) {
        float *to =
            &out[index[j] * p->stride + (p->is_flat ? j : offset_of(p, p->axis + 1, p->shape.rank, j))];
        *to = adds ? *to + from[j] : from[j];
    }
}

static void move_slabs(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const places *p = context;
    lk_op op = p->call->op;
    for (int64_t o = begin; o < end; o++) {
        int64_t base = offset_of(p, 0, p->axis, o) * p->whole.dim[p->axis] * p->stride;
        for (int64_t k = 0; k < p->length; k++) {
            int64_t at = (o * p->length + k) * p->inner;
            if (op == LK_OP_GATHER)
                gather_row(lki_cpu_out(p->call, 0) + at, lki_cpu_in(p->call, 0) + base, p->index + at, p);
            else
                scatter_row(lki_cpu_out(p->call, 0) + base,
                            lki_cpu_in(p->call, op == LK_OP_GATHER_GRAD ? 0 : 2) + at, p->index + at, p,
                            op != LK_OP_SCATTER);
        }
    }
}

static lk_status run_places(const lk_call *call)
{
    places p = places_of(call, call->op == LK_OP_GATHER ? call->in[0].shape : call->out[0].shape);
    LKI_TRY(check_index(&p));
    size_t nbytes = lk_tensor_nbytes(&call->out[0]);
    if (call->op == LK_OP_GATHER_GRAD) memset(call->out[0].data, 0, nbytes);
    bool copies = call->op == LK_OP_SCATTER || call->op == LK_OP_SCATTER_ADD;
    if (copies && call->out[0].data != call->in[0].data) memcpy(call->out[0].data, call->in[0].data, nbytes);
    lki_parallel_for(lki_cpu_of(call)->pool, p.outer, LKI_CPU_GRAIN / 4 / (p.length * p.inner + 1) + 1,
                     move_slabs, &p);
    return LK_OK;
}

lk_status lki_cpu_prepare_places(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (lki_cpu_all_f32(call, 1u << 1) && call->in[1].dtype == LK_I64 && call->in[1].shape.rank > 0)
        call->run = run_places;
    return LK_OK;
}
