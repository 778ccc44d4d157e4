#include "resume/optimizer_rule.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "optim/optimizer.h"
#include "resume/frozen_params.h"

#include <lockstep/sys/comm.h>

#include <stdio.h>
#include <string.h>

/* The names of a rule's states, as a sentence has them. */
typedef struct state_list {
    int count;
    char text[256]; /* "exp_avg, exp_avg_sq" */
} state_list;

static void add_state(state_list *list, const char *name, size_t length)
{
    size_t used = strlen(list->text);
    snprintf(list->text + used, sizeof list->text - used, "%s%.*s", list->count++ ? ", " : "", (int)length,
             name);
}

static bool is(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && strncmp(text, word, length) == 0;
}

/* "optimizer.exp_avg.0.weight" is state exp_avg of the parameter 0.weight: the word between the two. Sums of
 * gradients are the run's, "updates" and "frozen" are numbers, and "group" and "scaler" begin the names of
 * such. */
static void find_saved(state_list *list, const lk_state_dict *state, const char *prefix, const char *path)
{
    size_t before = strlen(prefix) + 1, after = strlen(path) + 1;
    for (int64_t i = 0; i < lk_state_dict_count(state); i++) {
        const char *name = lk_state_dict_name(state, i);
        size_t length = strlen(name);
        if (length <= before + after || strncmp(name, prefix, before - 1) != 0 || name[before - 1] != '.' ||
            name[length - after] != '.' || strcmp(name + length - after + 1, path) != 0)
            continue;
        const char *word = name + before;
        size_t word_length = length - before - after;
        if (memchr(word, '.', word_length) || is(word, word_length, "grad_sum") ||
            is(word, word_length, "updates") || is(word, word_length, "frozen") ||
            is(word, word_length, "group") || is(word, word_length, "scaler"))
            continue;
        add_state(list, word, word_length);
    }
}

/* The parameter that a file is judged by: not one that was frozen before any update. NULL: all of them were.
 */
static const char *find_updated(state_list *list, const lk_state_dict *state, const lki_flat *flat,
                                const char *prefix)
{
    for (int i = 0; i < flat->slice_count; i++) {
        const char *path = flat->slices[i].path;
        find_saved(list, state, prefix, path);
        if (list->count || !lki_frozen_has(state, prefix, path)) return path;
    }
    return NULL;
}

/* Whether the file has the states of the step's rule, all of them and no others. */
static lk_status compare_states(const lk_state_dict *state, const lk_step *step, const char *prefix,
                                state_list *saved, state_list *own, bool *same)
{
    const lki_flat *flat = &step->flat;
    *same = true;
    const char *path = find_updated(saved, state, flat, prefix);
    if (!path) return LK_OK; /* nothing that is trained has been: there is no state of it */
    for (int s = 0; s < flat->state_count; s++) {
        const char *word = lki_optimizer_state_name(step->options.optimizer, s);
        LKI_SCOPED char *name = lki_format("%s.%s.%s", prefix, word, path);
        if (!name) return LK_ERR_NOMEM;
        add_state(own, word, strlen(word));
        *same = *same && lk_state_dict_has(state, name);
    }
    *same = *same && saved->count == own->count;
    return LK_OK;
}

static const char *listed(const state_list *list)
{
    return list->count ? list->text : "no state";
}

static lk_status refuse(const char *prefix, const char *saved_name, const state_list *saved,
                        const char *own_name, const state_list *own)
{
    char writer[400];
    if (saved_name)
        snprintf(writer, sizeof writer, "%s (%s)", saved_name, listed(saved));
    else
        snprintf(writer, sizeof writer, "of a rule with %s", listed(saved));
    return lki_fail(
        LK_ERR_INVALID,
        "%s: the checkpoint's is %s, this run's is %s (%s): resume with the checkpoint's, or take "
        "the weights alone (autoresume best, or resume_model of CheckpointCallback)",
        prefix, writer, own_name, listed(own));
}

static bool is_adam(const char *name)
{
    return strcmp(name, "Adam") == 0 || strcmp(name, "AdamW") == 0;
}

lk_status lki_rule_save(lk_state_dict *state, const lk_optimizer *optimizer, const char *prefix)
{
    LKI_SCOPED char *name = lki_format("%s.rule", prefix);
    return name ? lk_state_dict_put_string(state, name, optimizer->name) : LK_ERR_NOMEM;
}

/* The name that was put; NULL where the file has none. */
static lk_status saved_name_of(const lk_state_dict *state, const char *prefix, const char **out)
{
    LKI_SCOPED char *name = lki_format("%s.rule", prefix);
    *out = NULL;
    if (!name) return LK_ERR_NOMEM;
    for (int64_t i = 0; i < lk_state_dict_string_count(state) && !*out; i++)
        if (strcmp(lk_state_dict_string_name(state, i), name) == 0)
            *out = lk_state_dict_get_string(state, name);
    return LK_OK;
}

lk_status lki_rule_check(const lk_state_dict *state, const lk_step *step, const char *prefix)
{
    const char *own_name = step->options.optimizer->name, *saved_name;
    state_list saved = {0}, own = {0};
    bool same_states;
    LKI_TRY(saved_name_of(state, prefix, &saved_name));
    LKI_TRY(compare_states(state, step, prefix, &saved, &own, &same_states));
    bool same_name = !saved_name || strcmp(saved_name, own_name) == 0;
    bool both_adam = saved_name && is_adam(saved_name) && is_adam(own_name);
    if (!same_states || !(same_name || both_adam)) return refuse(prefix, saved_name, &saved, own_name, &own);
    bool speaks = !step->options.comm || step->options.comm->rank == 0;
    if (!same_name && speaks)
        lki_log(LKI_LOG_WARNING, "the checkpoint's optimizer is %s, the run goes on with %s", saved_name,
                own_name);
    return LK_OK;
}
