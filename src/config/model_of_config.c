#include "config/model_of_config.h"

#include "base/status.h"
#include "config/config.h"
#include "config/run_config.h"

#include <lockstep/models.h>

#include <stdio.h>
#include <string.h>

/* ---- An object after what it is made of ---- */

static lk_status build_below(lki_plan *plan, const lki_node *node);

static lk_status build_with_parts(lki_plan *plan, lki_object *object)
{
    if (object->built || object->is_given) return LK_OK;
    const lk_parameter *parameters = object->component->parameters;
    for (int i = 0; parameters && parameters[i].name; i++) LKI_TRY(build_below(plan, object->values[i]));
    return lki_object_build(plan, object);
}

static lk_status build_below(lki_plan *plan, const lki_node *node)
{
    lki_object *object = lki_node_object(node);
    if (object) return build_with_parts(plan, object);
    for (int i = 0; node && i < node->count; i++) LKI_TRY(build_below(plan, node->entries[i].value));
    return LK_OK;
}

/* ---- Which object it is ---- */

static lk_status find_model(const lk_config *config, const lki_plan *plan, lki_object **out)
{
    const lki_object *call = lki_config_find_call(config, "train");
    lki_object *own = call ? lki_object_argument(call, "model", 0) : NULL;
    lki_object *runners = plan->runner ? lki_object_argument(plan->runner, "model", 0) : NULL;
    if (!own && runners && lki_object_key(plan->runner, "model", 0))
        return lki_fail(LK_ERR_UNSUPPORTED, "the config has several models; one is needed here");
    *out = own ? own : runners;
    if (!*out)
        return lki_fail(LK_ERR_CONFIG, "the config has no model: neither the runner nor train names one");
    return LK_OK;
}

static lk_status copy_key(const lki_plan *plan, const char *name, const char *otherwise, char key[64])
{
    lk_args args = {.plan = (lki_plan *)plan, .object = plan->runner};
    const lk_parameter *parameters = plan->runner ? plan->runner->component->parameters : NULL;
    const char *given = NULL;
    for (int i = 0; parameters && parameters[i].name; i++)
        if (!strcmp(parameters[i].name, name)) given = lk_arg_string(&args, name);
    snprintf(key, 64, "%s", given ? given : otherwise);
    return args.status;
}

static lk_status take_model(lk_config *config, lki_plan *plan, bool draws, lki_config_model *out)
{
    lki_object *object;
    LKI_TRY(lki_config_plan(config, plan));
    LKI_TRY(find_model(config, plan, &object));
    LKI_TRY(copy_key(plan, "input_key", "features", out->input_key));
    LKI_TRY(copy_key(plan, "output_key", "logits", out->output_key));
    if (!draws) lk_skip_init(true);
    lk_status status = build_with_parts(plan, object);
    if (!draws) lk_skip_init(false);
    for (lki_kept *kept = plan->kept; kept; kept = kept->next) kept->free(kept->object);
    plan->kept = NULL;
    if (status) return status;
    out->module = object->pointer;
    object->taken = true;
    return LK_OK;
}

lk_status lki_model_of_config(const char *path, bool draws, lki_config_model *out)
{
    lki_plan plan = {0};
    lk_config *config = lk_config_create();
    lk_status status = config ? lk_config_load(config, path) : lki_last_status();
    *out = (lki_config_model){0};
    if (!status) {
        status = take_model(config, &plan, draws, out);
        if (status && !strstr(lk_error(), path)) lki_fail_prefix(status, "%s", path);
        lki_plan_fini(&plan);
    }
    lk_config_free(config);
    return status;
}
