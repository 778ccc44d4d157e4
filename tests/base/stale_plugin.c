/* Plug-ins of other versions, for test_plugin.c: each file that is made of this one has all of the tables. */
#include "base/plugin.h"

static const int functions[4] = {0};
static const lki_plugin_host *host;
static const void *services;

#define TABLE(name, ...)                                                                                     \
    extern const lki_plugin_table lki_##name##_plugin;                                                       \
    const lki_plugin_table lki_##name##_plugin = {                                                           \
        .functions = functions, .host = &host, .services = &services, .services_nbytes = 1, __VA_ARGS__}

TABLE(stale, .version = LKI_PLUGIN_VERSION + 1, .lockstep = LK_VERSION);
TABLE(other, .version = LKI_PLUGIN_VERSION, .lockstep = "0.0.0");
TABLE(small, .version = LKI_PLUGIN_VERSION, .lockstep = LK_VERSION, .functions_nbytes = sizeof(int));
/* liblockstep_empty.so has no lki_empty_plugin. */
