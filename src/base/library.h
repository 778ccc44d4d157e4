/* Shared libraries that are loaded when something first needs them, so that a program that does not need them
 * pays neither the memory nor the time. A library stays until the process ends. Thread-safe. */
#ifndef LKI_BASE_LIBRARY_H
#define LKI_BASE_LIBRARY_H

/* Looks where the system's linker does for `name` ("libx.so.1"), then for `path`, the file that was there
 * when this was built. NULL with the reason where neither can be loaded. */
void *lki_library_open(const char *name, const char *path);

/* The function `name` into *function, which is a function pointer. False where the library has none. */
#define lki_library_function(library, name, function)                                                        \
    lki_library_symbol((library), (name), (function), sizeof *(function))
_Bool lki_library_symbol(void *library, const char *name, void *function, unsigned long nbytes);

/* Call it before a fork whose child goes on to compute. OpenMP, where one of the libraries uses it, keeps
 * threads for the calling thread; a child would have none of them and wait for them for ever. They end here,
 * and start again when they are next needed. */
void lki_library_end_threads(void);

#endif
