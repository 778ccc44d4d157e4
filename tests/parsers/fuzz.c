/* The readers under libFuzzer: fuzz_parsers --parser=NAME [FOLDER OR FILE...] [-runs=N ...].
 * scripts/fuzz-parsers builds and runs it. */
#include "parsers.h"

#include "base/plugin.h"
#include "config/registry.h"
#include "data/hdf5/hdf5_plugin.h"
#include "tensor/pictures/pictures_plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const parser *chosen;

/* Plug-ins are linked into this program, so that the sanitizers watch over them, too. */
const lki_plugin_host *lki_inside_plugin_host;
const void *lki_inside_plugin_services;
extern const lki_plugin_table lki_pictures_plugin, lki_hdf5_plugin;

/* Overrides ask what a component takes. All components would be all of the library: here there is one. */
const lk_component *lk_component_find(const char *name)
{
    static const lk_component train;
    return strcmp(name, "train") ? NULL : &train;
}

int lki_component_parameter_index(const lk_component *component, const char *name)
{
    return component && !strcmp(name, "num_epochs") ? 0 : -1;
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    for (int i = 1; i < *argc; i++)
        if (!strncmp((*argv)[i], "--parser=", 9)) chosen = find_parser((*argv)[i] + 9);
    if (!chosen) {
        for (int i = 0; i < PARSER_LISTS; i++)
            for (const parser *one = parser_lists[i]; one->name; one++) puts(one->name);
        exit(2);
    }
    lki_pictures.functions = lki_pictures_plugin.functions;
    lki_hdf5.functions = lki_hdf5_plugin.functions;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t nbytes)
{
    parse_afresh(chosen, data, nbytes);
    return 0;
}
