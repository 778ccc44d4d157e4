/* Cases of the update half: every rule with its options, at the first step and later, and clipping. */
#include "case.h"

#include <math.h>

static const lk_hyper sgds[] = {
    {.lr = 0.1},
    {.lr = 0.1, .weight_decay = 0.01},
    {.lr = 0.1, .momentum = 0.9},
    {.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01},
    {.lr = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01},
    {.lr = 0.1, .momentum = 0.9, .maximize = true, .grad_scale = 0.5},
};
static const lk_hyper adams[] = {
    {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
    {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1},
    {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1, .amsgrad = true},
    {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .maximize = true, .grad_scale = 0.125},
};
static const lk_hyper rmsprops[] = {
    {.lr = 0.01, .alpha = 0.99, .eps = 1e-8},
    {.lr = 0.01, .alpha = 0.9, .eps = 1e-6, .weight_decay = 0.1, .momentum = 0.9},
    {.lr = 0.01, .alpha = 0.9, .eps = 1e-3, .centered = true},
    {.lr = 0.01,
     .alpha = 0.9,
     .eps = 1e-3,
     .centered = true,
     .momentum = 0.9,
     .maximize = true,
     .grad_scale = 2},
};
static const lk_hyper adagrads[] = {
    {.lr = 0.1, .eps = 1e-10},
    {.lr = 0.1, .eps = 1e-10, .lr_decay = 0.05, .weight_decay = 0.1, .grad_scale = 0.5},
};
static const lk_hyper lambs[] = {
    {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6, .weight_decay = 0.01},
    {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .maximize = true, .grad_scale = 0.25},
    {.lr = 0.01,
     .beta1 = 0.9,
     .beta2 = 0.99,
     .eps = 1e-6,
     .weight_decay = 0.01,
     .no_debias = true,
     .clip = 10},
    {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .no_debias = true, .clip = 0.5},
    {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-6, .no_debias = true, .no_trust = true, .clip = 10},
};

static const lk_hyper nadams[] = {
    {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .lr_decay = 4e-3},
    {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1, .lr_decay = 0.5},
    {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .maximize = true, .grad_scale = 0.125},
};
static const lk_hyper radams[] = {
    {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.5, .eps = 1e-8},
    {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1},
    {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.8, .eps = 1e-6, .maximize = true, .grad_scale = 0.5},
};
static const lk_hyper adadeltas[] = {
    {.lr = 1, .alpha = 0.9, .eps = 1e-6},
    {.lr = 0.5, .alpha = 0.8, .eps = 1e-4, .weight_decay = 0.1, .maximize = true, .grad_scale = 0.5},
};
static const lk_hyper rprops[] = {
    {.lr = 0.01, .alpha = 0.5, .lr_decay = 1.2, .eps = 1e-6, .clip = 50},
    {.lr = 0.01,
     .alpha = 0.3,
     .lr_decay = 1.5,
     .eps = 1e-6,
     .clip = 0.5,
     .maximize = true,
     .grad_scale = 0.5},
};
static const lk_hyper asgds[] = {
    {.lr = 0.01, .lr_decay = 1e-4, .alpha = 0.75, .dampening = 1e6},
    {.lr = 0.1, .lr_decay = 0.1, .alpha = 0.5, .dampening = 1, .weight_decay = 0.1, .grad_scale = 0.5},
};
static const lk_hyper lions[] = {
    {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99},
    {.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1, .maximize = true, .grad_scale = 0.5},
};

/* Which of state0..2 a rule has under these options. */
static bool has_state(lk_update_rule rule, const lk_hyper *h, int state)
{
    switch (rule) {
    case LK_UPDATE_SGD: return state == 0 && h->momentum != 0;
    case LK_UPDATE_ADAM:
    case LK_UPDATE_ADAMW: return state < 2 || h->amsgrad;
    case LK_UPDATE_RMSPROP: return state == 0 || (state == 1 ? h->momentum != 0 : h->centered);
    case LK_UPDATE_ADAGRAD: return state == 0;
    case LK_UPDATE_LION: return state == 0;
    case LK_UPDATE_LAMB:
    case LK_UPDATE_RADAM:
    case LK_UPDATE_ADADELTA:
    case LK_UPDATE_ADAMAX:
    case LK_UPDATE_RPROP:
    case LK_UPDATE_ASGD: return state < 2;
    case LK_UPDATE_NADAM: return true;
    case LK_UPDATE_COUNT: break;
    }
    return false;
}

/* Squares are positive, and large enough that a centered variance stays positive; the rest may have any sign.
 */
static lkt_fill fill_of(lk_update_rule rule, int state, bool first)
{
    if (first) return LKT_ZERO;
    if (rule == LK_UPDATE_NADAM && state == 2) return LKT_ZERO;
    bool signed_state = (state == 0 && rule != LK_UPDATE_RMSPROP && rule != LK_UPDATE_ADAGRAD &&
                         rule != LK_UPDATE_ADADELTA) ||
                        (state == 1 && rule == LK_UPDATE_RMSPROP);
    return signed_state ? LKT_NORMAL : state == 2 && rule == LK_UPDATE_RMSPROP ? LKT_ZERO : LKT_POSITIVE;
}

static void updates(lkt_case_list *list, lk_update_rule rule, const lk_hyper *hypers, int count)
{
    static const int64_t sizes[] = {0, 1, 7, 16, 67, 1027, 50021};
    for (int k = 0; k < count; k++)
        for (int i = 0; i < 7; i++)
            for (int64_t step = 1; step < 5; step += 3) {
                lk_shape shape = LK_SHAPE(sizes[i]);
                lkt_case *c = lkt_case_add(list, LK_OP_UPDATE, "rule %d options %d of %lld step %lld", rule,
                                           k, (long long)sizes[i], (long long)step);
                c->hyper = hypers[k];
                c->hyper.step = step;
                c->attr.update.rule = (lk_update_rule)rule;
                /* Where decay cancels a gradient its direction is all rounding; with one sign nothing
                 * cancels. */
                lkt_fill fill = hypers[k].weight_decay != 0 ? LKT_POSITIVE : LKT_NORMAL;
                lkt_in_f32(c, shape, fill);
                lkt_in_f32(c, shape, fill);
                for (int state = 0; state < 3; state++) {
                    if (has_state(rule, &hypers[k], state))
                        lkt_in_f32(c, shape, fill_of(rule, state, step == 1));
                    else
                        lkt_in_absent(c);
                }
                c->tolerance = 1e-6;
            }
}

static void zero_parameter(lkt_case_list *list)
{
    lkt_case *c = lkt_case_add(list, LK_OP_UPDATE, "lamb of a zero parameter");
    c->attr.update.rule = LK_UPDATE_LAMB;
    c->hyper = lambs[0];
    c->hyper.step = 1;
    lkt_in_f32(c, LK_SHAPE(19), LKT_ZERO);
    lkt_in_f32(c, LK_SHAPE(19), LKT_NORMAL);
    lkt_in_f32(c, LK_SHAPE(19), LKT_ZERO);
    lkt_in_f32(c, LK_SHAPE(19), LKT_ZERO);
}

/* Denominators that have no reciprocal: second moments that overflowed, and an eps below all normal numbers.
 */
static void extreme_denominators(lkt_case_list *list)
{
    for (int tiny = 0; tiny < 2; tiny++) {
        lkt_case *c =
            lkt_case_add(list, LK_OP_UPDATE, "adam with denominators %s", tiny ? "too small" : "too large");
        c->attr.update.rule = LK_UPDATE_ADAM;
        c->hyper = adams[0];
        c->hyper.step = 3;
        if (tiny) c->hyper.eps = 1e-40;
        lkt_in_f32(c, LK_SHAPE(83), LKT_NORMAL);
        lkt_in_f32(c, LK_SHAPE(83), tiny ? LKT_ZERO : LKT_NORMAL);
        lkt_in_f32(c, LK_SHAPE(83), tiny ? LKT_ZERO : LKT_NORMAL);
        lk_tensor *second = lkt_in(c, LK_F32, LK_SHAPE(83), tiny ? LKT_ZERO : LKT_POSITIVE);
        for (int i = 0; i < 83 && !tiny; i += 3) lk_tensor_set(second, i, i % 2 ? INFINITY : 1e38);
        lkt_in_absent(c);
        c->tolerance = 1e-6;
    }
}

static void clips(lkt_case_list *list)
{
    static const int64_t sizes[] = {0, 1, 67, 1027, 50021};
    static const double limits[] = {0.25, 1e6}, scales[] = {0, 0.5};
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 4; k++) {
            static const lk_op ops[] = {LK_OP_CLIP_NORM, LK_OP_CLIP_VALUE};
            for (int o = 0; o < 2; o++) {
                lkt_case *c = lkt_case_add(list, ops[o], "of %lld to %g scale %g", (long long)sizes[i],
                                           limits[k & 1], scales[k >> 1]);
                c->hyper.clip = limits[k & 1];
                c->hyper.grad_scale = scales[k >> 1];
                lkt_in_f32(c, LK_SHAPE(sizes[i]), LKT_NORMAL);
            }
            if (k > 1) continue;
            lkt_case *c = lkt_case_add(list, LK_OP_ACCUMULATE, "of %lld first %d", (long long)sizes[i], k);
            c->hyper.first = k;
            lkt_in_f32(c, LK_SHAPE(sizes[i]), LKT_NORMAL);
            lkt_in_f32(c, LK_SHAPE(sizes[i]), LKT_NORMAL);
        }
}

