#define _GNU_SOURCE
#include "launch/job_key.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/settings.h"
#include "base/status.h"
#include "comm/store/store_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEY_NBYTES = 32, MAX_NBYTES = 4096, SHOWN_NBYTES = 20 };

#define REMEDY "no key file is needed if LOCKSTEP_TOKEN or --token-file gives every rank the same secret"

static void to_hex(char *text, const unsigned char *bytes, int count)
{
    for (int i = 0; i < count; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

/* What stands for the secret in the token: the token has a limited length, the secret has not. If there is
 * too little room, the rest of the token is cut, never the digest. */
static void append_digest(char *token, size_t capacity, const char *secret)
{
    lki_wire_hello blank = {0};
    unsigned char digest[LKI_WIRE_MAC], nonce[LKI_WIRE_NONCE] = {0};
    char text[2 * SHOWN_NBYTES + 1];
    size_t length = strlen(token), most = capacity - sizeof text - 1;
    if (length > most) length = most;
    lki_wire_prove(digest, secret, "token", &blank, nonce);
    to_hex(text, digest, SHOWN_NBYTES);
    snprintf(token + length, capacity - length, " %s", text);
}

/* ---- The key file ---- */

static char *key_folder(void)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    if (config && *config == '/') return lki_format("%s/lockstep", config);
    struct passwd *user = home && *home ? NULL : getpwuid(geteuid());
    if (user) home = user->pw_dir;
    if (home && *home) return lki_format("%s/.config/lockstep", home);
    return lki_fail_null(LK_ERR_CONFIG, "the user has no home to keep a key in");
}

static lk_status write_key(int fd, const char *path)
{
    unsigned char random[KEY_NBYTES];
    char text[2 * KEY_NBYTES + 2];
    LKI_TRY(lki_wire_random(random, sizeof random));
    to_hex(text, random, KEY_NBYTES);
    strcat(text, "\n");
    ssize_t length = (ssize_t)strlen(text);
    if (write(fd, text, (size_t)length) == length && fsync(fd) == 0) return LK_OK;
    return lki_fail(LK_ERR_IO, "%s: could not write: %s", path, strerror(errno));
}

/* Written aside and linked, so that ranks that start at the same time read a whole key, and the same one. */
static lk_status make_key(const char *folder, const char *path)
{
    LKI_TRY(lki_make_folders(folder));
    LKI_SCOPED char *aside = lki_format("%s/.key.%ld.XXXXXX", folder, (long)getpid());
    if (!aside) return LK_ERR_NOMEM;
    int fd = mkostemp(aside, O_CLOEXEC); /* O_EXCL, and for the owner alone */
    if (fd < 0) return lki_fail(LK_ERR_IO, "%s: could not make: %s", path, strerror(errno));
    lk_status status = write_key(fd, path);
    close(fd);
    if (status == LK_OK && link(aside, path) != 0 && errno != EEXIST)
        status = lki_fail(LK_ERR_IO, "%s: could not make: %s", path, strerror(errno));
    unlink(aside);
    return status;
}

/* Reads a secret without the white space at its end. */
static lk_status read_secret(char text[MAX_NBYTES], int fd, const char *path)
{
    ssize_t length = read(fd, text, MAX_NBYTES - 1);
    if (length < 0) return lki_fail(LK_ERR_IO, "%s: could not read: %s", path, strerror(errno));
    while (length > 0 && strchr(" \t\r\n", text[length - 1])) length--;
    text[length] = '\0';
    if (strlen(text) != (size_t)length)
        return lki_fail(LK_ERR_CONFIG, "%s: expected text without zeros", path);
    return length ? LK_OK : lki_fail(LK_ERR_CONFIG, "%s: expected a secret, found nothing", path);
}

/* O_NONBLOCK in the open above it keeps a pipe from holding the run. */
static lk_status check_owner(int fd, const char *path)
{
    struct stat info;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        return lki_fail(LK_ERR_CONFIG, "%s: is no file: remove it, and a new key is made", path);
    if (info.st_uid != geteuid())
        return lki_fail(LK_ERR_CONFIG, "%s: belongs to another user: remove it, and a new key is made", path);
    if (info.st_mode & (S_IRWXG | S_IRWXO))
        return lki_fail(LK_ERR_CONFIG, "%s: others can read it: remove it, and a new key is made", path);
    return LK_OK;
}

static lk_status find_key(char text[MAX_NBYTES])
{
    LKI_SCOPED char *folder = key_folder();
    LKI_SCOPED char *path = folder ? lki_format("%s/key", folder) : NULL;
    if (!path) return lki_last_status();
    int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, fd = open(path, flags);
    if (fd < 0 && errno == ENOENT) {
        LKI_TRY(make_key(folder, path));
        fd = open(path, flags);
    }
    if (fd < 0) return lki_fail(LK_ERR_IO, "%s: could not open: %s", path, strerror(errno));
    lk_status status = check_owner(fd, path);
    if (status == LK_OK) status = read_secret(text, fd, path);
    close(fd);
    return status;
}

/* A home may be read-only, and some file systems show all files as readable by everyone: no new key helps. */
static lk_status read_key(char text[MAX_NBYTES])
{
    lki_error why = {0};
    if (lki_error_keep(&why, find_key(text)) == LK_OK) return LK_OK;
    return lki_fail(why.status, "%s; " REMEDY, why.sentence);
}

/* ---- The token ---- */

static lk_status read_token_file(char text[MAX_NBYTES], const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return lki_fail(LK_ERR_CONFIG, "--token-file %s: could not open: %s", path, strerror(errno));
    lk_status status = read_secret(text, fd, path);
    close(fd);
    return status == LK_OK ? LK_OK : lki_fail_prefix(status, "--token-file");
}

lk_status lki_job_key_add(char *token, size_t capacity, const char *token_file)
{
    char secret[MAX_NBYTES];
    const char *given = token_file ? NULL : lki_setting_text(LKI_SETTING_TOKEN);
    if (!given) LKI_TRY(token_file ? read_token_file(secret, token_file) : read_key(secret));
    append_digest(token, capacity, given ? given : secret);
    explicit_bzero(secret, sizeof secret);
    return LK_OK;
}

lk_status lki_job_key_random(char *token, size_t capacity)
{
    unsigned char random[KEY_NBYTES];
    char text[2 * KEY_NBYTES + 1];
    LKI_TRY(lki_wire_random(random, sizeof random));
    to_hex(text, random, KEY_NBYTES);
    snprintf(token, capacity, "forked %s", text);
    return LK_OK;
}
