/* Cases of the ops that move data, and of gather and embedding. */
#include "case.h"

static void expands(lkt_case_list *list)
{
    static const lk_shape shapes[][2] = {
        {{0, {0}}, {2, {3, 19}}},      {{1, {19}}, {2, {3, 19}}},
        {{2, {3, 1}}, {2, {3, 19}}},   {{3, {2, 1, 5}}, {3, {2, 33, 5}}},
        {{2, {1, 1}}, {3, {4, 5, 6}}}, {{4, {1, 3, 1, 1}}, {4, {8, 3, 16, 17}}},
        {{1, {7}}, {1, {7}}},          {{2, {1, 3}}, {2, {0, 3}}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char from[64], to[64];
        lkt_case *c =
            lkt_case_add(list, LK_OP_EXPAND, "%s to %s", lk_shape_format(from, sizeof from, shapes[i][0]),
                         lk_shape_format(to, sizeof to, shapes[i][1]));
        lkt_in_f32(c, shapes[i][0], LKT_NORMAL);
        lkt_out_f32(c, shapes[i][1]);
    }
}

static void permutes(lkt_case_list *list)
{
    static const struct {
        lk_shape shape;
        int order[4];
    } cases[] = {
        {{2, {33, 17}}, {1, 0}},
        {{2, {128, 65}}, {1, 0}},
        {{3, {2, 19, 7}}, {0, 2, 1}},
        {{3, {5, 3, 19}}, {2, 0, 1}},
        {{3, {5, 3, 19}}, {2, 1, 0}},
        {{4, {2, 3, 4, 5}}, {0, 2, 3, 1}},
        {{4, {2, 3, 4, 5}}, {0, 3, 1, 2}},
        {{4, {2, 8, 4, 16}}, {0, 2, 1, 3}},
        {{4, {2, 3, 4, 5}}, {3, 2, 1, 0}},
        {{3, {2, 3, 4}}, {0, 1, 2}},
        {{2, {0, 3}}, {1, 0}},
    };
    static const lk_dtype dtypes[] = {LK_F32, LK_I64};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k < 2; k++) {
            char text[64];
            lk_shape out = cases[i].shape;
            lkt_case *c = lkt_case_add(list, LK_OP_PERMUTE, "%zu %s %s", i, lk_dtype_name(dtypes[k]),
                                       lk_shape_format(text, sizeof text, out));
            for (int d = 0; d < out.rank; d++) {
                c->attr.permute.order[d] = cases[i].order[d];
                out.dim[d] = cases[i].shape.dim[cases[i].order[d]];
            }
            lkt_in(c, dtypes[k], cases[i].shape, LKT_COARSE);
            lkt_out(c, dtypes[k], out);
        }
}

