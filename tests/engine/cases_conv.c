/* Cases of convolutions in one to three dimensions, with their gradients, and of transposed ones. */
#include "case.h"

#include <math.h>

typedef struct conv {
    int64_t batch, in, out, groups;
    lk_window window; /* kernel and what differs from stride 1, padding 0, dilation 1 */
    int64_t size[3];
} conv;

static const conv convs[] = {
    {2, 3, 4, 1, {.rank = 1, .kernel = {3}}, {19}},
    {2, 4, 6, 2, {.rank = 1, .kernel = {5}, .stride = {2}, .padding = {3}, .dilation = {2}}, {33}},
    {1, 16, 16, 16, {.rank = 1, .kernel = {3}, .padding = {1}}, {67}},
    {1, 1, 1, 1, {.rank = 1, .kernel = {1}}, {1}},
    {2, 1, 32, 1, {.rank = 2, .kernel = {3, 3}}, {28, 28}},
    {2, 16, 32, 1, {.rank = 2, .kernel = {3, 3}, .padding = {1, 1}}, {9, 11}},
    {2, 3, 8, 1, {.rank = 2, .kernel = {5, 3}, .stride = {2, 1}, .padding = {2, 0}}, {13, 10}},
    {3, 5, 7, 1, {.rank = 2, .kernel = {1, 1}}, {7, 5}},
    {2, 8, 8, 8, {.rank = 2, .kernel = {3, 3}, .padding = {1, 1}}, {9, 9}},
    {2,
     4,
     6,
     2,
     {.rank = 2, .kernel = {2, 3}, .stride = {3, 2}, .padding = {1, 2}, .dilation = {1, 2}},
     {11, 12}},
    {1, 6, 9, 3, {.rank = 2, .kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}, {8, 8}},
    {4, 20, 16, 1, {.rank = 2, .kernel = {4, 4}, .stride = {2, 2}, .padding = {1, 1}}, {8, 8}},
    {2, 3, 8, 1, {.rank = 3, .kernel = {2, 2, 2}}, {8, 8, 8}},
    {1, 3, 4, 1, {.rank = 3, .kernel = {3, 2, 3}, .padding = {1, 0, 1}}, {5, 6, 7}},
    {2,
     4,
     4,
     2,
     {.rank = 3, .kernel = {2, 3, 2}, .stride = {2, 1, 2}, .padding = {1, 1, 0}, .dilation = {1, 2, 2}},
     {5, 7, 6}},
    {2, 6, 14, 2, {.rank = 3, .kernel = {2, 2, 2}, .stride = {2, 2, 2}, .padding = {1, 1, 1}}, {5, 6, 32}},
    {1,
     3,
     4,
     1,
     {.rank = 3, .kernel = {2, 3, 2}, .stride = {1, 2, 2}, .padding = {1, 2, 1}, .dilation = {2, 2, 1}},
     {6, 7, 15}},
    {1, 16, 16, 1, {.rank = 3, .kernel = {3, 3, 3}, .padding = {1, 1, 1}}, {6, 5, 4}},
    {4, 3, 6, 1, {.rank = 3, .kernel = {2, 2, 2}, .stride = {2, 2, 2}, .padding = {1, 1, 1}}, {41, 39, 40}},
};

static lk_window complete(const conv *v)
{
    lk_window window = v->window;
    window.groups = v->groups;
    for (int i = 0; i < window.rank; i++) {
        if (!window.stride[i]) window.stride[i] = 1;
        if (!window.dilation[i]) window.dilation[i] = 1;
    }
    return window;
}

static lk_shape shape_of(int64_t first, int64_t second, const int64_t *rest, int rank)
{
    lk_shape shape = LK_SHAPE(first, second);
    for (int i = 0; i < rank; i++) shape.dim[shape.rank++] = rest[i];
    return shape;
}

/* What a convolution gives along each axis, and what a transposed one does. */
static void sizes_of(const lk_window *w, const int64_t *in, int64_t *out, bool transposed)
{
    for (int i = 0; i < w->rank; i++) {
        int64_t reach = w->dilation[i] * (w->kernel[i] - 1) + 1;
        out[i] = transposed ? (in[i] - 1) * w->stride[i] - 2 * w->padding[i] + reach + w->output_padding[i]
                            : (in[i] + 2 * w->padding[i] - reach) / w->stride[i] + 1;
    }
}

