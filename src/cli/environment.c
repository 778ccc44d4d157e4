/* The environment variables of base/settings.h, for people. An unknown one is a slip of the hand, which would
 * otherwise go unnoticed. */
#include "cli/environment.h"

#include "base/log.h"
#include "base/settings.h"
#include "base/suggest.h"
#include "launch/role.h"

#include <lockstep/status.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static const char *const for_tests[] = {
#define X(symbol) "LOCKSTEP_" #symbol,
    LKI_TEST_SETTING_LIST(X)
#undef X
};

static bool is_known(const char *name, lki_suggestion *near)
{
    for (int i = 0; i < LKI_SETTING_COUNT; i++) {
        if (!strcmp(name, lki_settings[i].name)) return true;
        lki_suggest_offer(near, lki_settings[i].name);
    }
    for (size_t i = 0; i < sizeof for_tests / sizeof *for_tests; i++)
        if (!strncmp(name, for_tests[i], strlen(for_tests[i]))) return true;
    return false;
}

void lki_environment_note(void)
{
    lki_role role;
    if (lki_launch_role(&role, lki_process_flags(), NULL, -1) == LK_OK && role.rank != 0) return;
    for (char **variable = environ; variable && *variable; variable++) {
        char name[64], hint[160];
        size_t length = strcspn(*variable, "=");
        if (strncmp(*variable, "LOCKSTEP_", 9) != 0 || length >= sizeof name) continue;
        snprintf(name, sizeof name, "%.*s", (int)length, *variable);
        lki_suggestion near = {.wanted = name};
        if (!is_known(name, &near))
            lki_log(LKI_LOG_WARNING, "unknown environment variable %s%s", name,
                    lki_suggest_text(&near, hint, sizeof hint));
    }
}

void lki_environment_print(FILE *out)
{
    fprintf(out, "\nEnvironment variables:\n");
    for (int i = 0; i < LKI_SETTING_COUNT; i++) {
        const lki_setting_entry *entry = &lki_settings[i];
        fprintf(out, "  %-26s %s", entry->name, entry->meaning);
        if (*entry->otherwise) fprintf(out, " (%s)", entry->otherwise);
        fputc('\n', out);
    }
}

void lki_environment_print_set(FILE *out)
{
    for (int i = 0; i < LKI_SETTING_COUNT; i++) {
        const lki_setting_entry *entry = &lki_settings[i];
        const char *text = lki_setting_text((lki_setting)i);
        if (!text) continue;
        if (lki_setting_check((lki_setting)i))
            fprintf(out, "%-12s %s\n", "setting", lk_error());
        else
            fprintf(out, "%-12s %s=%s\n", "setting", entry->name,
                    entry->kind == LKI_SETTING_SECRET ? "(a secret)" : text);
    }
}
