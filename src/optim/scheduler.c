#include "optim/scheduler.h"

#include "base/memory.h"
#include "base/status.h"
#include "optim/optimizer.h"

#include <stdio.h>
#include <string.h>

/* The number of failures at the last refusal; 0: there is none to hear of. */
static _Thread_local unsigned long refused_at;

lk_scheduler *lki_scheduler_refused(void)
{
    refused_at = lki_fail_count();
    return NULL;
}

bool lki_scheduler_was_refused(void)
{
    bool is_last = refused_at && refused_at == lki_fail_count();
    refused_at = 0;
    return is_last;
}

lk_scheduler *lki_scheduler_create(const char *name)
{
    lk_scheduler *scheduler = LKI_NEW(lk_scheduler);
    if (scheduler) scheduler->name = name;
    if (scheduler) scheduler->last_epoch = -1;
    return scheduler;
}

void lk_scheduler_free(lk_scheduler *scheduler)
{
    if (!scheduler) return;
    for (int i = 0; i < scheduler->part_count; i++) lk_scheduler_free(scheduler->parts[i]);
    lki_free(scheduler->parts);
    lki_free(scheduler->milestones);
    lki_free(scheduler->base_lrs);
    lki_free(scheduler->lists.low);
    lki_free(scheduler->lists.high);
    lki_free(scheduler);
}

lk_scheduler *lki_scheduler_with_milestones(lk_scheduler *scheduler, lk_milestone_list milestones)
{
    if (!scheduler) return NULL;
    scheduler->milestones = LKI_NEW_ARRAY(int64_t, milestones.count);
    if (!scheduler->milestones) {
        lk_scheduler_free(scheduler);
        return NULL;
    }
    for (int i = 0; i < milestones.count; i++) {
        int place = i;
        for (; place > 0 && scheduler->milestones[place - 1] > milestones.items[i]; place--)
            scheduler->milestones[place] = scheduler->milestones[place - 1];
        scheduler->milestones[place] = milestones.items[i];
    }
    scheduler->milestone_count = milestones.count;
    return scheduler;
}

const char *lk_scheduler_name(const lk_scheduler *scheduler)
{
    return scheduler->name;
}

bool lk_scheduler_needs_metric(const lk_scheduler *scheduler)
{
    return strcmp(scheduler->name, "ReduceLROnPlateau") == 0;
}

void lki_scheduler_apply(lk_scheduler *scheduler)
{
    lk_optimizer *optimizer = scheduler->optimizer;
    for (int i = 0; i < optimizer->group_count; i++) {
        lk_hyper *hyper = &optimizer->groups[i].hyper;
        hyper->lr = scheduler->rate(scheduler, i, hyper->lr);
        if (scheduler->momentum) *lki_group_momentum(optimizer, i) = scheduler->momentum(scheduler);
    }
}

lk_status lki_scheduler_bind(lk_scheduler *scheduler, lk_optimizer *optimizer)
{
    if (scheduler->optimizer)
        return lki_fail(LK_ERR_INVALID, "%s: already attached to an optimizer", scheduler->name);
    scheduler->base_lrs = LKI_NEW_ARRAY(double, optimizer->group_count);
    if (!scheduler->base_lrs) return LK_ERR_NOMEM;
    scheduler->optimizer = optimizer;
    lk_status status = scheduler->prepare ? scheduler->prepare(scheduler) : LK_OK;
    if (status != LK_OK) {
        lki_free(scheduler->base_lrs);
        scheduler->base_lrs = NULL;
        scheduler->optimizer = NULL;
        return status;
    }
    for (int i = 0; i < optimizer->group_count; i++) scheduler->base_lrs[i] = optimizer->groups[i].initial_lr;
    optimizer->has_scheduler = true;
    return LK_OK;
}

lk_status lki_scheduler_begin(lk_scheduler *scheduler)
{
    scheduler->last_epoch = 0;
    if (scheduler->restart) scheduler->restart(scheduler);
    if (scheduler->rate) lki_scheduler_apply(scheduler);
    return LK_OK;
}

lk_status lk_scheduler_attach(lk_scheduler *scheduler, lk_optimizer *optimizer)
{
    if (!scheduler || !optimizer)
        return lki_last_status() ? lki_last_status()
                                 : lki_fail(LK_ERR_INVALID, "the scheduler or the optimizer is NULL");
    LKI_TRY(lki_scheduler_bind(scheduler, optimizer));
    return lki_scheduler_begin(scheduler);
}

