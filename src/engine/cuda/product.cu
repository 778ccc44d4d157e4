/* matmul, linear and linear_grad: which product each one is, and who computes it.
 *
 * cuBLASLt has the large ones. Ours are the small ones, whose time is that of a launch, and the flat ones in
 * f32, which wait for memory whoever multiplies. The choice depends on shapes and dtypes alone. */
#include "engine/cuda/small/small.cuh"

/* Multiplications up to which our kernels take a product; and, for f32, multiplications an element moved. */
static const struct {
    lk_dtype dtype;
    int64_t most;
    int64_t flat;
} limits[] = {
    {LK_F32, (int64_t)1 << 24, 20},
    {LK_F64, (int64_t)1 << 22, 4},
    {LK_BF16, (int64_t)1 << 18, 0},
    {LK_F16, (int64_t)1 << 18, 0},
};

/* Dot products by warps: k long enough for a warp, and no more of them than pay. */
enum { DOTS_LEAST_K = 64, DOTS_MOST_K = 8192, DOTS_MOST = 1 << 15 };

static bool is_ours(const lki_cuda *cuda, const lki_cuda_product *p)
{
    const lki_cuda_shape *s = &p->shape;
    int64_t work = s->batch * s->m * s->n * s->k,
            moved = s->batch * (s->m * s->k + s->n * s->k + s->m * s->n);
    if (work == 0) return true;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        if (limits[i].dtype != p->dtype) continue;
        int64_t most = p->dtype == LK_F32 && cuda->tf32 ? limits[i].most / 4 : limits[i].most;
        return work <= most || work < limits[i].flat * moved;
    }
    return true;
}

static bool is_dots(const lki_cuda_product *p, bool with_sums)
{
    const lki_cuda_shape *s = &p->shape;
    return p->dtype == LK_F32 && s->batch == 1 && !with_sums && s->a_column == 1 && s->b_row == 1 &&
           s->k >= DOTS_LEAST_K && s->k <= DOTS_MOST_K && s->m * s->n <= DOTS_MOST;
}

/* The step of leading axis `axis` (of `axes`, counted in the result) in an operand of matrices. */
static int64_t step_of(lk_shape shape, int axis, int axes, int64_t matrix)
{
    int own = axis - (axes - (shape.rank - 2));
    if (own < 0 || shape.dim[own] == 1) return 0;
    return lki_cuda_span(shape, own + 1, shape.rank - 2) * matrix;
}

/* Leading axes of size 1 say nothing and go. */
static void add_axis(lki_cuda_shape *s, int64_t dim, int64_t a_step, int64_t b_step)
{
    if (dim == 1) return;
    s->dim[s->axes] = dim;
    s->a_step[s->axes] = a_step;
    s->b_step[s->axes++] = b_step;
}

/* Where one b serves all, the matrices of a lie one below the other: one tall product. */
static void stack(lki_cuda_shape *s, bool transpose_a)
{
    int64_t size = s->m * s->k;
    if (transpose_a) return;
    for (int i = s->axes - 1; i >= 0; i--) {
        if (s->b_step[i] != 0 || s->a_step[i] != size) return;
        size *= s->dim[i];
    }
    s->m *= s->batch;
    s->batch = 1;
    s->axes = 0;
}

static lki_cuda_shape matmul_shape(const lk_call *call)
{
    lk_shape a = call->in[0].shape, b = call->in[1].shape, c = call->out[0].shape;
    int axes = c.rank - 2;
    bool ta = call->attr->matmul.transpose_a, tb = call->attr->matmul.transpose_b;
    lki_cuda_shape s = {};
    s.m = c.dim[axes];
    s.n = c.dim[axes + 1];
    s.k = a.dim[a.rank - (ta ? 2 : 1)];
    s.batch = lki_cuda_span(c, 0, axes);
    s.a_row = ta ? 1 : s.k;
    s.a_column = ta ? s.m : 1;
    s.b_row = tb ? 1 : s.n;
    s.b_column = tb ? s.k : 1;
    for (int i = 0; i < axes; i++)
        add_axis(&s, c.dim[i], step_of(a, i, axes, s.m * s.k), step_of(b, i, axes, s.k * s.n));
    stack(&s, ta);
    return s;
}

