#include "run/run_engine.h"

#include "base/memory.h"
#include "base/status.h"
#include "device/open_plugin.h"
#include "launch/gpus.h"
#include "resume/kept_optimizer.h"
#include "run/run.h"
#include "step/shards.h"

#include <stdio.h>
#include <string.h>

enum { HOST_NBYTES = 160 };

/* What each rank says of its GPU. */
typedef struct gpu_word {
    int32_t number; /* among those it sees; -1: it computes on something else */
    char host[HOST_NBYTES];
    char bus[24];
    char name[100];
} gpu_word;

static const char *device_of(const lki_run *run)
{
    return run->given.device ? run->given.device : "auto";
}

/* The GPU that this rank takes if the run's device is one. Starts CUDA. */
static int gpu_of(const lki_run *run)
{
    const lki_role *role = lki_process_role();
    const char *device = device_of(run);
    if (!lki_gpu_is_meant(device) || !lki_cuda_has_device()) return 0;
    int gpu = lki_gpu_choose(device, role->local_rank, role->local_size, NULL);
    return gpu < 0 ? 0 : gpu;
}

static gpu_word own_word(const lk_runner *runner)
{
    gpu_word word = {.number = -1};
    lki_cuda_device gpu = {0};
    if (!runner->engine || strcmp(lk_engine_name(runner->engine), "cuda") != 0) return word;
    const lki_cuda_plugin *plugin = lki_cuda_plugin_get();
    int number = gpu_of(runner->run);
    if (!plugin || plugin->describe(number, &gpu) != LK_OK) return word;
    word.number = number;
    lki_host_identity(word.host, sizeof word.host);
    snprintf(word.bus, sizeof word.bus, "%s", gpu.bus);
    snprintf(word.name, sizeof word.name, "%.99s", gpu.name);
    return word;
}

static bool is_same_gpu(const gpu_word *a, const gpu_word *b)
{
    return strcmp(a->host, b->host) == 0 && strcmp(a->bus, b->bus) == 0;
}

static void describe(const gpu_word *words, int count, char *text, size_t capacity)
{
    const gpu_word *any = NULL;
    int ranks = 0, gpus = 0;
    text[0] = '\0';
    for (int i = 0; i < count; i++) {
        bool is_new = words[i].number >= 0;
        ranks += is_new;
        for (int j = 0; j < i && is_new; j++)
            is_new = words[j].number < 0 || !is_same_gpu(&words[i], &words[j]);
        gpus += is_new;
        if (is_new && !any) any = &words[i];
    }
    if (!any) return;
    size_t length = 0;
    if (ranks < count) length = (size_t)snprintf(text, capacity, "%d of %d ranks; ", ranks, count);
    if (ranks == 1)
        snprintf(text + length, capacity - length, "GPU %d: %s", any->number, any->name);
    else if (gpus == 1)
        snprintf(text + length, capacity - length, "%d ranks share GPU %d: %s", ranks, any->number,
                 any->name);
    else if (gpus < ranks)
        snprintf(text + length, capacity - length, "%d ranks share %d GPUs: %s", ranks, gpus, any->name);
    else
        snprintf(text + length, capacity - length, "%d GPUs, one per rank: %s", gpus, any->name);
}

lk_status lki_run_describe_gpus(const lk_runner *runner, char *text, size_t capacity)
{
    const lki_run *run = runner->run;
    gpu_word own = own_word(runner);
    /* All ranks have one device option: they agree on whether there is something to tell. */
    if (!run->ranks.comm || run->ranks.comm->size == 1 || !lki_gpu_is_meant(device_of(run))) {
        describe(&own, 1, text, capacity);
        return LK_OK;
    }
    LKI_SCOPED gpu_word *words = LKI_NEW_ARRAY(gpu_word, run->ranks.comm->size);
    if (!words) return LK_ERR_NOMEM;
    LKI_TRY(lk_comm_all_gather(run->ranks.comm, &own, words, sizeof own, LK_U8));
    describe(words, run->ranks.comm->size, text, capacity);
    return LK_OK;
}

double lki_run_gpu_memory_mb(const lk_runner *runner)
{
    lki_cuda_device gpu = {0};
    if (!runner->engine || strcmp(lk_engine_name(runner->engine), "cuda") != 0) return -1;
    const lki_cuda_plugin *plugin = lki_cuda_plugin_get();
    if (!plugin || plugin->describe(runner->run->engine.options.device, &gpu) != LK_OK) return -1;
    return (double)(gpu.memory_nbytes - gpu.free_nbytes) / 1048576;
}

/* ---- Opening and closing ---- */

lk_status lki_run_close_engine(lk_runner *runner)
{
    lk_status status = lki_steps_save_kept(runner);
    lk_engine_close(runner->run->engine.handle);
    runner->engine = runner->run->engine.handle = NULL;
    return status;
}

/* An evaluation takes the engine that is there, unless it names another device. */
static bool engine_suits(const lki_run *run, const lk_engine_options *wanted)
{
    const lk_engine_options *opened = &run->engine.options;
    if (run->evaluating && !run->given.options.device) return true;
    if (strcmp(run->engine.device, run->given.device) != 0) return false;
    return run->evaluating ||
           (opened->allow_tf32 == wanted->allow_tf32 && opened->benchmark == wanted->benchmark &&
            opened->cpu_level == wanted->cpu_level && opened->lane_count == wanted->lane_count);
}

lk_status lki_run_open_engine(lk_runner *runner)
{
    lki_run *run = runner->run;
    lk_engine_options options = {LK_SIZE(lk_engine_options),
                                 .thread_count = run->given.options.thread_count,
                                 .device = gpu_of(run),
                                 .allow_tf32 = run->given.options.tf32,
                                 .benchmark = run->given.options.benchmark,
                                 .cpu_level = run->engine.cpu_level,
                                 .lane_count = run->given.options.shards ? LKI_SHARD_LANES : 0};
    if (run->engine.handle && !engine_suits(run, &options)) LKI_TRY(lki_run_close_engine(runner));
    if (run->engine.handle) return LK_OK;
    run->engine.handle = lk_engine_open(run->given.device, &options);
    run->engine.options = options;
    snprintf(run->engine.device, sizeof run->engine.device, "%s", run->given.device);
    runner->engine = run->engine.handle;
    return run->engine.handle ? LK_OK : lki_fail_prefix(lki_last_status(), "device");
}
