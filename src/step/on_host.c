/* Steps on the host: the flat buffers are what kernels compute on, and a step is its calls, one after
 * another, as step.c makes them. So there is next to nothing to do here: rows of a dataset are gathered into
 * a batch. */
#include "step/step.h"

#include "base/memory.h"
#include "base/status.h"
#include "data/rows.h"

typedef struct on_host {
    lki_backend backend;
    lk_tensor *gathered[LKI_MAX_STEP_FIELDS]; /* rows of a field, back to back; NULL before there are any */
} on_host;

static lk_status create(lki_backend **out, lk_engine *engine)
{
    on_host *self = LKI_NEW(on_host);
    if (!self) return LK_ERR_NOMEM;
    self->backend = (lki_backend){.ops = &lki_on_host, .engine = engine};
    *out = &self->backend;
    return LK_OK;
}

static void free_backend(lki_backend *backend)
{
    on_host *self = (on_host *)backend;
    for (int i = 0; i < LKI_MAX_STEP_FIELDS; i++) lk_tensor_free(self->gathered[i]);
    lki_free(self);
}

static lk_status bind_rows(lk_step *step, int index, const lk_input *field, const lki_announced *announced)
{
    const lk_tensor *wanted = field->tensor;
    lk_tensor **gathered = &((on_host *)step->backend)->gathered[index];
    if (!*gathered || (*gathered)->dtype != wanted->dtype ||
        !lk_shape_equal((*gathered)->shape, wanted->shape)) {
        lk_tensor_free(*gathered);
        *gathered = lk_tensor_create(wanted->dtype, wanted->shape);
        if (!*gathered) return LK_ERR_NOMEM;
    }
    lki_rows source = lki_rows_of(announced->rows, wanted->dtype);
    LKI_TRY(lki_rows_check(&source, field->name));
    lki_rows_gather(&source, announced->indices, wanted->shape.dim[0], (*gathered)->data);
    return lki_plan_bind(step->current->plan, index, (*gathered)->data);
}

const lki_backend_ops lki_on_host = {
    .on_host = true,
    .create = create,
    .free = free_backend,
    .bind_rows = bind_rows,
};
