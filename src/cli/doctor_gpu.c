/* The doctor's lines about GPUs: each with what it is, and the versions of what drives them. */
#include "cli/commands.h"

#include "base/memory.h"
#include "device/open_plugin.h"

#include <string.h>

static void print_gpu(const lki_cuda_plugin *plugin, int index)
{
    lki_cuda_device gpu = {0};
    char memory[32], free_memory[32];
    if (plugin->describe(index, &gpu) != LK_OK) {
        printf("%-12s %d: %s\n", "gpu", index, lk_error());
        return;
    }
    printf("%-12s %d: %s, compute capability %d.%d, %d processors, %s of memory, %s free, at %s\n", "gpu",
           index, gpu.name, gpu.major, gpu.minor, gpu.processor_count,
           lki_format_nbytes(memory, sizeof memory, gpu.memory_nbytes),
           lki_format_nbytes(free_memory, sizeof free_memory, gpu.free_nbytes), gpu.bus);
}

/* CUDA and its driver count 13020 for 13.2. */
static void print_cuda_version(const char *name, int version)
{
    printf("%-12s CUDA %d.%d\n", name, version / 1000, version % 1000 / 10);
}

static void print_library(const char *name, int version, int major, int minor)
{
    if (version)
        printf("%-12s %d.%d.%d\n", name, version / major, version % major / minor, version % minor);
    else
        printf("%-12s not installed\n", name);
}

void lki_doctor_gpus(void)
{
    char why[256];
    int count = lki_cuda_device_count(why);
    const lki_cuda_plugin *plugin = lki_cuda_has_device() ? lki_cuda_plugin_get() : NULL;
    lki_cuda_versions versions = {0};
    if (count == 0) printf("%-12s none: %s\n", "gpu", *why ? why : "none is visible");
    for (int i = 0; i < count; i++) print_gpu(plugin, i);
    if (!plugin) return;
    plugin->versions(&versions);
    if (versions.driver)
        print_cuda_version("driver", versions.driver);
    else
        printf("%-12s none\n", "driver");
    print_cuda_version("runtime", versions.runtime);
    print_library("cublas", versions.cublas, 10000, 100);
    print_library("cudnn", versions.cudnn, 10000, 100);
    print_library("nccl", versions.nccl, 10000, 100);
}