static void add_scaler(lkt_case *c, double scale, double tracker, double found, double skipped)
{
    lk_tensor *scaler = lkt_in_f32(c, LK_SHAPE(LK_SCALER_COUNT), LKT_ZERO);
    lk_tensor_set(scaler, LK_SCALER_SCALE, scale);
    lk_tensor_set(scaler, LK_SCALER_TRACKER, tracker);
    lk_tensor_set(scaler, LK_SCALER_FOUND, found);
    lk_tensor_set(scaler, LK_SCALER_SKIPPED, skipped);
}

/* Updates and clips after gradients that were not finite change nothing; later ones count what was skipped.
 */
static void scaled(lkt_case_list *list)
{
    static const lk_hyper *const hypers[LK_UPDATE_COUNT] = {
        &sgds[3],   &adams[0],     &adams[1], &rmsprops[0], &adagrads[1], &lambs[0], &nadams[0],
        &radams[0], &adadeltas[1], &adams[1], &rprops[0],   &asgds[1],    &lions[1]};
    for (int rule = 0; rule < LK_UPDATE_COUNT; rule++)
        for (int found = 0; found < 2; found++)
            for (int64_t step = 4; step < 7; step += 2) {
                lkt_case *c = lkt_case_add(list, LK_OP_UPDATE, "rule %d scaled found %d step %lld", rule,
                                           found, (long long)step);
                lk_shape shape = LK_SHAPE(1027);
                c->attr.update.rule = (lk_update_rule)rule;
                c->hyper = *hypers[rule];
                c->hyper.step = step;
                lkt_in_f32(c, shape, LKT_POSITIVE);
                lkt_in_f32(c, shape, LKT_POSITIVE);
                for (int state = 0; state < 3; state++) {
                    if (has_state(rule, &c->hyper, state))
                        lkt_in_f32(c, shape, fill_of(rule, state, false));
                    else
                        lkt_in_absent(c);
                }
                add_scaler(c, 1024, 2, found, 3);
                c->tolerance = 1e-6;
            }
    for (int op = 0; op < 4; op++) {
        lkt_case *c =
            lkt_case_add(list, op & 1 ? LK_OP_CLIP_NORM : LK_OP_CLIP_VALUE, "scaled found %d", op / 2);
        c->hyper.clip = 0.25;
        lkt_in_f32(c, LK_SHAPE(50021), LKT_NORMAL);
        add_scaler(c, 1024, 2, op / 2, 3);
    }
}