/* y (rows, n) = x (rows, k) times w (n, k) turned; dw (n, k) = dy (rows, n) turned times x (rows, k). */
static lki_cuda_shape linear_shape(const lk_call *call)
{
    lk_shape first = call->in[0].shape, second = call->in[1].shape;
    int64_t rows = lki_cuda_span(first, 0, first.rank - 1), width = first.dim[first.rank - 1];
    lki_cuda_shape s = {};
    s.batch = 1;
    if (call->op == LK_OP_LINEAR) {
        s.m = rows;
        s.n = second.dim[0];
        s.k = width;
        s.a_row = s.k;
        s.a_column = 1;
        s.b_row = 1;
        s.b_column = s.k;
        return s;
    }
    s.m = width;
    s.n = second.dim[second.rank - 1];
    s.k = rows;
    s.a_row = 1;
    s.a_column = s.m;
    s.b_row = s.n;
    s.b_column = 1;
    return s;
}

static lki_cuda_factors factors_of(const lk_call *call, lk_dtype dtype)
{
    lki_cuda_factors f = {};
    f.a = call->in[0].data;
    f.b = call->in[1].data;
    f.c = call->out[0].data;
    f.wide_c = call->out[0].dtype != dtype;
    if (call->op == LK_OP_LINEAR) {
        f.bias = lki_cuda_in<void>(call, 2);
        f.wide_bias = f.bias && call->in[2].dtype != dtype;
        f.relu = call->attr->linear.activation == LK_ACTIVATION_RELU;
    }
    if (call->op == LK_OP_LINEAR_GRAD && call->attr->linear.wants_bias) {
        f.sums = lki_cuda_out<void>(call, 1);
        f.wide_sums = f.sums && call->out[1].dtype != dtype;
    }
    return f;
}

/* What a step that is one kernel may still multiply, and read of b again for each row of a. */
enum { MOST_NOTED = 1 << 24, MOST_READ = 1 << 20, MOST_ROWS = 512, SHORT_K = 64 };

static lki_cuda_note *note_kind(lki_cuda *cuda, const lki_cuda_product *p, const lki_cuda_factors *f)
{
    const lki_cuda_shape *s = &p->shape;
    bool by_rows = s->m <= MOST_ROWS && s->m * s->n * s->k <= MOST_READ && s->a_column == 1 && !f->sums;
    int64_t down = LKI_CUDA_SMALL_SIDE * LKI_CUDA_SMALL_DOWN,
            across = LKI_CUDA_SMALL_SIDE * LKI_CUDA_SMALL_ACROSS;
    if (p->way == LKI_CUDA_DOTS && by_rows) return lki_cuda_take_note(cuda, LKI_CUDA_SMALL_DOTS_ROW, 1, s->m);
    if (p->way == LKI_CUDA_DOTS)
        return lki_cuda_take_note(cuda, LKI_CUDA_SMALL_DOTS_TILE, 1,
                                  (s->m + down - 1) / down * ((s->n + across - 1) / across));
    if (by_rows && s->k <= SHORT_K) return lki_cuda_take_note(cuda, LKI_CUDA_SMALL_ROW, 1, s->m);
    int m = (int)s->m, n = (int)s->n;
    return lki_cuda_take_note(cuda, LKI_CUDA_SMALL_TILES, 1,
                              lki_cuda_tile_count(m, n, lki_cuda_tile_side(m, n)));
}

/* For a step that is one kernel. */
static void take_note(lki_cuda *cuda, const lki_cuda_product *p, const lki_cuda_factors *f)
{
    const lki_cuda_shape *s = &p->shape;
    int64_t work = s->m * s->n * s->k;
    bool in_order = (p->way == LKI_CUDA_TILES && p->parts <= 1) ||
                    (p->way == LKI_CUDA_THIN && p->thin == LKI_CUDA_TINY && p->parts <= 1);
    bool fits = p->dtype == LK_F32 && s->batch == 1 && f->c && (p->way == LKI_CUDA_DOTS || in_order);
    lki_cuda_note *note = fits && work > 0 && work <= MOST_NOTED ? note_kind(cuda, p, f) : NULL;
    if (!note) return;
    lki_cuda_small_product *o = &note->op.product;
    bool by_rows = note->op.kind == LKI_CUDA_SMALL_DOTS_ROW || note->op.kind == LKI_CUDA_SMALL_ROW;
    size_t size = sizeof(float), k = (size_t)s->k, m = (size_t)s->m, n = (size_t)s->n;
    *o = (lki_cuda_small_product){(const float *)f->a,
                                  (const float *)f->b,
                                  (const float *)f->bias,
                                  (float *)f->c,
                                  (float *)f->sums,
                                  NULL,
                                  NULL,
                                  (int)s->m,
                                  (int)s->n,
                                  (int)s->k,
                                  (int)s->a_row,
                                  (int)s->a_column,
                                  (int)s->b_row,
                                  (int)s->b_column,
                                  f->relu,
                                  -1,
                                  -1};
    lki_cuda_reads(note, f->a, size * m * k, by_rows ? size * k : 0);
    lki_cuda_reads(note, f->b, size * k * n, 0);
    lki_cuda_reads(note, f->bias, size * n, 0);
    lki_cuda_writes(note, f->c, size * m * n, by_rows ? size * n : 0);
    lki_cuda_writes(note, f->sums, size * m, 0);
}

