#include "cli/load.h"

#include "base/status.h"
#include "cli/expdir.h"

static lk_status load(lk_config *config, const lki_config_options *options)
{
    for (int i = 0; i < options->files.count; i++) LKI_TRY(lk_config_load(config, options->files.items[i]));
    for (int i = 0; i < options->overrides.count; i++)
        LKI_TRY(lk_config_override(config, options->overrides.items[i]));
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
    if (!config || load(config, options) == LK_OK) return config;
    lk_config_free(config);
    return NULL;
}

int lki_build_exit_code(lk_status status)
{
    bool is_data = status == LK_ERR_IO || status == LK_ERR_FORMAT || status == LK_ERR_NOMEM;
    return is_data ? LKI_EXIT_FAILED : LKI_EXIT_WRONG;
}
