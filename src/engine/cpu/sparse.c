#include "engine/cpu/sparse.h"

/* Below this share of numbers that are not zero the sparse kernels win; measured on digits. */
static const double SPARSE_ENOUGH = 0.35;
enum {
    GROUP = 16 * LKI_SPARSE_VECTORS,
    LEAST_OUTPUTS = 32,
    LEAST_INPUTS = 256,
    LEAST_ROWS = 16,
    SAMPLED_ROWS = 24,
    ROWS_AT_ONCE = LKI_SPARSE_ROWS,
    VECTOR = 16
};

static bool is_worth_a_try(const lki_cpu *cpu, int64_t m, int64_t n, int64_t k)
{
    return cpu->kernels->sparse && m >= LEAST_ROWS && n >= LEAST_OUTPUTS && k >= LEAST_INPUTS && k % 4 == 0;
}

/* Floats of one thread: a list of columns and the values of each row, or four lists of rows. The kernel
 * writes whole vectors, so each of the former is a vector longer than k. */
static int64_t thread_count_of_floats(int64_t m, int64_t k)
{
    int64_t forward = (1 + LKI_SPARSE_ROWS) * (k + VECTOR), gradient = 4 * m;
    return forward > gradient ? forward : gradient;
}

size_t lki_cpu_sparse_scratch(const lki_cpu *cpu, int64_t m, int64_t n, int64_t k)
{
    if (!is_worth_a_try(cpu, m, n, k)) return 0;
    return (size_t)(k * GROUP + thread_count_of_floats(m, k) * cpu->thread_count) * sizeof(float);
}

/* What is skipped is 0 times a number. With an infinity or a NaN that product is not 0. */
static bool is_finite(const lki_cpu *cpu, const float *x, int64_t count)
{
    return cpu->kernels->magnitude(x, count) < LKI_INFINITE_BITS;
}

/* A sample of the rows tells: counting them all would cost a tenth of what there is to gain. */
static bool is_sparse(const lki_cpu *cpu, const lki_sparse *s)
{
    if (!is_worth_a_try(cpu, s->m, s->n, s->k)) return false;
    int64_t count = 0, step = (s->m + SAMPLED_ROWS - 1) / SAMPLED_ROWS, rows = 0;
    for (int64_t row = 0; row < s->m; row += step, rows++)
        count += cpu->kernels->sparse->count(s->x + row * s->k, s->k);
    return (double)count < SPARSE_ENOUGH * (double)(rows * s->k);
}

typedef struct part {
    const lki_cpu_kernels *kernels;
    const lki_sparse *s;
    float *lists;
    int64_t n0, columns;
} part;

static void forward_part(int64_t begin, int64_t end, int thread, void *context)
{
    const part *p = context;
    float *lists = p->lists + thread * thread_count_of_floats(p->s->m, p->s->k);
    int64_t last = end * ROWS_AT_ONCE < p->s->m ? end * ROWS_AT_ONCE : p->s->m;
    p->kernels->sparse->forward(p->s, begin * ROWS_AT_ONCE, last, p->n0, p->columns, (int32_t *)lists,
                                lists + p->s->k + VECTOR);
}

static void gradient_part(int64_t begin, int64_t end, int thread, void *context)
{
    const part *p = context;
    float *lists = p->lists + thread * thread_count_of_floats(p->s->m, p->s->k);
    int64_t last = end * VECTOR < p->s->k ? end * VECTOR : p->s->k;
    p->kernels->sparse->gradient(p->s, begin * VECTOR, last, p->n0, p->columns, (int32_t *)lists);
}

static void each_group(lki_cpu *cpu, lki_sparse *s, const float *w, void *scratch)
{
    float *packed = scratch;
    part p = {cpu->kernels, s, packed + s->k * GROUP, 0, 0};
    s->packed = packed;
    for (; p.n0 < s->n; p.n0 += GROUP) {
        p.columns = s->n - p.n0 < GROUP ? s->n - p.n0 : GROUP;
        if (w) {
            cpu->kernels->sparse->pack(packed, w, s->k, p.n0, p.columns);
            lki_parallel_for(cpu->pool, (s->m + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, 16, forward_part, &p);
        } else {
            lki_parallel_for(cpu->pool, (s->k + VECTOR - 1) / VECTOR, 8, gradient_part, &p);
        }
    }
}

bool lki_cpu_sparse_forward(lki_cpu *cpu, lki_sparse *s, const float *w, void *scratch)
{
    if (!is_sparse(cpu, s) || !is_finite(cpu, w, s->n * s->k)) return false;
    lki_cpu_enter(cpu, LKI_CPU_PATH_SPARSE_FORWARD);
    each_group(cpu, s, w, scratch);
    return true;
}

bool lki_cpu_sparse_gradient(lki_cpu *cpu, lki_sparse *s, void *scratch)
{
    if (!is_sparse(cpu, s) || !is_finite(cpu, s->dy, s->m * s->n)) return false;
    lki_cpu_enter(cpu, LKI_CPU_PATH_SPARSE_GRADIENT);
    each_group(cpu, s, NULL, scratch);
    return true;
}
