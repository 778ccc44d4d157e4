/* Every environment variable that is read, in one table. A variable that is not in it is a typing mistake,
 * which would otherwise go unnoticed. tests/cli/test_environment.c compares the table with the sources, with
 * docs/config.md and with the man page. */
#include "cli/environment.h"

#include "base/log.h"
#include "base/suggest.h"
#include "launch/role.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

const lki_variable lki_variables[] = {
    {"LOCKSTEP_CHANNELS_LAST", "1: channels last wherever the engine can; 0: never"},
    {"LOCKSTEP_COMM_TIMEOUT", "seconds that a rank waits for the others in a collective (300)"},
    {"LOCKSTEP_CPU_LEVEL",
     "the CPU's kernels: amx, avx512bf16, avx512, avx2 or base; not above what the CPU has"},
    {"LOCKSTEP_CUDA_PLUGIN", "path of the library for GPUs (liblockstep_cuda.so)"},
    {"LOCKSTEP_ENGINE", "the engine that device auto means: cpu, cuda or ref"},
    {"LOCKSTEP_HOST_ID", "the name of this host, if hosts share one name"},
    {"LOCKSTEP_INTERFACE", "the network interface for Gloo and NCCL"},
    {"LOCKSTEP_JOIN_TIMEOUT", "seconds that ranks wait for each other at the start (120)"},
    {"LOCKSTEP_LINK_TIMEOUT", "seconds that a link between hosts may be silent (20)"},
    {"LOCKSTEP_LOW_ACTIVATIONS", "1: with bf16 and fp16, keep activations in 16 bits; 0: in 32 bits"},
    {"LOCKSTEP_MNIST_MIRRORS", "addresses to download MNIST from, separated by spaces"},
    {"LOCKSTEP_ONE_KERNEL",
     "small steps on a GPU: 0: always a CUDA graph; 1: fail if a step is not one kernel"},
    {"LOCKSTEP_PLUGIN_PATH", "the directory of the plug-ins, liblockstep_*.so (beside the library)"},
    {"LOCKSTEP_SHM", "the directory for fields that the ranks of a host share (/dev/shm)"},
    {"LOCKSTEP_TOKEN", "a secret that the ranks of a job share"},
    {NULL, NULL},
};

/* What the tests and scripts of the source tree read. */
static const char *const for_tests[] = {"LOCKSTEP_TEST_",
                                        "LOCKSTEP_GOLDEN",
                                        "LOCKSTEP_SHARED",
                                        "LOCKSTEP_EMULATED_",
                                        "LOCKSTEP_DUMP_",
                                        "LOCKSTEP_NVCC",
                                        NULL};

static bool is_known(const char *name, lki_suggestion *near)
{
    for (int i = 0; lki_variables[i].name; i++) {
        if (!strcmp(name, lki_variables[i].name)) return true;
        lki_suggest_offer(near, lki_variables[i].name);
    }
    for (int i = 0; for_tests[i]; i++)
        if (!strncmp(name, for_tests[i], strlen(for_tests[i]))) return true;
    return false;
}

void lki_environment_note(void)
{
    lki_role role;
    if (lki_launch_role(&role, lki_process_flags(), NULL, -1) == LK_OK && role.rank != 0) return;
    for (char **variable = environ; variable && *variable; variable++) {
        char name[64], hint[160];
        size_t length = strcspn(*variable, "=");
        if (strncmp(*variable, "LOCKSTEP_", 9) != 0 || length >= sizeof name) continue;
        snprintf(name, sizeof name, "%.*s", (int)length, *variable);
        lki_suggestion near = {.wanted = name};
        if (!is_known(name, &near))
            lki_log(LKI_LOG_WARNING, "the environment variable %s is read by nothing%s", name,
                    lki_suggest_text(&near, hint, sizeof hint));
    }
}

void lki_environment_print(FILE *out)
{
    fprintf(out, "\nEnvironment variables:\n");
    for (int i = 0; lki_variables[i].name; i++)
        fprintf(out, "  %-26s %s\n", lki_variables[i].name, lki_variables[i].help);
}