static void slices(lkt_case_list *list)
{
    static const struct {
        lk_shape shape;
        int64_t begin[3], end[3], step[3];
    } cases[] = {
        {{1, {67}}, {3}, {50}, {1}},
        {{1, {67}}, {1}, {67}, {5}},
        {{2, {9, 33}}, {2, 0}, {7, 33}, {1, 1}},
        {{2, {9, 33}}, {0, 5}, {9, 22}, {1, 1}},
        {{2, {9, 33}}, {1, 2}, {9, 31}, {2, 3}},
        {{3, {4, 5, 19}}, {0, 1, 0}, {4, 4, 19}, {1, 1, 1}},
        {{3, {4, 5, 19}}, {1, 0, 3}, {4, 5, 17}, {2, 4, 1}},
        {{2, {9, 33}}, {4, 0}, {4, 33}, {1, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lk_shape out = cases[i].shape;
        for (int d = 0; d < out.rank; d++)
            out.dim[d] = (cases[i].end[d] - cases[i].begin[d] + cases[i].step[d] - 1) / cases[i].step[d];
        for (int backward = 0; backward < 2; backward++) {
            lkt_case *c = lkt_case_add(list, backward ? LK_OP_SLICE_GRAD : LK_OP_SLICE, "%zu", i);
            for (int d = 0; d < out.rank; d++) {
                c->attr.slice.begin[d] = cases[i].begin[d];
                c->attr.slice.end[d] = cases[i].end[d];
                c->attr.slice.step[d] = cases[i].step[d];
            }
            lkt_in_f32(c, backward ? out : cases[i].shape, LKT_NORMAL);
            lkt_out_f32(c, backward ? cases[i].shape : out);
        }
    }
}

static void concats(lkt_case_list *list)
{
    static const lk_dtype dtypes[] = {LK_F32, LK_I64};
    for (int axis = 0; axis < 3; axis++)
        for (int parts = 1; parts <= LKT_MAX_INPUTS; parts += axis + 1)
            for (int k = 0; k < 2; k++) {
                lkt_case *c = lkt_case_add(list, LK_OP_CONCAT, "%d parts of %s along %d", parts,
                                           lk_dtype_name(dtypes[k]), axis);
                c->attr.axis.axis = axis;
                lk_shape shape = LK_SHAPE(3, 4, 5), out = shape;
                out.dim[axis] = 0;
                for (int i = 0; i < parts; i++) {
                    shape.dim[axis] = i == 1 ? 0 : 2 * i + 1; /* one of them is empty */
                    out.dim[axis] += shape.dim[axis];
                    lkt_in(c, dtypes[k], shape, LKT_COARSE);
                }
                lkt_out(c, dtypes[k], out);
            }
}

static void pads(lkt_case_list *list)
{
    static const struct {
        lk_shape shape;
        int64_t begin[5], end[5];
    } cases[] = {
        {{3, {2, 3, 19}}, {0, 0, 3}, {0, 0, 2}},
        {{4, {2, 3, 5, 17}}, {0, 0, 1, 2}, {0, 0, 3, 0}},
        {{4, {1, 2, 8, 8}}, {0, 0, 1, 1}, {0, 0, 1, 1}},
        {{5, {1, 2, 4, 5, 6}}, {0, 0, 1, 2, 3}, {0, 0, 3, 0, 1}},
        {{3, {2, 3, 4}}, {0, 0, 0}, {0, 0, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int mode = LK_PAD_CONSTANT; mode <= LK_PAD_REPLICATE; mode++)
            for (int backward = 0; backward < 2; backward++) {
                lkt_case *c =
                    lkt_case_add(list, backward ? LK_OP_PAD_GRAD : LK_OP_PAD, "%zu mode %d", i, mode);
                lk_shape out = cases[i].shape;
                for (int d = 0; d < out.rank; d++) {
                    c->attr.pad.before[d] = cases[i].begin[d];
                    c->attr.pad.after[d] = cases[i].end[d];
                    out.dim[d] += cases[i].begin[d] + cases[i].end[d];
                }
                c->attr.pad.mode = (lk_pad_mode)mode;
                c->attr.pad.value = 0.5;
                lkt_in_f32(c, backward ? out : cases[i].shape, LKT_NORMAL);
                lkt_out_f32(c, backward ? cases[i].shape : out);
            }
}

static void gathers(lkt_case_list *list)
{
    lk_shape shape = LK_SHAPE(4, 5, 19);
    for (int axis = 0; axis < 3; axis++)
        for (int backward = 0; backward < 2; backward++) {
            lk_shape index = LK_SHAPE(3, 4, 17);
            index.dim[axis] = 23;
            lkt_case *c = lkt_case_add(list, backward ? LK_OP_GATHER_GRAD : LK_OP_GATHER, "along %d", axis);
            c->attr.gather.axis = axis;
            lkt_in_f32(c, backward ? index : shape, LKT_NORMAL);
            lkt_in_index(c, index, shape.dim[axis]);
            lkt_out_f32(c, backward ? shape : index);
        }
}

static void embeddings(lkt_case_list *list)
{
    static const int64_t widths[] = {1, 3, 16, 67};
    for (int i = 0; i < 4; i++)
        for (int padding = -1; padding < 3; padding += 3)
            for (int backward = 0; backward < 2; backward++) {
                lk_shape weight = LK_SHAPE(11, widths[i]), index = LK_SHAPE(3, 7),
                         out = LK_SHAPE(3, 7, widths[i]);
                lkt_case *c = lkt_case_add(list, backward ? LK_OP_EMBEDDING_GRAD : LK_OP_EMBEDDING,
                                           "width %lld padding %d", (long long)widths[i], padding);
                c->attr.embedding.padding_index = padding;
                lkt_in_f32(c, backward ? out : weight, LKT_NORMAL);
                lkt_in_index(c, index, 11);
                lkt_out_f32(c, backward ? weight : out);
            }
    lkt_case *c = lkt_case_add(list, LK_OP_EMBEDDING, "of nothing");
    c->attr.embedding.padding_index = -1;
    lkt_in_f32(c, LK_SHAPE(11, 3), LKT_NORMAL);
    lkt_in_index(c, LK_SHAPE(0), 11);
    lkt_out_f32(c, LK_SHAPE(0, 3));
    c = lkt_case_add(list, LK_OP_EMBEDDING_GRAD, "of nothing");
    c->attr.embedding.padding_index = -1;
    lkt_in_f32(c, LK_SHAPE(0, 3), LKT_NORMAL);
    lkt_in_index(c, LK_SHAPE(0), 11);
    lkt_out_f32(c, LK_SHAPE(11, 3));
}

/* Without layouts of its own an engine sees a reorder from row-major to row-major. */
static void reorders(lkt_case_list *list)
{
    lkt_case *c = lkt_case_add(list, LK_OP_REORDER, "row-major");
    lkt_in_f32(c, LK_SHAPE(2, 3, 4, 5), LKT_NORMAL);
    lkt_out_f32(c, LK_SHAPE(2, 3, 4, 5));
}

void lkt_cases_movement(lkt_case_list *list)
{
    expands(list);
    permutes(list);
    slices(list);
    concats(list);
    pads(list);
    gathers(list);
    embeddings(list);
    reorders(list);
}
