#define _GNU_SOURCE
#include "cli/expdir.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"

#include <lockstep/config.h>
#include <lockstep/version.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

/* ---- The sources ---- */

static bool has_ending(const char *name, const char *ending)
{
    size_t length = strlen(name), wanted = strlen(ending);
    return length > wanted && *name != '.' && !strcmp(name + length - wanted, ending);
}

static int is_source(const struct dirent *entry)
{
    return has_ending(entry->d_name, ".c");
}

static int is_header(const struct dirent *entry)
{
    return has_ending(entry->d_name, ".h");
}

/* Adds the paths of a folder's files, in the order of their names. */
static lk_status add_files(lki_words *paths, const char *folder, int (*filter)(const struct dirent *))
{
    struct dirent **entries = NULL;
    int count = scandir(folder, &entries, filter, alphasort);
    if (count < 0) return lki_fail(LK_ERR_CONFIG, "--expdir: %s: %s", folder, strerror(errno));
    lk_status status = LK_OK;
    for (int i = 0; i < count; i++) {
        LKI_SCOPED char *path = lki_format("%s/%s", folder, entries[i]->d_name);
        if (!status) status = lki_words_add(paths, path);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static lk_status find_sources(lki_words *sources, const char *folder)
{
    LKI_TRY(add_files(sources, folder, is_source));
    if (sources->count) return LK_OK;
    return lki_fail(LK_ERR_CONFIG, "--expdir: %s: there are no C sources (*.c) in it", folder);
}

/* ---- What the shared object depends on ---- */

static lk_status hash_text(EVP_MD_CTX *hash, const char *text)
{
    if (EVP_DigestUpdate(hash, text, strlen(text) + 1)) return LK_OK;
    return lki_fail(LK_ERR_UNSUPPORTED, "libcrypto could not compute SHA-256");
}

static lk_status hash_files(EVP_MD_CTX *hash, const lki_words *paths)
{
    for (int i = 0; i < paths->count; i++) {
        char *data = NULL;
        size_t nbytes;
        LKI_TRY(hash_text(hash, paths->items[i]));
        LKI_TRY(lki_read_file(&data, &nbytes, paths->items[i]));
        lk_status status = EVP_DigestUpdate(hash, data, nbytes) ? LK_OK : LK_ERR_UNSUPPORTED;
        lki_free(data);
        LKI_TRY(status);
    }
    return LK_OK;
}

/* What a compilation may read beside the folder's sources: its headers, Lockstep's, and what they include. */
static lk_status find_headers(lki_words *headers, const char *folder, const char *include)
{
    LKI_SCOPED char *public = lki_format("%s/lockstep", include);
    LKI_SCOPED char *sys = lki_format("%s/lockstep/sys", include);
    if (!public || !sys) return LK_ERR_NOMEM;
    LKI_TRY(add_files(headers, folder, is_header));
    LKI_TRY(add_files(headers, public, is_header));
    return add_files(headers, sys, is_header);
}

typedef struct build {
    lki_words compiler, sources, headers, included;
    char *include;
    char key[33];
} build;

static lk_status hash_all(build *b, EVP_MD_CTX *hash)
{
    struct utsname machine = {0};
    unsigned char digest[EVP_MAX_MD_SIZE];
    uname(&machine);
    if (!hash || !EVP_DigestInit_ex(hash, EVP_sha256(), NULL)) return LK_ERR_NOMEM;
    LKI_TRY(hash_text(hash, lk_version()));
    LKI_TRY(hash_text(hash, machine.machine));
    LKI_TRY(hash_text(hash, getenv("LDFLAGS") ? getenv("LDFLAGS") : ""));
    for (int i = 0; i < b->compiler.count; i++) LKI_TRY(hash_text(hash, b->compiler.items[i]));
    LKI_TRY(hash_files(hash, &b->sources));
    LKI_TRY(hash_files(hash, &b->headers));
    LKI_TRY(hash_files(hash, &b->included));
    if (!EVP_DigestFinal_ex(hash, digest, NULL)) return LK_ERR_NOMEM;
    for (int i = 0; i < 16; i++) snprintf(b->key + 2 * i, 3, "%02x", digest[i]);
    return LK_OK;
}

static lk_status prepare(build *b, const char *folder)
{
    LKI_TRY(find_sources(&b->sources, folder));
    LKI_TRY(lki_compiler_words(&b->compiler, &b->include));
    LKI_TRY(find_headers(&b->headers, folder, b->include));
    LKI_TRY(lki_find_includes(&b->included, &b->sources, &b->compiler));
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    lk_status status = hash_all(b, hash);
    EVP_MD_CTX_free(hash);
    return status;
}

static void finish(build *b)
{
    lki_words_free(&b->compiler);
    lki_words_free(&b->sources);
    lki_words_free(&b->headers);
    lki_words_free(&b->included);
    lki_free(b->include);
}

/* ---- Where it is kept ---- */

/* Opens the lock of a folder, which is made where it is missing; -1 with errno. */
static int open_lock(const char *cache)
{
    LKI_SCOPED char *path = lki_format("%s/lock", cache);
    if (!path || lki_make_folders(cache)) return -1;
    return open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
}

static char *user_cache(void)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && *cache) return lki_format("%s/lockstep", cache);
    return lki_format("%s/.cache/lockstep", home && *home ? home : "/tmp");
}

