#include "graph/ddp.h"

#include "base/memory.h"
#include "base/status.h"

/* The value that autodiff stored in this parameter's gradient. */
static lk_value *find_gradient(lk_graph *graph, const lk_param *param)
{
    for (lki_node *node = graph->last; node; node = node->previous)
        for (int i = 0; i < node->output_count; i++)
            if (node->out[i]->storage == LKI_STORAGE_GRAD && node->out[i]->param == param)
                return node->out[i];
    return NULL;
}

static bool is_read(const lk_graph *graph, const lk_value *value)
{
    for (const lki_node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->input_count; i++)
            if (node->in[i] == value && !node->dead) return true;
    return false;
}

/* What is averaged in place must not be what the rest of the backward half reads: where a parameter is added
 * to something of its own shape, its gradient is also that of the other summand. */
static lk_status give_own_place(lk_graph *graph, lk_value **gradient)
{
    lk_value *shared = *gradient;
    if (!is_read(graph, shared)) return LK_OK;
    lki_node *copy = lki_graph_insert(graph, shared->node->next, LK_OP_COPY, &shared, 1, NULL);
    if (!copy) return lki_last_status();
    copy->section = shared->node->section;
    copy->scope = shared->node->scope;
    *gradient = copy->out[0];
    (*gradient)->storage = LKI_STORAGE_GRAD;
    (*gradient)->param = shared->param;
    shared->storage = LKI_STORAGE_ARENA;
    shared->param = NULL;
    return LK_OK;
}

static lk_status start_bucket(lk_graph *graph, lki_bucket *bucket)
{
    lk_value **gradients = LKI_ARENA_NEW_ARRAY(&graph->arena, lk_value *, bucket->param_count + 1);
    lki_node *last = NULL;
    if (!gradients) return LK_ERR_NOMEM;
    for (int i = 0; i < bucket->param_count; i++) {
        gradients[i] = find_gradient(graph, bucket->params[i]);
        if (!gradients[i]) return lki_fail(LK_ERR_INVALID, "a bucket holds a parameter without a gradient");
        LKI_TRY(give_own_place(graph, &gradients[i]));
    }
    lki_graph_number(graph);
    for (int i = 0; i < bucket->param_count; i++) {
        if (!last || gradients[i]->node->order > last->order) last = gradients[i]->node;
    }
    lk_attr attr = {.exchange.bucket = bucket};
    lki_node *start =
        lki_graph_insert(graph, last->next, LK_OP_REDUCE_START, gradients, bucket->param_count, &attr);
    if (!start) return lki_last_status();
    start->section = LKI_SECTION_BACKWARD;
    start->scope = NULL;
    return LK_OK;
}

/* Between the ops that follow the first bucket: not every comm has a thread that goes on by itself. */
static lk_status poll_in_between(lk_graph *graph)
{
    lki_bucket *latest = NULL;
    for (lki_node *node = graph->first, *next; node; node = next) {
        next = node->next;
        if (node->op == LK_OP_REDUCE_START) {
            latest = node->attr.exchange.bucket;
        } else if (latest && next) {
            lk_attr attr = {.exchange.bucket = latest};
            lki_node *poll = lki_graph_insert(graph, next, LK_OP_REDUCE_POLL, NULL, 0, &attr);
            if (!poll) return lki_last_status();
            poll->section = LKI_SECTION_BACKWARD;
            poll->scope = NULL;
        }
    }
    return LK_OK;
}

static lk_status wait_for_bucket(lk_graph *graph, lki_node *before, lki_bucket *bucket)
{
    lk_attr attr = {.exchange.bucket = bucket};
    lki_node *wait = lki_graph_insert(graph, before, LK_OP_REDUCE_WAIT, NULL, 0, &attr);
    if (!wait) return lki_last_status();
    wait->section = LKI_SECTION_BACKWARD;
    wait->scope = NULL;
    return LK_OK;
}

/* Each bucket is waited for once: at the end, or, when as many are under way as a comm may be asked to carry,
 * before the next one starts. Buckets finish in the order in which they start, so the oldest is waited for.
 * On an engine with memory of its own the work takes its place on a stream, and nothing is under way. */
