/* Cases of pooling and upsampling over one to three axes. */
#include "case.h"

typedef struct pool {
    lk_window window;
    lk_shape shape;
} pool;

static const pool pools[] = {
    {{.rank = 1, .kernel = {3}, .stride = {2}, .padding = {1}}, {3, {2, 3, 33}}},
    {{.rank = 1, .kernel = {4}, .stride = {3}, .padding = {2}, .dilation = {2}}, {3, {2, 3, 20}}},
    {{.rank = 2, .kernel = {2, 2}, .stride = {2, 2}}, {4, {2, 16, 8, 10}}},
    {{.rank = 2, .kernel = {2, 2}, .stride = {2, 2}}, {4, {3, 5, 7, 9}}},
    {{.rank = 2, .kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}, {4, {2, 3, 11, 8}}},
    {{.rank = 2, .kernel = {3, 2}, .stride = {1, 3}, .padding = {0, 1}, .dilation = {2, 1}},
     {4, {2, 3, 9, 13}}},
    {{.rank = 2, .kernel = {5, 4}, .stride = {5, 4}}, {4, {1, 2, 5, 4}}},
    {{.rank = 3, .kernel = {2, 2, 2}, .stride = {2, 2, 2}}, {5, {2, 4, 6, 6, 6}}},
    {{.rank = 3, .kernel = {3, 2, 2}, .stride = {2, 2, 1}, .padding = {1, 1, 1}, .dilation = {1, 2, 1}},
     {5, {1, 3, 7, 6, 5}}},
    {{.rank = 2, .kernel = {2, 2}, .stride = {2, 2}, .padding = {1, 1}}, {4, {2, 3, 6, 41}}},
    {{.rank = 3, .kernel = {2, 2, 2}, .stride = {2, 2, 2}, .padding = {1, 1, 1}, .dilation = {1, 2, 1}},
     {5, {2, 3, 5, 6, 17}}},
    {{.rank = 3, .kernel = {2, 3, 3}, .stride = {2, 3, 2}, .padding = {0, 1, 1}}, {5, {2, 17, 5, 7, 8}}},
};

/* The shape rule of PyTorch's pools: with ceil_mode a last window may hang over, but starts inside. */
static lk_shape pooled(lk_shape shape, const lk_window *w)
{
    for (int i = 0; i < w->rank; i++) {
        int64_t *dim = &shape.dim[shape.rank - w->rank + i], size = *dim;
        int64_t room = size + 2 * w->padding[i] - w->dilation[i] * (w->kernel[i] - 1) - 1;
        *dim = (room + (w->ceil_mode ? w->stride[i] - 1 : 0)) / w->stride[i] + 1;
        if (w->ceil_mode && (*dim - 1) * w->stride[i] >= size + w->padding[i]) --*dim;
    }
    return shape;
}

/* Alone and with a ReLU behind it. */
static void max_pools(lkt_case_list *list, int number, lk_window w, lk_shape shape)
{
    lk_shape out = pooled(shape, &w);
    static const lkt_fill fills[] = {LKT_NORMAL, LKT_COARSE, LKT_NORMAL, LKT_COARSE};
    for (int k = 0; k < 4; k++) {
        lkt_case *c = lkt_case_add(list, LK_OP_MAX_POOL, "%d ceil %d fill %d", number, w.ceil_mode, k);
        c->attr.pool.window = w;
        c->attr.pool.activation = k < 2 ? LK_ACTIVATION_NONE : LK_ACTIVATION_RELU;
        lkt_in_f32(c, shape, fills[k]);
        lkt_out_f32(c, out);
        lkt_out(c, LK_I32, out);
        lkt_case *backward =
            lkt_case_add(list, LK_OP_MAX_POOL_GRAD, "%d ceil %d fill %d", number, w.ceil_mode, k);
        backward->attr.pool.window = w;
        lkt_in_f32(backward, out, LKT_NORMAL);
        lkt_in_result(backward, c, 1);
        lkt_out_f32(backward, shape);
    }
}

static void avg_pools(lkt_case_list *list, int number, lk_window w, lk_shape shape)
{
    for (int i = 0; i < w.rank; i++) w.dilation[i] = 1;
    lk_shape out = pooled(shape, &w);
    for (int kind = 0; kind < 3; kind++)
        for (int backward = 0; backward < 2; backward++) {
            lkt_case *c = lkt_case_add(list, backward ? LK_OP_AVG_POOL_GRAD : LK_OP_AVG_POOL,
                                       "%d ceil %d kind %d", number, w.ceil_mode, kind);
            c->attr.pool.window = w;
            c->attr.pool.window.exclude_pad = kind == 1;
            c->attr.pool.window.divisor = kind == 2 ? 5 : 0;
            lkt_in_f32(c, backward ? out : shape, LKT_NORMAL);
            lkt_out_f32(c, backward ? shape : out);
        }
}

