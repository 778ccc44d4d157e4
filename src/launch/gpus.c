#include "launch/gpus.h"

#include "base/memory.h"
#include "base/settings.h"
#include "base/status.h"
#include "device/open_plugin.h"
#include "launch/devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_NBYTES = 300, DEFAULT_JOIN_MS = 120000 };
#define VERDICT_KEY "lockstep/gpu/verdict"

/* "auto" may be overruled by the environment. */
static const char *resolve(const char *device)
{
    if (device && *device && strcmp(device, "auto") != 0) return device;
    const char *wanted = lki_setting_text(LKI_SETTING_ENGINE);
    return wanted ? wanted : "auto";
}

bool lki_gpu_is_meant(const char *device)
{
    if (!device) return false;
    device = resolve(device);
    return strcmp(device, "auto") == 0 || strncmp(device, "cuda", 4) == 0;
}

int lki_gpu_choose(const char *device, int local_rank, int local_size, char *why)
{
    int count = lki_cuda_device_count(why), index = 0;
    bool shared;
    if (count == 0) return -1;
    device = resolve(device);
    if (strncmp(device, "cuda:", 5) == 0) return atoi(device + 5);
    if (local_rank < 0) local_rank = 0;
    return lki_gpu_of_rank(&index, &shared, local_rank, local_size, count) == LK_OK ? index : -1;
}

static bool has_nccl(void)
{
    lki_cuda_versions versions;
    const lki_cuda_plugin *plugin = lki_cuda_plugin_get();
    if (!plugin) return false;
    plugin->versions(&versions);
    return versions.nccl > 0;
}

bool lki_gpus_suffice(const char *device, int local_size)
{
    if (!lki_gpu_is_meant(device) || strchr(resolve(device), ':')) return false;
    return lki_cuda_device_count(NULL) >= local_size && has_nccl();
}

/* Where this rank's GPU sits in its host; or "!" and why it has none that NCCL could use. */
static int describe_own(char word[WORD_NBYTES], const lki_meeting *meeting, const char *device)
{
    char why[256];
    lki_cuda_device gpu = {0};
    int index = lki_gpu_choose(device, meeting->local_rank, meeting->local_size, why);
    const lki_cuda_plugin *plugin = index < 0 ? NULL : lki_cuda_plugin_get();
    if (index < 0)
        snprintf(word, WORD_NBYTES, "!%s", why);
    else if (!plugin || plugin->describe(index, &gpu) != LK_OK)
        snprintf(word, WORD_NBYTES, "!%s", lk_error());
    else if (!has_nccl())
        snprintf(word, WORD_NBYTES, "!NCCL is not installed here");
    else
        snprintf(word, WORD_NBYTES, "%s", gpu.bus);
    return index;
}

static void key_of(char *key, size_t capacity, int rank)
{
    snprintf(key, capacity, "lockstep/gpu/%d", rank);
}

/* Rank 0: "nccl", "host", or "!" and whose fault it is. */
static lk_status decide(const lki_meeting *meeting, int world_size, bool must, int64_t timeout_ms)
{
    char key[64], verdict[WORD_NBYTES + 32];
    LKI_SCOPED char *words = lki_calloc((size_t)world_size * WORD_NBYTES, "the table of GPUs");
    if (!words) return LK_ERR_NOMEM;
    snprintf(verdict, sizeof verdict, "nccl");
    for (int r = 0; r < world_size; r++) {
        LKI_SCOPED char *value = NULL;
        char *word = words + (size_t)r * WORD_NBYTES;
        key_of(key, sizeof key, r);
        LKI_TRY(lki_store_wait(meeting->store, key, timeout_ms, &value, NULL));
        snprintf(word, WORD_NBYTES, "%s", value);
        if (word[0] == '!' && must) {
            snprintf(verdict, sizeof verdict, "!rank %d: %s", r, word + 1);
            break;
        }
        bool own = word[0] != '!';
        for (int other = 0; other < r && own; other++)
            own = meeting->host_of[other] != meeting->host_of[r] ||
                  strcmp(words + (size_t)other * WORD_NBYTES, word) != 0;
        if (!own && !must) snprintf(verdict, sizeof verdict, "host");
    }
    return lki_store_set(meeting->store, VERDICT_KEY, verdict, strlen(verdict));
}

/* Whether another rank of this host has the same GPU. */
static lk_status find_sharers(const lki_meeting *meeting, int rank, const char *own, bool *shared)
{
    char key[64];
    *shared = false;
    for (int i = 0; i < meeting->local_size; i++) {
        LKI_SCOPED char *value = NULL;
        if (meeting->locals[i] == rank) continue;
        key_of(key, sizeof key, meeting->locals[i]);
        LKI_TRY(lki_store_get(meeting->store, key, &value, NULL));
        *shared = *shared || strcmp(value, own) == 0;
    }
    return LK_OK;
}

lk_status lki_gpus_agree(lki_gpu_plan *out, const lki_meeting *meeting, const lki_role *role,
                         const char *device, bool must, int64_t timeout_ms)
{
    char key[64], word[WORD_NBYTES];
    LKI_SCOPED char *verdict = NULL;
    *out = (lki_gpu_plan){.device = describe_own(word, meeting, device)};
    if (!timeout_ms) timeout_ms = DEFAULT_JOIN_MS;
    key_of(key, sizeof key, role->rank);
    LKI_TRY(lki_store_set(meeting->store, key, word, strlen(word)));
    if (role->rank == 0) LKI_TRY(decide(meeting, role->world_size, must, timeout_ms));
    LKI_TRY(lki_store_wait(meeting->store, VERDICT_KEY, timeout_ms, &verdict, NULL));
    if (verdict[0] == '!') return lki_fail(LK_ERR_UNSUPPORTED, "comm nccl: %s", verdict + 1);
    out->nccl = strcmp(verdict, "nccl") == 0;
    return out->nccl ? find_sharers(meeting, role->rank, word, &out->shared) : LK_OK;
}
