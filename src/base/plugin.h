/* Plug-ins: the parts of Lockstep that need a heavy library (MPI, Gloo, HDF5 ...) are shared objects of their
 * own, liblockstep_<name>.so, which are opened when they are first used. A program that does not need them
 * loads neither them nor their libraries.
 *
 * Each plug-in exports one table, lki_<name>_plugin. It calls back into the library through tables, too, not
 * by symbols: a program that links liblockstep.a has none to offer. base/inside_plugin.c gives the sources of
 * a plug-in the usual names (lki_fail, lki_calloc ...) over these tables.
 *
 * A plug-in is looked for in $LOCKSTEP_PLUGIN_PATH alone, if that is set; else beside liblockstep.so or the
 * program that links liblockstep.a, in the library folder of the installation that it belongs to, and where
 * the system's linker looks. It stays until the process ends. Thread-safe. */
#ifndef LKI_BASE_PLUGIN_H
#define LKI_BASE_PLUGIN_H

#include <lockstep/status.h>
#include <lockstep/version.h>

#include <stdbool.h>
#include <stddef.h>

/* Changes whenever a table below or in a plug-in's header does. */
enum { LKI_PLUGIN_VERSION = 3 };

/* What every plug-in may use of the library. */
typedef struct lki_plugin_host {
    lk_status (*fail)(lk_status status, const char *sentence);
    const char *(*error)(void);
    void (*log)(int level, const char *line);
    void *(*calloc)(size_t nbytes, const char *what);
    void *(*calloc_aligned)(size_t nbytes, const char *what);
    void *(*realloc)(void *block, size_t nbytes, const char *what);
    void (*free)(void *block);
} lki_plugin_host;

/* What a plug-in exports. The first two fields stay where they are in every version. */
typedef struct lki_plugin_table {
    int version;          /* LKI_PLUGIN_VERSION */
    const char *lockstep; /* lk_version() of the library that it was built with */
    size_t functions_nbytes, services_nbytes;
    const void *functions;        /* what it does, as its own header says */
    const lki_plugin_host **host; /* set by who opens it, */
    const void **services;        /* and what it needs beyond that */
} lki_plugin_table;

/* A plug-in as its user knows it: a static variable of the file that opens it. */
typedef struct lki_plugin {
    const char *name;    /* "hdf5": liblockstep_hdf5.so, lki_hdf5_plugin */
    const char *library; /* "HDF5", for people */
    const char *package; /* Debian's, with which it is built */
    size_t functions_nbytes;
    const void *services; /* NULL: none */
    size_t services_nbytes;
    /* The library opens objects of its own at run time, which expect to find its symbols (Open MPI). */
    bool shows_symbols;
    const void *_Atomic functions; /* set once it is open */
} lki_plugin;

/* The plug-in's functions; NULL with LK_ERR_UNSUPPORTED and one line if it is missing, cannot be loaded, or
 * belongs to another version of Lockstep. */
const void *lki_plugin_open(lki_plugin *plugin);

/* Where the file of a plug-in is; false if it is in none of the folders. The system's linker may know more.
 * `looked`, if wanted, receives the folders, for a message. */
bool lki_plugin_find(char *path, size_t capacity, const char *file, char *looked, size_t looked_capacity);

/* In the one source of a plug-in that ends with its table:
 *     LKI_PLUGIN_EXPORT(hdf5, lki_hdf5_functions, lki_tensor_services, .read = read_array, ...);
 * The services of a plug-in without any are `char`. */
extern const lki_plugin_host *lki_inside_plugin_host;
extern const void *lki_inside_plugin_services;
#define LKI_PLUGIN_EXPORT(name, functions_type, services_type, ...)                                          \
    static const functions_type exported_functions = {__VA_ARGS__};                                          \
    extern const lki_plugin_table lki_##name##_plugin;                                                       \
    const lki_plugin_table lki_##name##_plugin = {                                                           \
        .version = LKI_PLUGIN_VERSION,                                                                       \
        .lockstep = LK_VERSION,                                                                              \
        .functions_nbytes = sizeof(functions_type),                                                          \
        .services_nbytes = sizeof(services_type),                                                            \
        .functions = &exported_functions,                                                                    \
        .host = &lki_inside_plugin_host,                                                                     \
        .services = &lki_inside_plugin_services,                                                             \
    }

#endif