static lk_status multiply(lki_cuda *cuda, const lk_call *call)
{
    lki_cuda_product *p = (lki_cuda_product *)call->state;
    lki_cuda_factors f = factors_of(call, p->dtype);
    take_note(cuda, p, &f);
    if (p->way == LKI_CUDA_LT && lki_cuda_lt_fits(p, &f)) return lki_cuda_run_lt(cuda, p, &f, call->scratch);
    if (p->way == LKI_CUDA_THIN && lki_cuda_thin_fits(p, &f))
        return lki_cuda_run_thin(cuda, p, &f, call->scratch);
    if (p->way == LKI_CUDA_DOTS) return lki_cuda_run_dots(cuda, &p->shape, &f);
    return lki_cuda_run_tiles(cuda, p, &f, call->scratch);
}

static lk_status run_product(const lk_call *call)
{
    lki_cuda *cuda = lki_cuda_of(call);
    cudaStream_t before;
    LKI_TRY(lki_cuda_begin_aside(cuda, call, &before));
    lk_status status = multiply(cuda, call);
    lki_cuda_end_aside(cuda, before);
    return status;
}

static void free_product(void *state)
{
    lki_cuda_free_lt(&((lki_cuda_product *)state)->lt);
    lki_host->free(state);
}

static void count_entry(lki_cuda *cuda, const lki_cuda_product *p)
{
    lki_cuda_path path = LKI_CUDA_PATH_TILES;
    if (p->way == LKI_CUDA_DOTS) path = LKI_CUDA_PATH_DOTS;
    if (p->way == LKI_CUDA_LT) path = LKI_CUDA_PATH_LT;
    if (p->way == LKI_CUDA_THIN)
        path = p->thin == LKI_CUDA_TINY          ? LKI_CUDA_PATH_TINY
               : p->thin == LKI_CUDA_THIN_OUT    ? LKI_CUDA_PATH_THIN_OUT
               : p->thin == LKI_CUDA_THIN_WEIGHT ? LKI_CUDA_PATH_THIN_WEIGHT
                                                 : LKI_CUDA_PATH_THIN_IN;
    cuda->paths[path].entered++;
}

static lk_status choose_way(lki_cuda *cuda, lk_call *call, lki_cuda_product *p, bool with_sums)
{
    lki_cuda_factors f = factors_of(call, p->dtype);
    lki_cuda_plan_tiles(cuda, p, with_sums, &call->scratch_nbytes);
    p->way = is_dots(p, with_sums) && is_ours(cuda, p) ? LKI_CUDA_DOTS : LKI_CUDA_TILES;
    if (lki_cuda_plan_thin(cuda, p, with_sums, &call->scratch_nbytes)) {
        p->way = LKI_CUDA_THIN;
        return LK_OK;
    }
    if (is_ours(cuda, p) || !f.c) return LK_OK;
    bool found;
    LKI_TRY(lki_cuda_plan_lt(cuda, p, &f, &found));
    if (!found) return LK_OK;
    p->way = LKI_CUDA_LT;
    size_t nbytes = lki_cuda_lt_scratch_nbytes(p);
    if (nbytes > call->scratch_nbytes) call->scratch_nbytes = nbytes;
    return LK_OK;
}

lk_status lki_cuda_prepare_product(lki_cuda *cuda, lk_call *call)
{
    LKI_TRY(lki_cuda_check_factors(call, "product"));
    lki_cuda_product *p = (lki_cuda_product *)lki_cuda_new_state(call, sizeof *p);
    if (!p) return LK_ERR_NOMEM;
    call->free_state = free_product;
    call->run = run_product;
    p->dtype = call->in[0].dtype;
    p->shape = call->op == LK_OP_MATMUL ? matmul_shape(call) : linear_shape(call);
    bool with_sums = call->op == LK_OP_LINEAR_GRAD && call->attr->linear.wants_bias;
    LKI_TRY(choose_way(cuda, call, p, with_sums));
    count_entry(cuda, p);
    return LK_OK;
}
