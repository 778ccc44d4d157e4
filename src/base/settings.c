#include "base/settings.h"

#include "base/status.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const lki_setting_entry lki_settings[] = {
#define X(symbol, kind, otherwise, meaning) {"LOCKSTEP_" #symbol, LKI_SETTING_##kind, otherwise, meaning},
    LKI_SETTING_LIST(X)
#undef X
};

const char *lki_setting_text(lki_setting setting)
{
    const char *text = getenv(lki_settings[setting].name);
    return text && *text ? text : NULL;
}

lk_status lki_setting_switch(lki_setting setting, lki_switch *out)
{
    const char *text = lki_setting_text(setting);
    *out = !text ? LKI_SWITCH_UNSET : strcmp(text, "0") ? LKI_SWITCH_ON : LKI_SWITCH_OFF;
    if (!text || !strcmp(text, "0") || !strcmp(text, "1")) return LK_OK;
    return lki_fail(LK_ERR_CONFIG, "%s: expected 0 or 1, found \"%s\"", lki_settings[setting].name, text);
}

lk_status lki_setting_seconds(lki_setting setting, int *out)
{
    const char *text = lki_setting_text(setting);
    char *end = NULL;
    *out = 0;
    if (!text) return LK_OK;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < 1 || value > LKI_SETTING_MAX_SECONDS)
        return lki_fail(LK_ERR_CONFIG, "%s: expected a number from 1 to %d, found \"%s\"",
                        lki_settings[setting].name, LKI_SETTING_MAX_SECONDS, text);
    *out = (int)value;
    return LK_OK;
}

lk_status lki_setting_check(lki_setting setting)
{
    lki_switch on;
    int seconds;
    switch (lki_settings[setting].kind) {
    case LKI_SETTING_SWITCH: return lki_setting_switch(setting, &on);
    case LKI_SETTING_SECONDS: return lki_setting_seconds(setting, &seconds);
    case LKI_SETTING_TEXT:
    case LKI_SETTING_SECRET: break;
    }
    return LK_OK;
}
