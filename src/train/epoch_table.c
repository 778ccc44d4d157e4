#include "train/epoch_table.h"

#include "base/memory.h"
#include "train/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void add_column(lki_epoch_table *table, const lk_runner *runner, const char *loader,
                       const char *metric)
{
    const lk_metrics *metrics = lk_runner_loader_metrics(runner, loader);
    if (!lk_metrics_has(metrics, metric) || table->column_count == LKI_EPOCH_TABLE_COLUMNS) return;
    if (strcmp(loader, runner->valid_loader) == 0 && strcmp(metric, runner->valid_metric) == 0)
        table->decisive = table->column_count;
    snprintf(table->title[table->column_count++], sizeof *table->title, "%s %s", loader, metric);
}

/* The columns are those that the first epoch has. */
static void choose_columns(lki_epoch_table *table, const lk_runner *runner)
{
    table->decisive = -1;
    for (int i = 0; i < runner->run->loader_count; i++) {
        const char *loader = runner->run->loaders[i].key;
        add_column(table, runner, loader, runner->loss_key);
        if (strcmp(runner->valid_metric, runner->loss_key) != 0 &&
            strcmp(runner->valid_metric, "accuracy01") != 0)
            add_column(table, runner, loader, runner->valid_metric);
        add_column(table, runner, loader, "accuracy01");
    }
}

static double look_up(const lk_runner *runner, const char *title)
{
    for (int i = 0; i < runner->run->loader_count; i++) {
        const char *loader = runner->run->loaders[i].key;
        size_t length = strlen(loader);
        if (strncmp(title, loader, length) == 0 && title[length] == ' ')
            return lk_metrics_get(lk_runner_loader_metrics(runner, loader), title + length + 1);
    }
    return NAN;
}

lk_status lki_epoch_table_add(lki_epoch_table *table, const lk_runner *runner)
{
    if (table->row_count == 0) choose_columns(table, runner);
    if (table->row_count == table->capacity) {
        int capacity = table->capacity ? 2 * table->capacity : 16;
        lki_epoch_table_row *grown =
            lki_realloc(table->rows, sizeof *grown * (size_t)capacity, "the table of epochs");
        if (!grown) return LK_ERR_NOMEM;
        table->rows = grown;
        table->capacity = capacity;
    }
    lki_epoch_table_row *row = &table->rows[table->row_count++];
    row->epoch = runner->epoch_step;
    for (int i = 0; i < table->column_count; i++) row->value[i] = look_up(runner, table->title[i]);
    return LK_OK;
}

static int best_row(const lki_epoch_table *table, bool minimize)
{
    int best = -1;
    for (int i = 0; i < table->row_count && table->decisive >= 0; i++) {
        double value = table->rows[i].value[table->decisive];
        if (isnan(value)) continue;
        double leader = best < 0 ? NAN : table->rows[best].value[table->decisive];
        if (best < 0 || (minimize ? value < leader : value > leader)) best = i;
    }
    return best;
}

static void print_row(FILE *stream, const lki_epoch_table *table, int index, bool best)
{
    const lki_epoch_table_row *row = &table->rows[index];
    fprintf(stream, "%5lld", (long long)row->epoch);
    for (int i = 0; i < table->column_count; i++) {
        int width = (int)strlen(table->title[i]) > 10 ? (int)strlen(table->title[i]) : 10;
        if (isnan(row->value[i]))
            fprintf(stream, "  %*s", width, "-");
        else
            fprintf(stream, "  %*.4f", width, row->value[i]);
    }
    fprintf(stream, "%s\n", best ? "  *" : "");
}

static void print_best(FILE *stream, const lki_epoch_table *table, const lk_runner *runner, int best)
{
    const lki_epoch_table_row *row = &table->rows[best];
    fprintf(stream, "best: epoch %lld", (long long)row->epoch);
    for (int i = 0; i < table->column_count; i++)
        if (strncmp(table->title[i], runner->valid_loader, strlen(runner->valid_loader)) == 0 &&
            !isnan(row->value[i]))
            fprintf(stream, ", %s %.4f", table->title[i], row->value[i]);
    fprintf(stream, "\n");
}

void lki_epoch_table_print(FILE *stream, const lki_epoch_table *table, const lk_runner *runner)
{
    if (table->row_count == 0 || table->column_count == 0) return;
    int best = best_row(table, runner->minimize_valid_metric);
    fprintf(stream, "epoch");
    for (int i = 0; i < table->column_count; i++) fprintf(stream, "  %10s", table->title[i]);
    fprintf(stream, "\n");
    for (int i = 0; i < table->row_count; i++) print_row(stream, table, i, i == best);
    if (best >= 0) print_best(stream, table, runner, best);
}

void lki_epoch_table_fini(lki_epoch_table *table)
{
    lki_free(table->rows);
    *table = (lki_epoch_table){0};
}