/* Sums of `terms` products of normal numbers are about sqrt(terms) large, and so are their errors, a few 1e-6
 * of that also where Winograd's algorithm is used, whatever is left of the sum itself. */
static double tolerance_of(int64_t terms)
{
    return 1e-5 * fmax(1, sqrt((double)terms) / 2);
}

static void add_operands(lkt_case *c, const lk_window *window, lk_shape a, lk_shape b, lk_shape out,
                         int64_t terms)
{
    c->attr.conv.window = *window;
    c->tolerance = tolerance_of(terms);
    lkt_in_f32(c, a, LKT_NORMAL);
    lkt_in_f32(c, b, LKT_NORMAL);
    lkt_out_f32(c, out);
}

static void add_bias(lkt_case *c, int64_t channels)
{
    c->keeps_f32[2] = true;
    if (channels)
        lkt_in_f32(c, LK_SHAPE(channels), LKT_NORMAL);
    else
        lkt_in_absent(c);
}

static void straight(lkt_case_list *list, int number, const conv *v)
{
    lk_window w = complete(v);
    int64_t out_size[3] = {0}, kernel = 1;
    sizes_of(&w, v->size, out_size, false);
    for (int i = 0; i < w.rank; i++) kernel *= w.kernel[i];
    lk_shape x = shape_of(v->batch, v->in, v->size, w.rank), y = shape_of(v->batch, v->out, out_size, w.rank);
    lk_shape weight = shape_of(v->out, v->in / v->groups, w.kernel, w.rank);
    for (int bias = 0; bias < 2; bias++)
        for (int activation = 0; activation < 2; activation++) {
            lkt_case *c =
                lkt_case_add(list, LK_OP_CONV, "%d bias %d activation %d", number, bias, activation);
            add_operands(c, &w, x, weight, y, weight.dim[1] * kernel);
            add_bias(c, bias ? v->out : 0);
            c->attr.conv.activation = (lk_activation)activation;
        }
    add_operands(lkt_case_add(list, LK_OP_CONV_GRAD_INPUT, "%d", number), &w, y, weight, x,
                 v->out / v->groups * kernel);
    for (int bias = 0; bias < 2; bias++) {
        lkt_case *c = lkt_case_add(list, LK_OP_CONV_GRAD_WEIGHT, "%d bias %d", number, bias);
        add_operands(c, &w, y, x, weight, lk_shape_count(y) / v->out);
        lkt_out_f32(c, LK_SHAPE(v->out));
        c->attr.conv.wants_bias = bias;
        c->unwanted[1] = !bias;
    }
}

static void transposed(lkt_case_list *list, int number, const conv *v, bool extra)
{
    lk_window w = complete(v);
    int64_t in_size[3] = {0}, out_size[3] = {0}, kernel = 1;
    for (int i = 0; i < w.rank; i++) {
        in_size[i] = (v->size[i] + 1) / 2;
        w.output_padding[i] = extra && w.stride[i] > 1;
        kernel *= w.kernel[i];
    }
    sizes_of(&w, in_size, out_size, true);
    for (int i = 0; i < w.rank; i++)
        if (out_size[i] < 1) return;
    lk_shape x = shape_of(v->batch, v->in, in_size, w.rank), y = shape_of(v->batch, v->out, out_size, w.rank);
    lk_shape weight = shape_of(v->in, v->out / v->groups, w.kernel, w.rank);
    for (int bias = 0; bias < 2; bias++) {
        lkt_case *c = lkt_case_add(list, LK_OP_CONV_TRANSPOSE, "%d extra %d bias %d", number, extra, bias);
        add_operands(c, &w, x, weight, y, v->in / v->groups * kernel);
        add_bias(c, bias ? v->out : 0);
    }
}

void lkt_cases_conv(lkt_case_list *list)
{
    for (size_t i = 0; i < sizeof convs / sizeof *convs; i++) {
        straight(list, (int)i, &convs[i]);
        transposed(list, (int)i, &convs[i], false);
        transposed(list, (int)i, &convs[i], true);
    }
}
