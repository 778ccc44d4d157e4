#include "cli/load.h"

#include "base/memory.h"
#include "base/status.h"
#include "cli/expdir.h"

#include <string.h>

/* One key alone may also have been meant as an option. */
static lk_status override(lk_config *config, const char *command, const char *assignment)
{
    lki_error first = {0};
    lk_status status = lki_error_keep(&first, lk_config_override(config, assignment));
    size_t length = strcspn(assignment, "=/");
    if (!status || assignment[length] == '/') return status;
    LKI_SCOPED char *key = lki_strndup(assignment, length);
    const char *near = key ? lki_option_near(lki_command_find(command), key) : NULL;
    if (!near) return lki_error_restore(&first);
    return lki_fail(status, "%s; an option is called --%s", first.sentence, near);
}

static lk_status load(lk_config *config, const char *command, const lki_config_options *options)
{
    for (int i = 0; i < options->files.count; i++) LKI_TRY(lk_config_load(config, options->files.items[i]));
    for (int i = 0; i < options->overrides.count; i++)
        LKI_TRY(override(config, command, options->overrides.items[i]));
    return LK_OK;
}

int lki_load_components(const char *expdir)
{
    lk_status status = expdir ? lki_expdir_load(expdir) : LK_OK;
    return status ? lki_report(lki_build_exit_code(status)) : LKI_EXIT_DONE;
}

lk_config *lki_load_config(const char *command, const lki_config_options *options)
{
    if (!options->files.count) return lki_fail_null(LK_ERR_CONFIG, "%s: needs -C FILE", command);
    lk_config *config = lk_config_create();
    if (!config || load(config, command, options) == LK_OK) return config;
    lk_config_free(config);
    return NULL;
}

int lki_build_exit_code(lk_status status)
{
    bool is_data = status == LK_ERR_IO || status == LK_ERR_FORMAT || status == LK_ERR_NOMEM;
    return is_data ? LKI_EXIT_FAILED : LKI_EXIT_WRONG;
}
