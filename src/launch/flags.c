/* The launch flags on a command line, Torchbearer's names included. */
#include <lockstep/launch.h>

#include "launch/role.h"

#include "base/job.h"
#include "base/status.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

typedef enum flag_kind {
    FLAG_NONE,
    FLAG_WORLD_SIZE,
    FLAG_RANK,
    FLAG_HOST,
    FLAG_PORT,
    FLAG_NPROC,
    FLAG_TOKEN_FILE
} flag_kind;

static const struct {
    const char *name;
    flag_kind kind;
} known_flags[] = {
    {"--world-size", FLAG_WORLD_SIZE},
    {"--rank", FLAG_RANK},
    {"-r", FLAG_RANK},
    {"--host", FLAG_HOST},
    {"--master", FLAG_HOST},
    {"--master-addr", FLAG_HOST},
    {"-m", FLAG_HOST},
    {"--port", FLAG_PORT},
    {"--nproc", FLAG_NPROC},
    {"--token-file", FLAG_TOKEN_FILE},
};

/* The flag that an argument is, and its value where it is written "--flag=value". */
static flag_kind recognise(const char *argument, const char **value)
{
    *value = NULL;
    for (size_t i = 0; i < sizeof known_flags / sizeof *known_flags; i++) {
        size_t length = strlen(known_flags[i].name);
        if (strncmp(argument, known_flags[i].name, length) != 0) continue;
        if (argument[length] == '\0') return known_flags[i].kind;
        if (argument[length] == '=' && strncmp(argument, "--", 2) == 0) {
            *value = argument + length + 1;
            return known_flags[i].kind;
        }
    }
    return FLAG_NONE;
}

static lk_status read_int(const char *flag, const char *text, long least, long most, int *out)
{
    char *end = NULL;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < least || value > most)
        return lki_fail(LK_ERR_CONFIG, "%s: expected a number from %ld to %ld, found \"%s\"", flag, least,
                        most, text);
    *out = (int)value;
    return LK_OK;
}

static lk_status apply(lki_launch_flags *flags, flag_kind kind, const char *flag, const char *value)
{
    switch (kind) {
    case FLAG_WORLD_SIZE: return read_int(flag, value, 1, 1000000, &flags->world_size);
    case FLAG_RANK: flags->has_rank = true; return read_int(flag, value, 0, 999999, &flags->rank);
    case FLAG_PORT: return read_int(flag, value, 1, 65535, &flags->port);
    case FLAG_NPROC: return read_int(flag, value, 1, 1024, &flags->nproc);
    case FLAG_HOST:
        if (!*value) return lki_fail(LK_ERR_CONFIG, "%s: expected an address", flag);
        flags->host = value;
        return LK_OK;
    case FLAG_TOKEN_FILE:
        if (!*value) return lki_fail(LK_ERR_CONFIG, "%s: expected a file", flag);
        flags->token_file = value;
        return LK_OK;
    case FLAG_NONE: break;
    }
    return LK_OK;
}

lk_status lki_launch_flags_parse(lki_launch_flags *flags, int *argc, char **argv)
{
    int kept = 1;
    for (int i = 1; i < *argc; i++) {
        const char *value, *flag = argv[i];
        if (strcmp(flag, "--") == 0) { /* the rest is the program's own */
            while (i < *argc) argv[kept++] = argv[i++];
            break;
        }
        flag_kind kind = recognise(flag, &value);
        if (kind == FLAG_NONE) {
            argv[kept++] = argv[i];
            continue;
        }
        if (!value && i + 1 == *argc) return lki_fail(LK_ERR_CONFIG, "%s: expected a value", flag);
        if (!value) value = argv[++i];
        LKI_TRY(apply(flags, kind, flag, value));
    }
    argv[kept] = NULL;
    *argc = kept;
    return LK_OK;
}

static lki_launch_flags process_flags;

const lki_launch_flags *lki_process_flags(void)
{
    return &process_flags;
}

lk_status lk_launch_arguments(int *argc, char **argv)
{
    lki_launch_flags flags = {.default_world_size = 2}; /* as Torchbearer's example has it */
    LKI_TRY(lki_launch_flags_parse(&flags, argc, argv));
    process_flags = flags;
    lki_role role;
    LKI_TRY(lki_launch_role(&role, &flags, NULL, -1)); /* an impossible combination is said now */
    bool apart = role.source == LKI_ROLE_FLAGS && role.world_size > 1 && role.fork_count <= 1;
    if (apart) lki_job_expect_others();
    return LK_OK;
}