static lk_status step(lk_scheduler *scheduler, const double *metric)
{
    if (!scheduler->optimizer)
        return lki_fail(LK_ERR_INVALID, "%s: not attached to an optimizer", scheduler->name);
    scheduler->last_epoch++;
    if (scheduler->advance) {
        lk_status status = scheduler->advance(scheduler, metric);
        if (status != LK_OK) scheduler->last_epoch--;
        return status;
    }
    lki_scheduler_apply(scheduler);
    return LK_OK;
}

lk_status lk_scheduler_step(lk_scheduler *scheduler)
{
    return step(scheduler, NULL);
}

lk_status lk_scheduler_step_metric(lk_scheduler *scheduler, double metric)
{
    return step(scheduler, &metric);
}

/* ---- state ---- */

typedef struct number_place {
    const char *name;
    int64_t *count; /* one of the two */
    double *number;
} number_place;

enum { MAX_PLACES = 6 };

/* Everything of a scheduler that changes as it goes. */
static int list_places(const lk_scheduler *scheduler, number_place *places)
{
    lk_scheduler *own = (lk_scheduler *)scheduler;
    int count = 0;
    places[count++] = (number_place){"last_epoch", .count = &own->last_epoch};
    if (own->restarts.t_mult) {
        places[count++] = (number_place){"T_cur", .count = &own->restarts.t_cur};
        places[count++] = (number_place){"T_i", .count = &own->restarts.t_i};
    }
    if (lk_scheduler_needs_metric(own)) {
        places[count++] = (number_place){"best", .number = &own->plateau.best};
        places[count++] = (number_place){"num_bad_epochs", .count = &own->plateau.bad_epochs};
        places[count++] = (number_place){"cooldown_counter", .count = &own->plateau.cooldown_left};
    }
    return count;
}

static int save(const lk_scheduler *scheduler, const char *prefix, lk_named_number *numbers, int capacity,
                int found)
{
    number_place places[MAX_PLACES];
    int count = list_places(scheduler, places);
    for (int i = 0; i < count; i++, found++) {
        if (found >= capacity) continue;
        snprintf(numbers[found].name, sizeof numbers[found].name, "%s%s", prefix, places[i].name);
        numbers[found].value = places[i].count ? (double)*places[i].count : *places[i].number;
    }
    for (int i = 0; i < scheduler->part_count; i++) {
        char inner[40];
        snprintf(inner, sizeof inner, "%.24s%d.", prefix, i);
        found = save(scheduler->parts[i], inner, numbers, capacity, found);
    }
    return found;
}

int lk_scheduler_save(const lk_scheduler *scheduler, lk_named_number *numbers, int capacity)
{
    return save(scheduler, "", numbers, capacity, 0);
}

static const lk_named_number *find(const lk_named_number *numbers, int count, const char *prefix,
                                   const char *name)
{
    size_t length = strlen(prefix);
    for (int i = 0; i < count; i++)
        if (strncmp(numbers[i].name, prefix, length) == 0 && strcmp(numbers[i].name + length, name) == 0)
            return &numbers[i];
    return NULL;
}

/* With `write` false it only looks whether everything is there, so that a bad state changes nothing. */
static lk_status restore(lk_scheduler *scheduler, const char *prefix, const lk_named_number *numbers,
                         int number_count, bool write)
{
    number_place places[MAX_PLACES];
    int count = list_places(scheduler, places);
    for (int i = 0; i < count; i++) {
        const lk_named_number *number = find(numbers, number_count, prefix, places[i].name);
        if (!number)
            return lki_fail(LK_ERR_NOT_FOUND, "%s: the saved state has no \"%s%s\"", scheduler->name, prefix,
                            places[i].name);
        if (write && places[i].count) *places[i].count = (int64_t)number->value;
        if (write && places[i].number) *places[i].number = number->value;
    }
    for (int i = 0; i < scheduler->part_count; i++) {
        char inner[40];
        snprintf(inner, sizeof inner, "%.24s%d.", prefix, i);
        LKI_TRY(restore(scheduler->parts[i], inner, numbers, number_count, write));
    }
    return LK_OK;
}

lk_status lk_scheduler_restore(lk_scheduler *scheduler, const lk_named_number *numbers, int count)
{
    LKI_TRY(restore(scheduler, "", numbers, count, false));
    return restore(scheduler, "", numbers, count, true);
}