static void unscales(lkt_case_list *list)
{
    static const int64_t sizes[] = {0, 1, 7, 67, 1027, 50021};
    static const double bad[] = {0, INFINITY, -INFINITY, NAN};
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 4; k++)
            for (int tracker = 0; tracker < 3; tracker++) {
                if (k && !sizes[i]) continue;
                lkt_case *c = lkt_case_add(list, LK_OP_UNSCALE, "of %lld with %g tracker %d",
                                           (long long)sizes[i], bad[k], tracker);
                c->attr.unscale.growth_factor =
                    tracker == 1 ? 1e38 : 2; /* a scale that f32 does not hold is not taken */
                c->attr.unscale.backoff_factor = 0.5;
                c->attr.unscale.growth_interval = tracker ? 2 : 1;
                lk_tensor *grad = lkt_in_f32(c, LK_SHAPE(sizes[i]), LKT_NORMAL);
                if (k) lk_tensor_set(grad, sizes[i] * 2 / 3, bad[k]);
                add_scaler(c, 4096, tracker, k == 2, 5);
            }
}

#define COUNT(array) (int)(sizeof(array) / sizeof *(array))

void lkt_cases_update(lkt_case_list *list)
{
    updates(list, LK_UPDATE_SGD, sgds, COUNT(sgds));
    updates(list, LK_UPDATE_ADAM, adams, COUNT(adams));
    updates(list, LK_UPDATE_ADAMW, adams, COUNT(adams));
    updates(list, LK_UPDATE_RMSPROP, rmsprops, COUNT(rmsprops));
    updates(list, LK_UPDATE_ADAGRAD, adagrads, COUNT(adagrads));
    updates(list, LK_UPDATE_LAMB, lambs, COUNT(lambs));
    updates(list, LK_UPDATE_NADAM, nadams, COUNT(nadams));
    updates(list, LK_UPDATE_RADAM, radams, COUNT(radams));
    updates(list, LK_UPDATE_ADADELTA, adadeltas, COUNT(adadeltas));
    updates(list, LK_UPDATE_ADAMAX, adams, 2);
    updates(list, LK_UPDATE_RPROP, rprops, COUNT(rprops));
    updates(list, LK_UPDATE_ASGD, asgds, COUNT(asgds));
    updates(list, LK_UPDATE_LION, lions, COUNT(lions));
    zero_parameter(list);
    extreme_denominators(list);
    clips(list);
    scaled(list);
    unscales(list);
}
