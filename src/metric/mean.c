#include "metric/mean.h"

#include <string.h>

lk_status lki_mean_state_init(lki_mean_state *state, int width)
{
    state->width = width;
    state->moments.element_nbytes = sizeof(lki_moments);
    LKI_TRY(lki_metric_array_reserve(&state->moments, width));
    lki_mean_state_reset(state);
    return LK_OK;
}

void lki_mean_state_reset(lki_mean_state *state)
{
    if (state->width == 0) return;
    memset(state->moments.data, 0, sizeof(lki_moments) * (size_t)state->width);
    state->moments.count = state->width;
    for (int i = 0; i < state->width; i++) state->last[i] = NAN;
}

void lki_mean_state_add(lki_mean_state *state, int index, double value, double count)
{
    lki_moments_add((lki_moments *)state->moments.data + index, value, count);
    state->last[index] = value;
}

int lki_mean_state_parts(lki_mean_state *state, lki_metric_part *parts)
{
    parts[0] = (lki_metric_part){LKI_METRIC_JOIN, &state->moments, 0};
    return 1;
}

bool lki_mean_state_is_sound(const lki_mean_state *state)
{
    return state->width ? state->moments.count % state->width == 0 : state->moments.count == 0;
}

lki_moments lki_mean_state_total(const lki_mean_state *state, int index)
{
    const lki_moments *moments = state->moments.data;
    lki_moments total = moments[index];
    for (int64_t i = state->width + index; i < state->moments.count; i += state->width)
        lki_moments_merge(&total, &moments[i]);
    return total;
}

typedef struct mean_metric {
    lk_metric base;
    lki_mean_state state;
} mean_metric;

static lk_status mean_update_value(lk_metric *metric, double value, int64_t sample_count)
{
    lki_mean_state_add(&((mean_metric *)metric)->state, 0, value, (double)sample_count);
    return LK_OK;
}

static void mean_reset(lk_metric *metric)
{
    lki_mean_state_reset(&((mean_metric *)metric)->state);
}

static int mean_parts(lk_metric *metric, lki_metric_part parts[LKI_METRIC_MAX_PARTS])
{
    return lki_mean_state_parts(&((mean_metric *)metric)->state, parts);
}

static bool mean_is_sound(const lk_metric *metric)
{
    return lki_mean_state_is_sound(&((const mean_metric *)metric)->state);
}

static lk_status mean_compute(lk_metric *metric)
{
    lki_moments total = lki_mean_state_total(&((mean_metric *)metric)->state, 0);
    metric->values.items[0].value = metric->values.items[1].value = lki_moments_mean(&total);
    metric->values.items[2].value = lki_moments_std(&total);
    return LK_OK;
}

static lk_status mean_compute_batch(lk_metric *metric)
{
    metric->batch_values.items[0].value = ((mean_metric *)metric)->state.last[0];
    return LK_OK;
}

static void mean_fini(lk_metric *metric)
{
    lki_metric_array_fini(&((mean_metric *)metric)->state.moments);
}

static const lki_metric_kind mean_kind = {
    .name = "mean",
    .update_value = mean_update_value,
    .reset = mean_reset,
    .parts = mean_parts,
    .compute = mean_compute,
    .compute_batch = mean_compute_batch,
    .fini = mean_fini,
    .is_sound = mean_is_sound,
};

lk_metric *lk_mean_metric_create(const char *name, lk_metric_options options)
{
    lk_metric *metric = lki_metric_new(sizeof(mean_metric), &mean_kind, &options);
    if (!metric) return NULL;
    if (lki_mean_state_init(&((mean_metric *)metric)->state, 1) || lki_metric_add_value(metric, name, "") ||
        lki_metric_add_value(metric, name, "/mean") || lki_metric_add_value(metric, name, "/std") ||
        lki_metric_add_batch_value(metric, 0)) {
        lk_metric_free(metric);
        return NULL;
    }
    return metric;
}
