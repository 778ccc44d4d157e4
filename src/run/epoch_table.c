#include "run/epoch_table.h"

#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"
#include "run/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int find_column(const lki_epoch_table *table, const char *title)
{
    for (int i = 0; i < table->column_count; i++)
        if (strcmp(table->title[i], title) == 0) return i;
    return -1;
}

/* The index of the column of that title, made where there is room for it; else -1. */
static int claim_column(lki_epoch_table *table, const char *title)
{
    int found = find_column(table, title);
    if (found >= 0 || table->column_count == LKI_EPOCH_TABLE_COLUMNS) return found;
    int column = table->column_count++;
    snprintf(table->title[column], sizeof *table->title, "%s", title);
    for (int i = 0; i < table->row_count; i++) table->rows[i].value[column] = NAN;
    return column;
}

static void add_column(lki_epoch_table *table, const lk_runner *runner, const char *loader,
                       const char *metric)
{
    char title[sizeof *table->title];
    if (!lk_metrics_has(lk_runner_loader_metrics(runner, loader), metric)) return;
    snprintf(title, sizeof title, "%s %s", loader, metric);
    claim_column(table, title);
}

static void add_columns(lki_epoch_table *table, const lk_runner *runner)
{
    for (int i = 0; i < runner->run->loaders.count; i++) {
        const char *loader = runner->run->loaders.items[i].key;
        add_column(table, runner, loader, runner->loss_key);
        if (strcmp(runner->valid_metric, runner->loss_key) != 0 &&
            strcmp(runner->valid_metric, "accuracy01") != 0)
            add_column(table, runner, loader, runner->valid_metric);
        add_column(table, runner, loader, "accuracy01");
    }
}

static double look_up(const lk_runner *runner, const char *title)
{
    for (int i = 0; i < runner->run->loaders.count; i++) {
        const char *loader = runner->run->loaders.items[i].key;
        size_t length = strlen(loader);
        if (strncmp(title, loader, length) == 0 && title[length] == ' ')
            return lk_metrics_get(lk_runner_loader_metrics(runner, loader), title + length + 1);
    }
    return NAN;
}

static lk_status make_room(lki_epoch_table *table, int64_t row_count)
{
    if (row_count <= table->capacity) return LK_OK;
    int64_t capacity = row_count < 16 ? 16 : 2 * row_count;
    lki_epoch_table_row *grown =
        lki_realloc(table->rows, sizeof *grown * (size_t)capacity, "the table of epochs");
    if (!grown) return LK_ERR_NOMEM;
    table->rows = grown;
    table->capacity = (int)capacity;
    return LK_OK;
}

lk_status lki_epoch_table_add(lki_epoch_table *table, const lk_runner *runner)
{
    int last = table->row_count - 1;
    add_columns(table, runner);
    if (last < 0 || table->rows[last].epoch != runner->epoch_step) {
        LKI_TRY(make_room(table, table->row_count + 1));
        last = table->row_count++;
    }
    lki_epoch_table_row *row = &table->rows[last];
    row->epoch = runner->epoch_step;
    for (int i = 0; i < table->column_count; i++) row->value[i] = look_up(runner, table->title[i]);
    return LK_OK;
}

/* ---- In a checkpoint ---- */

static lk_status save_column(const lki_epoch_table *table, lk_state_dict *state, int column)
{
    LKI_SCOPED char *name = lki_format("table.%s", table->title[column]);
    LKI_SCOPED double *values = LKI_NEW_ARRAY(double, table->row_count);
    if (!name || !values) return LK_ERR_NOMEM;
    for (int i = 0; i < table->row_count; i++) values[i] = table->rows[i].value[column];
    return lk_state_dict_put(state, name, lk_tensor_from(LK_F64, LK_SHAPE(table->row_count), values));
}

lk_status lki_epoch_table_save(const lki_epoch_table *table, lk_state_dict *state)
{
    if (table->row_count == 0) return LK_OK;
    LKI_SCOPED int64_t *epochs = LKI_NEW_ARRAY(int64_t, table->row_count);
    if (!epochs) return LK_ERR_NOMEM;
    for (int i = 0; i < table->row_count; i++) epochs[i] = table->rows[i].epoch;
    LKI_TRY(
        lk_state_dict_put(state, "table.epoch", lk_tensor_from(LK_I64, LK_SHAPE(table->row_count), epochs)));
    for (int i = 0; i < table->column_count; i++) LKI_TRY(save_column(table, state, i));
    return LK_OK;
}

