/* Sorting along one axis: each line is gathered with its places, merged, and written back. */
#include "engine/cpu/cpu.h"

#include <math.h>
#include <string.h>

typedef struct item {
    float value;
    int64_t place;
} item;

/* Whether b must stand before a, which lay before it: equals keep their order. A NaN is the largest number.
 */
static bool overtakes(float b, float a, bool descending)
{
    bool larger = isnan(b) ? !isnan(a) : b > a, smaller = isnan(a) ? !isnan(b) : b < a;
    return descending ? larger : smaller;
}

static void merge(const item *from, int64_t begin, int64_t middle, int64_t end, item *to, bool descending)
{
    int64_t left = begin, right = middle;
    for (int64_t i = begin; i < end; i++) {
        bool takes_right =
            left == middle || (right < end && overtakes(from[right].value, from[left].value, descending));
        to[i] = takes_right ? from[right++] : from[left++];
    }
}

/* Runs of 1, 2, 4, ... elements; returns the list that holds the result. */
static const item *sort_line(item *list, item *other, int64_t count, bool descending)
{
    for (int64_t run = 1; run < count; run *= 2) {
        for (int64_t begin = 0; begin < count; begin += 2 * run) {
            int64_t middle = begin + run < count ? begin + run : count;
            int64_t end = middle + run < count ? middle + run : count;
            merge(list, begin, middle, end, other, descending);
        }
        item *swapped = list;
        list = other;
        other = swapped;
    }
    return list;
}

static lk_status run_sort(const lk_call *call)
{
    const lk_sort_attr *attr = &call->attr->sort;
    lk_shape shape = call->in[0].shape;
    const float *x = call->in[0].data;
    float *values = call->out[0].data;
    int64_t *index = call->out[1].data;
    int64_t length = shape.rank ? shape.dim[attr->axis] : 1, kept = attr->count ? attr->count : length;
    int64_t stride = shape.rank ? lki_cpu_span(shape, attr->axis + 1, shape.rank) : 1;
    int64_t lines = shape.rank ? lki_cpu_span(shape, 0, attr->axis) * stride : 1;
    item *list = call->scratch;
    for (int64_t i = 0; i < lines; i++) {
        int64_t first = i / stride * length * stride + i % stride,
                to = i / stride * kept * stride + i % stride;
        for (int64_t k = 0; k < length; k++) list[k] = (item){x[first + k * stride], k};
        const item *sorted = sort_line(list, list + length, length, attr->descending);
        for (int64_t k = 0; k < kept; k++) {
            if (values) values[to + k * stride] = sorted[k].value;
            if (index) index[to + k * stride] = sorted[k].place;
        }
    }
    return LK_OK;
}

lk_status lki_cpu_prepare_sort(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    lk_shape shape = call->in[0].shape;
    if (call->in[0].dtype != LK_F32) return LK_OK;
    if (call->out[0].data && call->out[0].dtype != LK_F32) return LK_OK;
    int64_t length = shape.rank ? shape.dim[call->attr->sort.axis] : 1;
    call->scratch_nbytes = 2 * (size_t)length * sizeof(item);
    call->run = run_sort;
    return LK_OK;
}
