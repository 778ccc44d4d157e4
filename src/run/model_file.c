#include "run/model_file.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"
#include "nn/describe.h"
#include "run/run.h"

#include <string.h>
#include <unistd.h>

bool lki_run_batch_shape(const lk_runner *runner, lk_dtype *dtype, lk_shape *shape)
{
    const lk_loader *loader = runner->run->loaders.items[0].loader;
    const lk_dataset *dataset = lk_loader_dataset(loader);
    int position = lk_dataset_find_field(dataset, runner->input_key);
    const lk_field *field = position < 0 ? NULL : lk_dataset_field(dataset, position);
    if (!field || field->shape.rank == LK_MAX_DIMS) return false;
    *dtype = field->dtype;
    shape->rank = field->shape.rank + 1;
    shape->dim[0] = lk_loader_batch_size(loader);
    memcpy(shape->dim + 1, field->shape.dim, sizeof *shape->dim * (size_t)field->shape.rank);
    return true;
}

/* What an earlier run left would be another model. */
static lk_status describe(const lk_runner *runner, const char *path, char **json)
{
    lk_dtype dtype;
    lk_shape shape;
    *json = NULL;
    if (runner->model && lki_run_batch_shape(runner, &dtype, &shape) &&
        lki_module_describe(runner->model, dtype, shape, json) == LK_OK)
        return lki_write_file_atomic(path, *json, strlen(*json));
    unlink(path);
    return LK_OK;
}

lk_status lki_run_write_model(lk_runner *runner)
{
    const lki_run *run = runner->run;
    if (!run->given.logdir) return LK_OK;
    LKI_SCOPED char *json = NULL;
    LKI_SCOPED char *path = lki_format("%s/model.json", run->given.logdir);
    if (!path) return LK_ERR_NOMEM;
    LKI_TRY(describe(runner, path, &json));
    for (int i = 0; i < run->reporting.logger_count && json; i++)
        LKI_TRY(lk_logger_log_model(run->reporting.loggers[i], json));
    return LK_OK;
}
