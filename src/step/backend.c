#include "step/backend.h"

/* The one place that asks where an engine's memory is. */
const lki_backend_ops *lki_backend_ops_for(const lk_engine *engine)
{
    return engine->ops->alloc ? &lki_on_device : &lki_on_host;
}

lk_status lki_backend_create(lki_backend **out, lk_engine *engine)
{
    *out = NULL;
    return lki_backend_ops_for(engine)->create(out, engine);
}

void lki_backend_free(lki_backend *backend)
{
    if (backend) backend->ops->free(backend);
}

bool lki_engine_runs_ahead(const lk_engine *engine)
{
    const lki_backend_ops *ops = engine ? lki_backend_ops_for(engine) : NULL;
    return ops && ops->runs_ahead && ops->runs_ahead(engine);
}

bool lki_engine_keeps_rows(const lk_engine *engine)
{
    const lki_backend_ops *ops = engine ? lki_backend_ops_for(engine) : NULL;
    return ops && ops->keeps_rows && ops->keeps_rows(engine);
}