static void adaptive_pool(lkt_case_list *list, lk_op op, int rank, lk_shape in, lk_shape out)
{
    char from[64], to[64];
    lkt_case *c = lkt_case_add(list, op, "%s to %s", lk_shape_format(from, sizeof from, in),
                               lk_shape_format(to, sizeof to, out));
    c->attr.pool.window.rank = rank;
    lkt_in_f32(c, in, LKT_NORMAL);
    lkt_out_f32(c, out);
}

static void upsample(lkt_case_list *list, lk_op op, lk_upsample_attr attr, lk_shape in, lk_shape out)
{
    char from[64], to[64];
    lkt_case *c =
        lkt_case_add(list, op, "%s to %s mode %d align %d scale %g", lk_shape_format(from, sizeof from, in),
                     lk_shape_format(to, sizeof to, out), (int)attr.mode, attr.align_corners, attr.scale[0]);
    c->attr.upsample = attr;
    lkt_in_f32(c, in, LKT_NORMAL);
    lkt_out_f32(c, out);
}

static void adaptive_pools(lkt_case_list *list)
{
    static const struct {
        int rank;
        lk_shape in, out;
    } cases[] = {
        {1, {3, {2, 3, 17}}, {3, {2, 3, 5}}},
        {1, {3, {2, 3, 4}}, {3, {2, 3, 7}}},
        {2, {4, {2, 8, 7, 7}}, {4, {2, 8, 1, 1}}},
        {2, {4, {2, 3, 8, 10}}, {4, {2, 3, 4, 5}}},
        {2, {4, {2, 3, 7, 11}}, {4, {2, 3, 3, 4}}},
        {2, {4, {1, 2, 3, 3}}, {4, {1, 2, 3, 3}}},
        {3, {5, {1, 3, 5, 6, 7}}, {5, {1, 3, 2, 3, 4}}},
        {3, {5, {2, 16, 4, 4, 4}}, {5, {2, 16, 1, 1, 1}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        adaptive_pool(list, LK_OP_ADAPTIVE_AVG_POOL, cases[i].rank, cases[i].in, cases[i].out);
        adaptive_pool(list, LK_OP_ADAPTIVE_AVG_POOL_GRAD, cases[i].rank, cases[i].out, cases[i].in);
    }
}

static void upsamples(lkt_case_list *list)
{
    static const struct {
        lk_upsample_attr attr; /* rank and scale */
        lk_shape in, out;
    } cases[] = {
        {{.rank = 1}, {3, {2, 3, 7}}, {3, {2, 3, 19}}},
        {{.rank = 1, .scale = {1.7}}, {3, {2, 3, 7}}, {3, {2, 3, 11}}},
        {{.rank = 2}, {4, {2, 8, 5, 6}}, {4, {2, 8, 10, 12}}},
        {{.rank = 2, .scale = {2, 2}}, {4, {2, 3, 5, 6}}, {4, {2, 3, 10, 12}}},
        {{.rank = 2}, {4, {1, 3, 5, 7}}, {4, {1, 3, 9, 4}}},
        {{.rank = 2, .scale = {1.5, 2.5}}, {4, {1, 3, 5, 7}}, {4, {1, 3, 7, 17}}},
        {{.rank = 2}, {4, {1, 2, 1, 3}}, {4, {1, 2, 4, 1}}},
        {{.rank = 3}, {5, {1, 3, 3, 4, 5}}, {5, {1, 3, 6, 8, 10}}},
        {{.rank = 3, .scale = {2, 1.5, 1.5}}, {5, {2, 2, 3, 4, 3}}, {5, {2, 2, 6, 6, 4}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int kind = 0; kind < 3; kind++) {
            lk_upsample_attr attr = cases[i].attr;
            attr.mode = kind ? LK_UPSAMPLE_LINEAR : LK_UPSAMPLE_NEAREST;
            attr.align_corners = kind == 2;
            upsample(list, LK_OP_UPSAMPLE, attr, cases[i].in, cases[i].out);
            upsample(list, LK_OP_UPSAMPLE_GRAD, attr, cases[i].out, cases[i].in);
        }
}

void lkt_cases_pool(lkt_case_list *list)
{
    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++)
        for (int ceil_mode = 0; ceil_mode < 2; ceil_mode++) {
            lk_window w = pools[i].window;
            w.ceil_mode = ceil_mode;
            for (int d = 0; d < w.rank; d++)
                if (!w.dilation[d]) w.dilation[d] = 1;
            max_pools(list, (int)i, w, pools[i].shape);
            avg_pools(list, (int)i, w, pools[i].shape);
        }
    adaptive_pools(list);
    upsamples(list);
}
