/* Schedules one after the other, and several at once. */
#include "optim/scheduler.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "optim/optimizer.h"

/* As in PyTorch each part has begun once when the sequence is made. The rates are taken back, but the
 * momentum of the last that moves it stays until a part changes it. */
static lk_status sequential_prepare(lk_scheduler *own)
{
    for (int i = 0; i < own->part_count; i++) {
        LKI_TRY(lki_scheduler_bind(own->parts[i], own->optimizer));
        LKI_TRY(lki_scheduler_begin(own->parts[i]));
        own->parts[i]->last_epoch = -1;
    }
    return LK_OK;
}

static void sequential_restart(lk_scheduler *own)
{
    for (int i = 0; i < own->optimizer->group_count; i++)
        own->optimizer->groups[i].hyper.lr = own->optimizer->groups[i].initial_lr;
    lki_scheduler_begin(own->parts[0]);
}

/* The initial rates may have changed since the part was attached: it begins from those it found. */
static lk_status begin_part(const lk_scheduler *own, lk_scheduler *part)
{
    for (int i = 0; i < own->optimizer->group_count; i++)
        own->optimizer->groups[i].hyper.lr = part->base_lrs[i];
    return lki_scheduler_begin(part);
}

/* At a milestone the next part begins; else the current one goes on. */
static lk_status sequential_advance(lk_scheduler *own, const double *metric)
{
    (void)metric;
    int current = 0;
    while (current < own->milestone_count && own->milestones[current] <= own->last_epoch) current++;
    if (current > 0 && own->milestones[current - 1] == own->last_epoch)
        return begin_part(own, own->parts[current]);
    return lk_scheduler_step(own->parts[current]);
}

static lk_scheduler *fail_with(lk_scheduler_list schedulers)
{
    for (int i = 0; i < schedulers.count; i++) lk_scheduler_free(schedulers.items[i]);
    return lki_scheduler_refused();
}

static lk_status check_parts(const lk_sequential_lr_options *options)
{
    if (options->schedulers.count < 1 || options->milestones.count != options->schedulers.count - 1)
        return lki_fail(LK_ERR_INVALID, "SequentialLR: %d schedulers need %d milestones, found %d",
                        options->schedulers.count, options->schedulers.count - 1, options->milestones.count);
    for (int i = 0; i < options->milestones.count; i++)
        if (options->milestones.items[i] < 1 ||
            (i && options->milestones.items[i] <= options->milestones.items[i - 1]))
            return lki_fail(LK_ERR_INVALID,
                            "SequentialLR: milestones: expected numbers of at least 1 that grow, found %lld",
                            (long long)options->milestones.items[i]);
    for (int i = 0; i < options->schedulers.count; i++)
        if (lk_scheduler_needs_metric(options->schedulers.items[i]))
            return lki_fail(LK_ERR_INVALID, "SequentialLR: ReduceLROnPlateau cannot be a part of it");
    return LK_OK;
}

/* Gives the parts to `own`, which is freed with them where that fails. */
static lk_scheduler *own_parts(lk_scheduler *own, lk_scheduler_list schedulers)
{
    if (!own) return fail_with(schedulers);
    own->parts = LKI_NEW_ARRAY(lk_scheduler *, schedulers.count);
    if (!own->parts) {
        lk_scheduler_free(own);
        return fail_with(schedulers);
    }
    for (int i = 0; i < schedulers.count; i++) own->parts[i] = schedulers.items[i];
    own->part_count = schedulers.count;
    return own;
}

lk_scheduler *lk_sequential_lr_with(const lk_sequential_lr_options *given)
{
    LKI_TAKE(lk_sequential_lr_options, options, given, fail_with(options.schedulers));
    for (int i = 0; i < options.schedulers.count; i++)
        if (!options.schedulers.items[i]) return fail_with(options.schedulers);
    if (check_parts(&options) != LK_OK) return fail_with(options.schedulers);
    lk_scheduler *own =
        lki_scheduler_with_milestones(lki_scheduler_create("SequentialLR"), options.milestones);
    own = own_parts(own, options.schedulers);
    if (!own) return NULL;
    own->prepare = sequential_prepare;
    own->advance = sequential_advance;
    own->restart = sequential_restart;
    return own;
}

static lk_status chained_prepare(lk_scheduler *own)
{
    for (int i = 0; i < own->part_count; i++) LKI_TRY(lki_scheduler_bind(own->parts[i], own->optimizer));
    return LK_OK;
}

static void chained_restart(lk_scheduler *own)
{
    for (int i = 0; i < own->part_count; i++) lki_scheduler_begin(own->parts[i]);
}

static lk_status chained_advance(lk_scheduler *own, const double *metric)
{
    (void)metric;
    for (int i = 0; i < own->part_count; i++) LKI_TRY(lk_scheduler_step(own->parts[i]));
    return LK_OK;
}

static lk_status check_chain(lk_scheduler_list schedulers)
{
    if (schedulers.count < 1)
        return lki_fail(LK_ERR_INVALID, "ChainedScheduler: expected at least one schedule");
    for (int i = 0; i < schedulers.count; i++)
        if (lk_scheduler_needs_metric(schedulers.items[i]))
            return lki_fail(LK_ERR_INVALID, "ChainedScheduler: ReduceLROnPlateau cannot be a part of it");
    return LK_OK;
}

lk_scheduler *lk_chained_scheduler_with(const lk_chained_scheduler_options *given)
{
    LKI_TAKE(lk_chained_scheduler_options, options, given, fail_with(options.schedulers));
    for (int i = 0; i < options.schedulers.count; i++)
        if (!options.schedulers.items[i]) return fail_with(options.schedulers);
    if (check_chain(options.schedulers)) return fail_with(options.schedulers);
    lk_scheduler *own = own_parts(lki_scheduler_create("ChainedScheduler"), options.schedulers);
    if (!own) return NULL;
    own->prepare = chained_prepare;
    own->advance = chained_advance;
    own->restart = chained_restart;
    return own;
}

lk_scheduler *lk_warmup_lr_with(int64_t steps, const lk_warmup_lr_options *given)
{
    LKI_TAKE(lk_warmup_lr_options, options, given, fail_with(lk_schedulers(options.then)));
    lk_scheduler *warmup = NULL;
    if (steps < 1)
        lki_fail(LK_ERR_INVALID, "warm-up: expected at least 1 step, found %lld", (long long)steps);
    else
        warmup = lk_linear_lr(.start_factor = options.start_factor, .total_iters = steps);
    if (!warmup) {
        lk_scheduler_free(options.then);
        return lki_scheduler_refused();
    }
    if (!options.then) return warmup;
    return lk_sequential_lr(.schedulers = lk_schedulers(warmup, options.then),
                            .milestones = lk_milestones(steps));
}
