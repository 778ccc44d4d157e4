#include "base/cgroup.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_line(const char *folder, const char *path, const char *name, char *text, int capacity)
{
    char file[PATH_MAX];
    int length = snprintf(file, sizeof file, "%s%s/%s", folder, path, name);
    FILE *stream = length > 0 && (size_t)length < sizeof file ? fopen(file, "r") : NULL;
    bool found = stream && fgets(text, capacity, stream);
    if (stream) fclose(stream);
    return found;
}

static int whole_cores(long long quota, long long period)
{
    if (quota <= 0 || period <= 0) return 0;
    long long cores = (quota + period - 1) / period;
    return cores > INT_MAX ? 0 : (int)cores;
}

static int cores_of_v2(const char *folder, const char *path)
{
    char text[64];
    long long quota, period;
    if (!read_line(folder, path, "cpu.max", text, sizeof text)) return 0;
    return sscanf(text, "%lld %lld", &quota, &period) == 2 ? whole_cores(quota, period)
                                                           : 0; /* "max 100000" */
}

static int cores_of_v1(const char *folder, const char *path)
{
    char quota[64], period[64];
    if (!read_line(folder, path, "cpu.cfs_quota_us", quota, sizeof quota) ||
        !read_line(folder, path, "cpu.cfs_period_us", period, sizeof period))
        return 0;
    return whole_cores(atoll(quota), atoll(period)); /* -1: none */
}

/* The least of a group and those above it. A container may see its own group as the root. */
static int least_above(const char *folder, char *path, int (*cores_of)(const char *, const char *))
{
    int least = 0;
    for (;;) {
        char *end = strrchr(path, '/');
        if (end && !end[1]) *end = '\0';
        int cores = cores_of(folder, path);
        if (cores > 0 && (least == 0 || cores < least)) least = cores;
        end = strrchr(path, '/');
        if (!end) return least;
        *end = '\0';
    }
}

/* Whether "cpu" is among "cpu,cpuacct". */
static bool has_cpu(const char *controllers)
{
    for (const char *at = controllers; *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ','))
        if (strcspn(at, ",") == 3 && strncmp(at, "cpu", 3) == 0) return true;
    return false;
}

int lki_cgroup_cores(const char *membership, const char *root)
{
    char line[PATH_MAX + 128], folder[PATH_MAX];
    int least = 0;
    FILE *stream = fopen(membership, "r");
    if (!stream) return 0;
    while (fgets(line, sizeof line, stream)) { /* "4:cpu,cpuacct:/pod" or "0::/pod" */
        int cores = 0;
        char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *controllers++ = *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        if (!*controllers) {
            cores = least_above(root, path, cores_of_v2);
        } else if (has_cpu(controllers)) {
            snprintf(folder, sizeof folder, "%.2000s/%.200s", root, controllers);
            cores = least_above(folder, path, cores_of_v1);
        }
        if (cores > 0 && (least == 0 || cores < least)) least = cores;
    }
    fclose(stream);
    return least;
}
