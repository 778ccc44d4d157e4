/* What a config says that changes nothing: nobody should believe otherwise. */
#include "config/build.h"

#include "base/log.h"
#include "launch/role.h"

#include <string.h>

static bool changes_nothing(const lki_object *object, int index)
{
    const lk_parameter *parameter = &object->component->parameters[index];
    return parameter->no_effect && object->given[index] &&
           !lki_parameter_is_same(parameter, object->values[index]);
}

/* Fifty layers with `inplace: true` are worth one line. */
static bool was_noted(const lki_plan *plan, const lki_object *until, const char *name)
{
    for (const lki_object *object = plan->first; object != until; object = object->next) {
        const lk_parameter *parameters = object->component->parameters;
        for (int i = 0; parameters && parameters[i].name; i++)
            if (!strcmp(parameters[i].name, name) && changes_nothing(object, i)) return true;
    }
    return false;
}

void lki_plan_note_keys(const lki_plan *plan)
{
    lki_role role;
    char place[LKI_PLACE_CAPACITY];
    if (lki_launch_role(&role, lki_process_flags(), NULL, -1) == LK_OK && role.rank != 0) return;
    lki_plan_note_top(plan);
    for (const lki_object *object = plan->first; object; object = object->next) {
        const lk_parameter *parameters = object->component->parameters;
        for (int i = 0; parameters && parameters[i].name; i++) {
            if (!changes_nothing(object, i) || was_noted(plan, object, parameters[i].name)) continue;
            lki_log(LKI_LOG_WARNING, "%s: %s: %s has no effect here: %s",
                    lki_place_text(object->values[i]->place, place, sizeof place), object->called,
                    parameters[i].name, parameters[i].help);
        }
    }
}
