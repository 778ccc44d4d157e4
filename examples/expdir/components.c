/* Components of one's own for a config: a dataset, a model, a loss, an optimizer and a callback.
 *
 *     lockstep run -C examples/expdir/config.yml --expdir examples/expdir
 *     lockstep help Spirals WideNet LogCosh Signum --expdir examples/expdir
 *
 * Each is declared once: its name, parameters and help beside the function that builds it. */
#include <lockstep/lockstep.h>

#include <math.h>

/* Points on two arms of a spiral: features (n, 2), targets (n, 1) of 0 or 1. */
static lk_status build_spirals(const lk_component *self, lk_args *args, void **out)
{
    int count = lk_arg_int(args, "count");
    double noise = lk_arg_float(args, "noise");
    (void)self;
    if (count < 2) return lk_fail(LK_ERR_CONFIG, "count: expected at least 2, found %d", count);
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(count, 2)), *y = lk_tensor_create(LK_F32, LK_SHAPE(count, 1));
    for (int i = 0; x && y && i < count; i++) {
        double t = 0.5 + 3 * (double)i / count, turn = t * 2 + (i % 2) * acos(-1);
        lk_tensor_set(x, 2 * i, t * cos(turn) + noise * (lk_generator_f64(lk_default_generator()) - 0.5));
        lk_tensor_set(x, 2 * i + 1, t * sin(turn) + noise * (lk_generator_f64(lk_default_generator()) - 0.5));
        lk_tensor_set(y, i, i % 2);
    }
    *out = lk_tensor_dataset({"features", x}, {"targets", y});
    return *out ? LK_OK : lk_error_status();
}

static const lk_component spirals = {
    .name = "Spirals", .kind = LK_KIND_DATASET, .help = "Two arms of a spiral.", .build = build_spirals,
    .parameters = (const lk_parameter[]){
        {.name = "count", .type = LK_PARAMETER_INT, .default_value = "400", .help = "How many points."},
        {.name = "noise", .type = LK_PARAMETER_FLOAT, .default_value = "0.1", .help = "How far they stray."},
        {0}}};

/* (n, 2) -> (n, 1), through one wide layer and back: x + f(x) in the middle. */
static lk_status build_wide_net(const lk_component *self, lk_args *args, void **out)
{
    int width = lk_arg_int(args, "width");
    (void)self;
    *out = lk_sequential(lk_linear(2, width), lk_tanh(), lk_residual(lk_linear(width, width), lk_tanh()),
                         lk_linear(width, 1));
    return *out ? LK_OK : lk_error_status();
}

static const lk_component wide_net = {
    .name = "WideNet", .kind = LK_KIND_MODULE, .help = "A wide layer with a way around it.", .build = build_wide_net,
    .parameters = (const lk_parameter[]){
        {.name = "width", .type = LK_PARAMETER_INT, .help = "Units of the hidden layers."},
        {0}}};

/* mean(log cosh(x - y)), as |d| + log(1 + exp(-2 |d|)) - log 2, which no large d overflows. */
static lk_value *log_cosh(lk_value *x, lk_value *y, void *context)
{
    lk_value *d = lk_op_abs(lk_op_sub(x, y));
    lk_value *tail = lk_op_softplus(lk_op_mul_scalar(d, -2), 1, 20);
    (void)context;
    return lk_op_mean(lk_op_add_scalar(lk_op_add(d, tail), -log(2)), NULL, 0, false);
}

static lk_status build_log_cosh(const lk_component *self, lk_args *args, void **out)
{
    (void)self, (void)args;
    *out = lk_custom_criterion(.type = "LogCosh", .forward = log_cosh);
    return *out ? LK_OK : lk_error_status();
}

static const lk_component log_cosh_loss = {
    .name = "LogCosh", .kind = LK_KIND_CRITERION, .help = "The mean of log(cosh(x - y)).", .build = build_log_cosh};

/* An update rule: the sign of the averaged gradient. In the config: {_target_: Signum, lr: 0.01}. */
static void signum(const lk_update *u)
{
    for (int64_t i = 0; i < u->count; i++) {
        float *average = &u->states[0][i];
        *average = (float)u->momentum * *average + (float)(1 - u->momentum) * u->grads[i];
        u->values[i] -= (float)u->lr * (float)((*average > 0) - (*average < 0));
    }
}

static lk_status build_signum(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    *out = lk_custom_optimizer(.name = "Signum", .update = signum, .state_count = 1, .lr = lk_arg_float(args, "lr"),
                               .momentum = lk_arg_float(args, "momentum"));
    return *out ? LK_OK : lk_error_status();
}

static const lk_component signum_optimizer = {
    .name = "Signum", .kind = LK_KIND_OPTIMIZER, .help = "Steps of one size, by the averaged gradient's sign.",
    .build = build_signum,
    .parameters = (const lk_parameter[]){
        {.name = "lr", .type = LK_PARAMETER_FLOAT, .help = "The size of a step."},
        {.name = "momentum", .type = LK_PARAMETER_FLOAT, .default_value = "0.9", .help = "How long it remembers."},
        {0}}};

/* A metric of one's own: the root of the loss, after each loader. */
static lk_status root_of_loss(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    return lk_metrics_set(runner->loader_metrics, "root", sqrt(lk_metrics_get(runner->loader_metrics, "loss")));
}

static lk_status build_root(const lk_component *self, lk_args *args, void **out)
{
    (void)self, (void)args;
    *out = lk_on(loader_end, root_of_loss, NULL);
    return *out ? LK_OK : lk_error_status();
}

static const lk_component root = {
    .name = "RootOfLoss", .kind = LK_KIND_CALLBACK, .help = "Reports the root of the loss.", .build = build_root};

LK_COMPONENTS(&spirals, &wide_net, &log_cosh_loss, &signum_optimizer, &root);
