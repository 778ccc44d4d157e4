#include "cli/bench/sweep.h"
#include "cli/bench/report.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"
#include "run/op_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEED = 1, LARGE_NBYTES = 1 << 20, MOST_ROWS = LK_OP_COUNT };

static const double SECONDS = 0.01; /* for each net */

/* One op's shares of the roofline: of calls over 1 MB of operands and of small ones. */
typedef struct shares {
    double *items;
    int count, capacity;
    double worst;
    char worst_shape[96];
} shares;

typedef struct row {
    const char *op;
    shares of[2]; /* small, large */
    bool falls_back;
} row;

typedef struct sweep {
    lk_engine *engine;
    lki_roofline roofline;
    lk_generator generator;
    row rows[MOST_ROWS];
    int row_count;
} sweep;

/* ---- Measuring ---- */

static lk_value *record(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count,
                        void *context)
{
    lk_module *model = context;
    (void)names, (void)inputs, (void)count;
    lk_value *x = lk_graph_param(graph, lk_module_param(model, "x"));
    lk_value *y = lk_module_forward(lk_module_child(model, "0"), x);
    int axes[LK_MAX_DIMS], rank = lk_value_shape(y).rank;
    for (int i = 0; i < rank; i++) axes[i] = i;
    return lk_op_mean(y, axes, rank, false);
}

static row *row_of(sweep *s, const char *op)
{
    for (int i = 0; i < s->row_count; i++)
        if (!strcmp(s->rows[i].op, op)) return &s->rows[i];
    s->rows[s->row_count].op = op;
    return &s->rows[s->row_count++];
}

static lk_status add_share(shares *list, double share, const char *shape)
{
    if (list->count == list->capacity) {
        int capacity = list->capacity ? 2 * list->capacity : 16;
        double *grown = lki_realloc(list->items, sizeof *grown * (size_t)capacity, "shares of the roofline");
        if (!grown) return LK_ERR_NOMEM;
        list->items = grown;
        list->capacity = capacity;
    }
    if (!list->count || share < list->worst) {
        list->worst = share;
        snprintf(list->worst_shape, sizeof list->worst_shape, "%s", shape);
    }
    list->items[list->count++] = share;
    return LK_OK;
}

static lk_status add_times(sweep *s, const lki_step_ops *ops, const char *shape)
{
    for (int i = 0; i < ops->time_count; i++) {
        const lki_op_time *time = &ops->times[i];
        row *r = row_of(s, time->op);
        r->falls_back = r->falls_back || time->fallback;
        if (time->roof_s < 0 || time->best_s <= 0) continue;
        LKI_TRY(add_share(&r->of[time->nbytes >= LARGE_NBYTES], time->roof_s / time->best_s, shape));
    }
    return LK_OK;
}

static lk_status measure_step(sweep *s, lk_step *step, const char *shape)
{
    float unused = 0;
    lk_tensor field = {.data = &unused, .dtype = LK_F32, .shape = LK_SHAPE(1), .stride = {1}};
    lki_step_ops ops = {0};
    LKI_TRY(lk_step_train(step, &(lk_input){"features", &field}, 1));
    lk_status status = lki_step_ops_measure_with(&ops, step, SECONDS, &s->roofline);
    if (status == LK_OK) status = add_times(s, &ops, shape);
    lki_step_ops_fini(&ops);
    return status;
}

static lk_module *draw_model(sweep *s, lki_sweep_net net, bool large, lk_shape *shape)
{
    int power = (large ? 18 : 8) + (int)lk_randint(large ? 3 : 5, &s->generator);
    lki_sweep_draw draw = {.generator = &s->generator, .element_count = (int64_t)1 << power};
    lk_module *model = lk_sequential(net(&draw));
    lk_tensor *x = model ? lk_tensor_create(LK_F32, draw.shape) : NULL;
    *shape = draw.shape;
    if (x) lk_normal(x, 0, 1, &s->generator);
    if (model && lk_module_add_param(model, lk_param_create("x", x, true)) == LK_OK) return model;
    lk_module_free(model);
    return NULL;
}

static lk_status measure_net(sweep *s, lki_sweep_net net, bool large, lk_dtype dtype)
{
    lk_shape shape;
    char dims[64], text[96];
    lk_module *model = draw_model(s, net, large, &shape);
    if (!model) return lki_last_status();
    lk_optimizer *optimizer = lk_sgd(.lr = 1e-6);
    lk_step *step =
        lk_step(.model = model, .optimizer = optimizer, .engine = s->engine, .function = record,
                .context = model, .precision = dtype, .generator = &s->generator, .allow_nan = true);
    snprintf(text, sizeof text, "%s %s", lk_dtype_name(dtype), lk_shape_format(dims, sizeof dims, shape));
    lk_status status = step ? measure_step(s, step, text) : lki_last_status();
    lk_step_free(step);
    lk_optimizer_free(optimizer);
    lk_module_free(model);
    return status ? lki_fail_prefix(status, "%s", text) : LK_OK;
}