/* The lock is held until the object is loaded. A file system without locks has renaming still. */
static lk_status enter_cache(const char *folder, char **cache, int *lock)
{
    *cache = lki_format("%s/.lockstep", folder);
    *lock = *cache ? open_lock(*cache) : -1;
    if (*lock < 0) {
        lki_free(*cache);
        *cache = user_cache();
        *lock = *cache ? open_lock(*cache) : -1;
    }
    if (*lock < 0)
        return lki_fail(LK_ERR_IO, "--expdir: neither %s/.lockstep nor %s can be written: %s", folder,
                        *cache ? *cache : "the cache", strerror(errno));
    while (flock(*lock, LOCK_EX) && errno == EINTR) continue;
    return LK_OK;
}

/* ---- Compiling and loading ---- */

static lk_status compile(const build *b, const char *folder, const char *object)
{
    lki_words words = {0};
    struct utsname machine = {0};
    uname(&machine); /* hosts that share the folder have the same process numbers */
    LKI_SCOPED char *fresh = lki_format("%s.%s.%d", object, machine.nodename, (int)getpid());
    LKI_SCOPED char *what = lki_format("--expdir: %s", folder);
    lk_status status = fresh && what ? LK_OK : LK_ERR_NOMEM;
    for (int i = 0; i < b->compiler.count && !status; i++)
        status = lki_words_add(&words, b->compiler.items[i]);
    for (int i = 0; i < b->sources.count && !status; i++) status = lki_words_add(&words, b->sources.items[i]);
    if (!status) status = lki_words_add(&words, "-o");
    if (!status) status = lki_words_add(&words, fresh);
    if (!status) status = lki_words_split(&words, getenv("LDFLAGS"));
    if (!status) status = lki_words_add(&words, "-lm");
    if (!status) status = lki_run_command(&words, what);
    if (!status && rename(fresh, object))
        status = lki_fail(LK_ERR_IO, "%s: it could not be written: %s", object, strerror(errno));
    if (status && fresh) unlink(fresh);
    lki_words_free(&words);
    return status;
}

static lk_status load(const build *b, const char *folder)
{
    LKI_SCOPED char *cache = NULL;
    int lock = -1;
    LKI_TRY(enter_cache(folder, &cache, &lock));
    /* dlopen looks along its own path for a name without a slash; this one has one. */
    LKI_SCOPED char *object = lki_format("%s/components-%s.so", cache, b->key);
    lk_status status = object ? LK_OK : LK_ERR_NOMEM;
    if (!status && access(object, R_OK)) status = compile(b, folder, object);
    if (!status && (status = lk_components_load(object))) lki_fail_prefix(status, "--expdir");
    close(lock);
    return status;
}

lk_status lki_expdir_load(const char *folder)
{
    build b = {0};
    lk_status status = prepare(&b, folder);
    if (!status) status = load(&b, folder);
    finish(&b);
    return status;
}

lk_status lki_expdir_files(lki_words *files, const char *folder)
{
    LKI_TRY(add_files(files, folder, is_source));
    return add_files(files, folder, is_header);
}
