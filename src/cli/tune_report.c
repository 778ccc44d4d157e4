/* What a study prints: a line per trial that ends, and the table. */
#include "cli/tune.h"

#include "base/memory.h"
#include "base/number_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CELL = 96 };

void lki_tune_print_metric(FILE *out, const lki_tuning *tuning)
{
    fprintf(out, "%s/%s", tuning->loader_key ? tuning->loader_key : "train", tuning->metric_key);
}

static void print_values(FILE *out, const lki_tuning *tuning, const lki_trial *trial)
{
    for (int i = 0; i < tuning->parameter_count; i++) {
        LKI_SCOPED char *text = lki_tune_value_text(&tuning->parameters[i], trial->values[i]);
        fprintf(out, "%s%s %s", i ? ", " : "", tuning->parameters[i].name, text ? text : "?");
    }
}

void lki_tune_print_begin(const lki_tuning *tuning)
{
    static const char *const searches[] = {"random", "grid", "TPE"};
    static const char *const pruners[] = {"", ", pruned by the median", ", pruned by successive halving"};
    const lki_study *study = &tuning->study;
    int done = study->trial_count - lki_study_count(study, LKI_TRIAL_OPEN);
    if (tuning->options->quiet) return;
    if (tuning->title) printf("study %s: ", tuning->title);
    printf("%d trials in %s, search %s%s: ", tuning->trials, tuning->logdir, searches[tuning->search.kind],
           pruners[tuning->pruner.kind]);
    printf("the %s ", tuning->minimize ? "lowest" : "highest");
    lki_tune_print_metric(stdout, tuning);
    printf("\n");
    if (study->trial_count) printf("%s: goes on after %d trials\n", study->path, done);
    fflush(stdout);
}

static int64_t last_epoch(const lki_trial *trial)
{
    return trial->epoch_count ? trial->epochs[trial->epoch_count - 1].epoch : 0;
}

void lki_tune_print_trial(const lki_tuning *tuning, const lki_trial *trial)
{
    int64_t epochs = last_epoch(trial);
    if (tuning->options->quiet) return;
    printf("%c trial %d: ", lki_study_best(&tuning->study) == trial ? '*' : ' ', trial->number);
    if (trial->state == LKI_TRIAL_FAILED) {
        printf("failed: %s (", trial->sentence);
        print_values(stdout, tuning, trial);
        printf(")\n");
    } else {
        lki_tune_print_metric(stdout, tuning);
        lki_fprintf(stdout, " %.6g, ", lki_trial_value(trial));
        print_values(stdout, tuning, trial);
        if (trial->state == LKI_TRIAL_PRUNED) printf(", pruned at epoch %" PRId64, epochs);
        printf("\n");
    }
    fflush(stdout);
}

/* ---- The table ---- */

static const lki_study *sorted_for; /* qsort has no context; the command has one thread */

/* Complete, pruned, open, failed; within those by value. */
static int compare(const void *a, const void *b)
{
    static const int place[] = {2, 0, 1, 3};
    const lki_trial *first = *(lki_trial *const *)a, *second = *(lki_trial *const *)b;
    if (place[first->state] != place[second->state]) return place[first->state] - place[second->state];
    if (lki_study_is_better(sorted_for, lki_trial_value(first), lki_trial_value(second))) return -1;
    if (lki_study_is_better(sorted_for, lki_trial_value(second), lki_trial_value(first))) return 1;
    return first->number - second->number;
}

/* Columns: trial, state, epochs, the metric, then the parameters. */
enum { TRIAL, STATE, EPOCHS, METRIC, FIRST_PARAMETER };

static void cell(const lki_tuning *tuning, const lki_trial *trial, int column, char *out)
{
    static const char *const states[] = {"open", "complete", "pruned", "failed"};
    static const char *const heads[] = {"trial", "state", "epochs"};
    *out = '\0';
    if (!trial && column == METRIC)
        snprintf(out, CELL, "%s/%s", tuning->loader_key ? tuning->loader_key : "train", tuning->metric_key);
    else if (!trial)
        snprintf(out, CELL, "%s",
                 column < METRIC ? heads[column] : tuning->parameters[column - FIRST_PARAMETER].name);
    else if (column == TRIAL)
        snprintf(out, CELL, "%d", trial->number);
    else if (column == STATE)
        snprintf(out, CELL, "%s", states[trial->state]);
    else if (column == EPOCHS)
        snprintf(out, CELL, "%" PRId64, last_epoch(trial));
    else if (column == METRIC && isnan(lki_trial_value(trial)))
        snprintf(out, CELL, "-");
    else if (column == METRIC)
        lki_snprintf(out, CELL, "%.6g", lki_trial_value(trial));
    else {
        int parameter = column - FIRST_PARAMETER;
        LKI_SCOPED char *text = lki_tune_value_text(&tuning->parameters[parameter], trial->values[parameter]);
        snprintf(out, CELL, "%s", text ? text : "?");
    }
}

static void print_row(const lki_tuning *tuning, const lki_trial *trial, const int *widths)
{
    char text[CELL];
    int columns = FIRST_PARAMETER + tuning->parameter_count;
    for (int c = 0; c < columns; c++) {
        cell(tuning, trial, c, text);
        if (c + 1 < columns)
            printf("%-*s  ", widths[c], text);
        else
            printf("%s\n", text);
    }
}

void lki_tune_print_table(const lki_tuning *tuning)
{
    const lki_study *study = &tuning->study;
    int widths[FIRST_PARAMETER + LKI_TUNE_MAX_PARAMETERS] = {0};
    char text[CELL];
    lki_trial **sorted = LKI_NEW_ARRAY(lki_trial *, study->trial_count + 1);
    if (!sorted) return;
    for (int i = 0; i < study->trial_count; i++) sorted[i] = study->trials[i];
    sorted_for = study;
    qsort(sorted, (size_t)study->trial_count, sizeof *sorted, compare);
    for (int i = -1; i < study->trial_count; i++)
        for (int c = 0; c < FIRST_PARAMETER + tuning->parameter_count; c++) {
            cell(tuning, i < 0 ? NULL : sorted[i], c, text);
            if ((int)strlen(text) > widths[c]) widths[c] = (int)strlen(text);
        }
    printf("\n");
    print_row(tuning, NULL, widths);
    for (int i = 0; i < study->trial_count; i++) print_row(tuning, sorted[i], widths);
    lki_free(sorted);
}