static lk_status wait_for_buckets(lk_graph *graph, const lki_ddp *ddp)
{
    lki_bucket *under_way[LKI_BUCKETS_UNDER_WAY];
    int64_t started = 0, waited = 0;
    for (lki_node *node = graph->first; node; node = node->next) {
        if (node->op != LK_OP_REDUCE_START) continue;
        if (ddp->polls && started - waited == LKI_BUCKETS_UNDER_WAY)
            LKI_TRY(wait_for_bucket(graph, node, under_way[waited++ % LKI_BUCKETS_UNDER_WAY]));
        if (ddp->polls) under_way[started++ % LKI_BUCKETS_UNDER_WAY] = node->attr.exchange.bucket;
    }
    for (int i = 0; !ddp->polls && i < ddp->bucket_count; i++)
        LKI_TRY(wait_for_bucket(graph, NULL, &ddp->buckets[i]));
    while (waited < started)
        LKI_TRY(wait_for_bucket(graph, NULL, under_way[waited++ % LKI_BUCKETS_UNDER_WAY]));
    return LK_OK;
}

lk_status lki_pass_ddp(lk_graph *graph, const lki_ddp *ddp)
{
    for (int i = 0; i < ddp->bucket_count; i++) LKI_TRY(start_bucket(graph, &ddp->buckets[i]));
    if (ddp->polls) LKI_TRY(poll_in_between(graph));
    return wait_for_buckets(graph, ddp);
}

/* ---- Batch norm over all ranks ---- */

/* (c) -> (1, c, 1, ...) so that it broadcasts over x. */
static lk_value *as_channel(lk_value *value, int rank)
{
    lk_shape shape = {.rank = rank};
    for (int i = 0; i < rank; i++) shape.dim[i] = 1;
    shape.dim[1] = lk_value_shape(value).dim[0];
    return lk_op_reshape(value, shape);
}

static lk_value *sum_over_ranks(lk_value *value)
{
    lk_graph *graph = lk_value_graph(value);
    if (!graph) return NULL;
    lk_attr attr = {.exchange.comm = graph->sync_comm};
    return lki_record(graph, LK_OP_ALL_REDUCE, &value, 1, 1, &attr);
}

/* running = (1 - momentum) running + momentum value */
static void move_running(lk_value *running, lk_value *value, double momentum)
{
    if (!running || !value) return;
    lk_value *moved = lk_op_add(lk_op_mul_scalar(running, 1 - momentum), lk_op_mul_scalar(value, momentum));
    lk_value *operands[] = {running, moved};
    if (moved) lki_record(lk_value_graph(running), LK_OP_ASSIGN, operands, 2, 2, NULL);
}

/* mean = sum x / m and var = sum x^2 / m - mean^2 over all ranks (m counts all ranks, whose batches are of
 * one size); y = (x - mean) / sqrt(var + eps) * weight + bias. The gradient of a sum over ranks is the sum of
 * the gradients over ranks, so autodiff finds the right backward half by itself. */
lk_value *lki_record_sync_batch_norm(lk_value *x, lk_value *weight, lk_value *bias, lk_value *running_mean,
                                     lk_value *running_var, double momentum, double eps)
{
    lk_graph *graph = lk_value_graph(x);
    if (!graph) return NULL;
    lk_shape shape = lk_value_shape(x);
    int axes[LK_MAX_DIMS], axis_count = 0;
    for (int i = 0; i < shape.rank; i++)
        if (i != 1) axes[axis_count++] = i;
    double count = (double)(lk_shape_count(shape) / shape.dim[1]) * graph->sync_comm->size;
    lk_value *mean = lk_op_mul_scalar(sum_over_ranks(lk_op_sum(x, axes, axis_count, false)), 1 / count);
    lk_value *centered = lk_op_sub(x, as_channel(mean, shape.rank));
    /* A second exchange, of squares around the common mean: the difference of two large sums would lose
     * digits. */
    lk_value *squares = sum_over_ranks(lk_op_sum(lk_op_mul(centered, centered), axes, axis_count, false));
    lk_value *variance = lk_op_mul_scalar(squares, 1 / count);
    lk_value *scale = lk_op_pow_scalar(lk_op_add_scalar(variance, eps), -0.5);
    if (weight) scale = lk_op_mul(scale, weight);
    lk_value *y = lk_op_mul(centered, as_channel(scale, shape.rank));
    if (bias) y = lk_op_add(y, as_channel(bias, shape.rank));
    move_running(running_mean, mean, momentum);
    if (count > 1) move_running(running_var, lk_op_mul_scalar(squares, 1 / (count - 1)), momentum);
    return y;
}
