#define _GNU_SOURCE
#include "launch/devices.h"

#include "base/status.h"
#include "base/threads.h"

#include <ctype.h>
#include <dirent.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_GPUS = 128 };

int lki_host_gpu_count(void)
{
    int count = 0;
    DIR *folder = opendir("/dev");
    if (!folder) return 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        const char *digits = entry->d_name + 6;
        if (strncmp(entry->d_name, "nvidia", 6) != 0 || !*digits) continue; /* not nvidiactl, nvidia-uvm */
        count += digits[strspn(digits, "0123456789")] == '\0';
    }
    closedir(folder);
    return count;
}

int lki_visible_gpu_count(const char *list, int gpu_count)
{
    bool seen[MAX_GPUS] = {false};
    int visible = 0;
    if (!list) return gpu_count;
    if (gpu_count > MAX_GPUS) gpu_count = MAX_GPUS;
    for (const char *at = list; visible < gpu_count;) {
        while (isspace((unsigned char)*at)) at++;
        if (strncmp(at, "GPU-", 4) == 0 || strncmp(at, "MIG-", 4) == 0) {
            visible++;
        } else {
            char *end = NULL;
            long number = strtol(at, &end, 10);
            if (end == at || number < 0 || number >= gpu_count || seen[number]) break;
            seen[number] = true;
            visible++;
        }
        at = strchr(at, ',');
        if (!at) break;
        at++;
    }
    return visible;
}

lk_status lki_gpu_of_rank(int *index, bool *shared, int local_rank, int local_size, int visible_count)
{
    if (visible_count < 1) return lki_fail(LK_ERR_UNSUPPORTED, "local rank %d sees no GPU", local_rank);
    *index = visible_count == 1 ? 0 : local_rank % visible_count;
    *shared = visible_count > 1 && local_size > visible_count;
    return LK_OK;
}

bool lki_cores_of_rank(int *begin, int *count, int core_count, int local_rank, int local_size)
{
    if (local_size < 1 || local_rank < 0 || local_rank >= local_size || core_count < local_size) return false;
    *begin = (int)((long)core_count * local_rank / local_size);
    *count = (int)((long)core_count * (local_rank + 1) / local_size) - *begin;
    return true;
}

static cpu_set_t unpinned;
static bool pinned;

void lki_pin_rank(int local_rank, int local_size)
{
    cpu_set_t mine;
    int begin, count, index = 0;
    if (pinned || sched_getaffinity(0, sizeof unpinned, &unpinned) != 0) return;
    if (!lki_cores_of_rank(&begin, &count, CPU_COUNT(&unpinned), local_rank, local_size)) return;
    CPU_ZERO(&mine);
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &unpinned)) continue;
        if (index >= begin && index < begin + count) CPU_SET(core, &mine);
        index++;
    }
    pinned = sched_setaffinity(0, sizeof mine, &mine) == 0;
}

void lki_unpin_rank(void)
{
    lki_share_cores(1);
    if (pinned) sched_setaffinity(0, sizeof unpinned, &unpinned);
    pinned = false;
}