static lk_status load_column(lki_epoch_table *table, const char *name, const lk_tensor *values)
{
    if (lk_tensor_count(values) != table->row_count)
        return lki_fail(LK_ERR_FORMAT, "%s has %lld rows where table.epoch has %d", name,
                        (long long)lk_tensor_count(values), table->row_count);
    int column = claim_column(table, name + strlen("table."));
    for (int i = 0; i < table->row_count && column >= 0; i++)
        table->rows[i].value[column] = lk_tensor_get(values, i);
    return LK_OK;
}

lk_status lki_epoch_table_restore(lki_epoch_table *table, const lk_state_dict *state)
{
    table->row_count = table->column_count = 0;
    if (!lk_state_dict_has(state, "table.epoch")) return LK_OK;
    const lk_tensor *epochs = lk_state_dict_get(state, "table.epoch");
    LKI_TRY(make_room(table, lk_tensor_count(epochs)));
    table->row_count = (int)lk_tensor_count(epochs);
    for (int i = 0; i < table->row_count; i++) table->rows[i].epoch = (int64_t)lk_tensor_get(epochs, i);
    for (int64_t i = 0; i < lk_state_dict_count(state); i++) {
        const char *name = lk_state_dict_name(state, i);
        if (strncmp(name, "table.", strlen("table.")) == 0 && strcmp(name, "table.epoch") != 0)
            LKI_TRY(load_column(table, name, lk_state_dict_tensor(state, i)));
    }
    return LK_OK;
}

/* ---- On paper ---- */

/* The column that epochs are compared by; -1 for none. */
static int decisive_column(const lki_epoch_table *table, const lk_runner *runner)
{
    char title[sizeof *table->title];
    snprintf(title, sizeof title, "%s %s", runner->valid_loader, runner->valid_metric);
    return find_column(table, title);
}

static int best_row(const lki_epoch_table *table, const lk_runner *runner)
{
    int best = -1, decisive = decisive_column(table, runner);
    for (int i = 0; i < table->row_count && decisive >= 0; i++) {
        double value = table->rows[i].value[decisive];
        if (isnan(value)) continue;
        double leader = best < 0 ? NAN : table->rows[best].value[decisive];
        if (best < 0 || (runner->minimize_valid_metric ? value < leader : value > leader)) best = i;
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
            lki_fprintf(stream, "  %*.4f", width, row->value[i]);
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
            lki_fprintf(stream, ", %s %.4f", table->title[i], row->value[i]);
    fprintf(stream, "\n");
}

/* With a limit: the first epochs, the best one and the last ones. */
static bool is_left_out(const lki_epoch_table *table, int row, int best, int limit)
{
    enum { FIRST = 3 };
    if (limit == 0 || table->row_count <= limit || row == best) return false;
    return row >= FIRST && row < table->row_count - (limit - FIRST - 1);
}

bool lki_epoch_table_last_is_best(const lki_epoch_table *table, const lk_runner *runner)
{
    return table->row_count > 0 && best_row(table, runner) == table->row_count - 1;
}

int lki_epoch_table_column(const lki_epoch_table *table, const char *title, double **values)
{
    int column = find_column(table, title);
    *values = column < 0 ? NULL : LKI_NEW_ARRAY(double, table->row_count);
    if (!*values) return 0;
    for (int i = 0; i < table->row_count; i++) (*values)[i] = table->rows[i].value[column];
    return table->row_count;
}

void lki_epoch_table_print(FILE *stream, const lki_epoch_table *table, const lk_runner *runner, int limit)
{
    if (table->row_count == 0 || table->column_count == 0) return;
    int best = best_row(table, runner);
    fprintf(stream, "epoch");
    for (int i = 0; i < table->column_count; i++) fprintf(stream, "  %10s", table->title[i]);
    fprintf(stream, "\n");
    for (int i = 0; i < table->row_count; i++) {
        if (!is_left_out(table, i, best, limit))
            print_row(stream, table, i, i == best);
        else if (!is_left_out(table, i - 1, best, limit))
            fprintf(stream, "  ...\n");
    }
    if (best >= 0) print_best(stream, table, runner, best);
}

void lki_epoch_table_fini(lki_epoch_table *table)
{
    lki_free(table->rows);
    *table = (lki_epoch_table){0};
}