static lk_status measure_all(sweep *s, double seconds)
{
    double end_s = lki_now_s() + seconds;
    for (int round = 0; round < 2 || lki_now_s() < end_s; round++)
        for (int i = 0; lki_sweep_nets[i]; i++)
            for (int large = 0; large < 2; large++)
                LKI_TRY(measure_net(s, lki_sweep_nets[i], large, round % 2 ? LK_BF16 : LK_F32));
    return LK_OK;
}

/* ---- Reporting ---- */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median_of(shares *list)
{
    qsort(list->items, (size_t)list->count, sizeof *list->items, ascending);
    return list->items[list->count / 2];
}

/* The worst large ones first, then those without a number. */
static int by_median(const void *a, const void *b)
{
    const row *left = a, *right = b;
    bool has_left = left->of[1].count, has_right = right->of[1].count;
    if (has_left != has_right) return has_left ? -1 : 1;
    if (!has_left) return strcmp(left->op, right->op);
    double x = left->of[1].items[left->of[1].count / 2], y = right->of[1].items[right->of[1].count / 2];
    return x != y ? (x < y ? -1 : 1) : strcmp(left->op, right->op);
}

static void print_row(row *r)
{
    char text[2][48];
    for (int i = 0; i < 2; i++) {
        shares *list = &r->of[i];
        text[i][0] = 0;
        if (list->count)
            lki_snprintf(text[i], sizeof text[i], "%5d %6.0f%% %6.0f%%", list->count, median_of(list) * 100,
                         list->worst * 100);
    }
    printf("%-24s %21s %21s  %s%s\n", r->op, text[1], text[0],
           r->of[1].count ? r->of[1].worst_shape : r->of[0].worst_shape,
           r->falls_back ? ", ref's kernel" : "");
}

static json_t *shares_json(shares *list)
{
    if (!list->count) return json_null();
    return json_pack("{s:i, s:f, s:f, s:s}", "calls", list->count, "median", median_of(list), "worst",
                     list->worst, "worst_operand", list->worst_shape);
}

/* Ops of the step that no net has: nobody should believe that they are fast. */
static void print_others(const sweep *s)
{
    int count = 0;
    for (int op = 0; op < LK_OP_COUNT; op++) {
        bool is_swept =
            lk_op_flags((lk_op)op) & (LK_OP_IS_LEAF | LK_OP_IS_VIEW | LK_OP_IS_OPTIONAL | LK_OP_RUNS_ON_HOST);
        for (int i = 0; i < s->row_count && !is_swept; i++)
            is_swept = !strcmp(s->rows[i].op, lk_op_name((lk_op)op));
        if (is_swept) continue;
        printf("%s%s", count++ ? ", " : "in no net by themselves: ", lk_op_name((lk_op)op));
    }
    if (count) putchar('\n');
}

static void report_rows(lki_bench_report *report, sweep *s, const char *filter)
{
    for (int i = 0; i < s->row_count; i++)
        for (int k = 0; k < 2; k++)
            if (s->rows[i].of[k].count) median_of(&s->rows[i].of[k]);
    qsort(s->rows, (size_t)s->row_count, sizeof *s->rows, by_median);
    if (!report->json) {
        lki_bench_begin_rows(report, "sweep");
        printf("shares of the roofline      over 1 MB of operands         smaller operands\n");
        printf("%-24s %5s %7s %7s %5s %7s %7s  %s\n", "op", "calls", "median", "worst", "calls", "median",
               "worst", "the worst: a net over");
    }
    for (int i = 0; i < s->row_count; i++) {
        row *r = &s->rows[i];
        if (filter && !strstr(r->op, filter)) continue;
        if (report->json)
            lki_bench_add_json(report,
                               json_pack("{s:s, s:o, s:o, s:b}", "op", r->op, "large", shares_json(&r->of[1]),
                                         "small", shares_json(&r->of[0]), "falls_back", r->falls_back));
        else
            print_row(r);
    }
    if (!report->json && !filter) print_others(s);
}

lk_status lki_bench_sweep(lki_bench_report *report, const char *engine, const char *filter, double seconds)
{
    sweep *s = LKI_NEW(sweep);
    if (!s) return LK_ERR_NOMEM;
    lk_generator_seed(&s->generator, SEED);
    lk_manual_seed(SEED);
    s->engine = lk_engine_open(engine ? engine : "cpu", NULL);
    s->roofline.engine = s->engine;
    lk_status status = s->engine ? measure_all(s, seconds) : lki_last_status();
    if (status == LK_OK) report_rows(report, s, filter);
    for (int i = 0; i < s->row_count; i++)
        for (int k = 0; k < 2; k++) lki_free(s->rows[i].of[k].items);
    lk_engine_close(s->engine);
    lki_free(s);
    return status;
}
