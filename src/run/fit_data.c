/* Fitting data to a run: dtypes that model and criterion take, and labels that mean the same in all loaders.
 *
 * What a model takes is not declared anywhere, but its graph knows: it is recorded with the dtype that a
 * field has, and if an op refuses that, with the dtypes that the field can become. The first one that is
 * accepted is taken. When none is, the field stays as it is, and the first batch reports why. */
#include "run/fit_data.h"

#include "base/status.h"
#include "data/convert.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "graph/graph.h"
#include "run/run.h"
#include "run/run_header.h"

#include <string.h>

enum { MAX_CANDIDATES = 3 };

/* The dtypes to try, the field's own first. A float becomes an integer only where no float is accepted, and
 * the conversion then refuses a fraction. */
static int list_candidates(const lk_dataset *dataset, int field, lk_dtype *out)
{
    lk_dtype own = lk_dataset_field(dataset, field)->dtype;
    int count = 0;
    out[count++] = own;
    if (lki_dataset_keeps_dtype(dataset, field)) return count;
    const lk_dtype floats[] = {LK_F32, LK_I64}, integers[] = {LK_I64, LK_F32};
    for (int i = 0; i < 2; i++) {
        lk_dtype next = lk_dtype_is_float(own) ? floats[i] : integers[i];
        if (next != own) out[count++] = next;
    }
    return count;
}

static lk_value *record_field(lk_graph *graph, const lk_loader *loader, int field, lk_dtype dtype)
{
    const lk_field *known = lk_dataset_field(lk_loader_dataset(loader), field);
    lk_shape shape = {.rank = known->shape.rank + 1, .dim = {lk_loader_batch_size(loader)}};
    memcpy(shape.dim + 1, known->shape.dim, sizeof *shape.dim * (size_t)known->shape.rank);
    return lk_graph_input(graph, known->name, dtype, shape);
}

typedef struct fit {
    const lk_runner *runner;
    const lk_loader *loader;
    int input, target; /* fields; target -1: none, or no criterion */
    lk_dtype input_dtype, target_dtype;
} fit;

/* Whether the model, and the criterion where asked, take the fields as these dtypes. */
static bool is_accepted(const fit *self, bool with_target)
{
    lk_graph *graph = lk_graph_create(false);
    if (!graph) return false;
    lk_value *input = record_field(graph, self->loader, self->input, self->input_dtype);
    lk_value *target =
        with_target ? record_field(graph, self->loader, self->target, self->target_dtype) : NULL;
    lk_value *output = input ? lk_module_forward(self->runner->model, input) : NULL;
    if (output && with_target) output = lk_criterion_forward(self->runner->criterion, output, target);
    bool accepted = output && !graph->status;
    lk_graph_free(graph);
    return accepted;
}

static bool choose(fit *self, int field, lk_dtype *slot, bool with_target)
{
    lk_dtype candidates[MAX_CANDIDATES];
    int count = list_candidates(lk_loader_dataset(self->loader), field, candidates);
    for (int i = 0; i < count; i++) {
        *slot = candidates[i];
        if (is_accepted(self, with_target)) return true;
    }
    return false;
}

static lk_status convert(lki_run *run, lk_loader *loader, int field, lk_dtype dtype)
{
    lk_dataset *dataset = lk_loader_dataset(loader);
    const lk_field *known = lk_dataset_field(dataset, field);
    if (known->dtype == dtype) return LK_OK;
    LKI_TRY(lki_header_note(&run->reporting.notes, "%s: %s → %s", known->name,
                            lki_dtype_long_name(known->dtype), lki_dtype_long_name(dtype)));
    lk_status status = lki_loader_set_dataset(loader, lki_dataset_cast(dataset, field, dtype));
    return status ? lki_fail_prefix(status, "loader \"%s\"", lk_loader_name(loader)) : LK_OK;
}

static lk_status fit_dtypes(lk_runner *runner, lk_loader *loader)
{
    const lk_dataset *dataset = lk_loader_dataset(loader);
    fit self = {.runner = runner,
                .loader = loader,
                .input = lk_dataset_find_field(dataset, runner->input_key),
                .target = runner->criterion ? lk_dataset_find_field(dataset, runner->target_key) : -1};
    if (self.input < 0 || !choose(&self, self.input, &self.input_dtype, false)) return LK_OK;
    /* A model that learns to give its input back has one field for both. */
    bool with_target = self.target >= 0 && self.target != self.input;
    if (with_target && !choose(&self, self.target, &self.target_dtype, true)) return LK_OK;
    LKI_TRY(convert(runner->run, loader, self.input, self.input_dtype));
    return with_target ? convert(runner->run, loader, self.target, self.target_dtype) : LK_OK;
}

static bool takes_input(const lk_runner *runner, lk_dtype dtype, lk_shape shape)
{
    lk_graph *graph = lk_graph_create(false);
    lk_value *input = graph ? lk_graph_input(graph, runner->input_key, dtype, shape) : NULL;
    bool accepted = input && lk_module_forward(runner->model, input) && !graph->status;
    lk_graph_free(graph);
    return accepted;
}

static lk_status convert_tensor(const char *name, const lk_tensor *from, lk_dtype dtype, lk_tensor **out)
{
    lk_tensor *dense = lk_tensor_is_contiguous(from) ? lk_tensor_view(from) : lk_tensor_clone(from);
    lk_tensor *made = dense ? lk_tensor_create(dtype, from->shape) : NULL;
    lk_status status = made ? LK_OK : lki_last_status();
    int64_t bad =
        made ? lki_convert(made->data, dtype, dense->data, dense->dtype, lk_tensor_count(dense)) : -1;
    if (bad >= 0) {
        int64_t width = lk_tensor_count(dense) / dense->shape.dim[0];
        status = lki_convert_fail(name, bad / width, dtype, dense->data, dense->dtype, bad);
        lk_tensor_free(made);
        made = NULL;
    }
    lk_tensor_free(dense);
    *out = made;
    return status;
}

lk_status lki_run_fit_input(const lk_runner *runner, const lk_tensor *features, lk_tensor **out)
{
    bool is_float = lk_dtype_is_float(features->dtype);
    const lk_dtype candidates[] = {is_float ? LK_F32 : LK_I64, is_float ? LK_I64 : LK_F32};
    *out = NULL;
    for (int i = 0; i < 2; i++)
        if (candidates[i] != features->dtype && takes_input(runner, candidates[i], features->shape))
            return convert_tensor(runner->input_key, features, candidates[i], out);
    return LK_OK;
}

/* ---- Classes ---- */

/* The loader whose classes count: the first one to train on, else the first one that has classes. */
static const lk_loader *loader_with_classes(const lki_run *run)
{
    const lk_loader *first = NULL;
    for (int i = 0; i < run->loaders.count; i++) {
        const lk_loader *loader = run->loaders.items[i].loader;
        if (lk_dataset_class_count(lk_loader_dataset(loader)) == 0) continue;
        if (strncmp(run->loaders.items[i].key, "train", 5) == 0) return loader;
        if (!first) first = loader;
    }
    return first;
}

static bool has_same_classes(const lk_dataset *a, const lk_dataset *b)
{
    int count = lk_dataset_class_count(a);
    if (count != lk_dataset_class_count(b)) return false;
    for (int i = 0; i < count; i++)
        if (strcmp(lk_dataset_class_name(a, i), lk_dataset_class_name(b, i)) != 0) return false;
    return true;
}

static lk_status fit_classes(lki_run *run)
{
    const lk_loader *train = loader_with_classes(run);
    for (int i = 0; i < run->loaders.count && train; i++) {
        lk_loader *loader = run->loaders.items[i].loader;
        lk_dataset *dataset = lk_loader_dataset(loader), *like = lk_loader_dataset(train);
        int count = lk_dataset_class_count(dataset);
        if (count == 0 || has_same_classes(dataset, like)) continue;
        lk_status status = lki_loader_set_dataset(loader, lki_dataset_relabel(dataset, like));
        if (status) return lki_fail_prefix(status, "loader \"%s\"", run->loaders.items[i].key);
        LKI_TRY(lki_header_note(&run->reporting.notes, "%s: %d of the %d classes of %s, numbered as there",
                                run->loaders.items[i].key, count, lk_dataset_class_count(like),
                                lk_loader_name(train)));
    }
    return LK_OK;
}

lk_status lki_run_fit_data(lk_runner *runner)
{
    lki_run *run = runner->run;
    bool own_batches = runner->ops && runner->ops->handle_batch;
    LKI_TRY(fit_classes(run));
    /* Only its author knows what a handle_batch does with the fields. */
    for (int i = 0; i < run->loaders.count && runner->model && !own_batches; i++)
        LKI_TRY(fit_dtypes(runner, run->loaders.items[i].loader));
    return LK_OK;
}
