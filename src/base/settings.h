/* The environment variables of Lockstep, LOCKSTEP_*, in one list. Everything that reads one reads it here.
 * `lockstep help environment`, `lockstep doctor` and the tables of the documents are made of the same list
 * (`make docs`). Variables of others (Slurm's, MPI's, TMPDIR ...) are read where they are needed.
 *
 * A variable that is set to nothing counts as not set. */
#ifndef LKI_BASE_SETTINGS_H
#define LKI_BASE_SETTINGS_H

#include <lockstep/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(symbol, kind, the value if it is not set, or "", meaning). The symbol is the name without LOCKSTEP_. */
#define LKI_SETTING_LIST(X)                                                                                  \
    X(CHANNELS_LAST, SWITCH, "the engine chooses", "1: channels last wherever the engine can; 0: never")     \
    X(COMM_TIMEOUT, SECONDS, "300", "seconds that a rank waits for the others in a collective")              \
    X(CPU_LEVEL, TEXT, "the highest",                                                                        \
      "the CPU's kernels: amx, avx512bf16, avx512, avx2 or base; not above what the CPU has")                \
    X(CUDA_PLUGIN, TEXT, "liblockstep_cuda.so", "path of the library for GPUs")                              \
    X(DATASET_MIRRORS, TEXT, "the public mirrors",                                                           \
      "addresses to download other data sets than MNIST from, separated by spaces")                          \
    X(ENGINE, TEXT, "the fastest", "the engine that device auto means: cpu, cuda or ref")                    \
    X(HOST_ID, TEXT, "", "the name of this host, if hosts share one name")                                   \
    X(INTERFACE, TEXT, "", "the network interface for Gloo and NCCL")                                        \
    X(JOIN_TIMEOUT, SECONDS, "120, forked ranks 60", "seconds that ranks wait for each other at the start")  \
    X(LIBRARY, TEXT, "beside the package, then the system's",                                                \
      "path of liblockstep.so, for the Python package")                                                      \
    X(LINK_TIMEOUT, SECONDS, "20", "seconds that a link between hosts may be silent")                        \
    X(LOW_ACTIVATIONS, SWITCH, "the engine chooses",                                                         \
      "1: with bf16 and fp16, keep activations in 16 bits; 0: in 32 bits")                                   \
    X(MNIST_MIRRORS, TEXT, "the public mirrors", "addresses to download MNIST from, separated by spaces")    \
    X(NODE_TIMEOUT, SECONDS, "30", "with --min-nodes, seconds that ranks wait for those that are lost")      \
    X(ONE_KERNEL, SWITCH, "one kernel if it fits",                                                           \
      "small steps on a GPU: 0: a CUDA graph; 1: fail if a step is not one kernel")                          \
    X(PLUGIN_PATH, TEXT, "beside the library", "the directory of the plug-ins, liblockstep_*.so")            \
    X(SHM, TEXT, "/dev/shm", "the directory for fields that the ranks of a host share")                      \
    X(TOKEN, SECRET, "the key in the user's home", "the secret that the ranks of a job share")

/* What the tests and scripts of the source tree read, by its beginning; the library and the command read none
 * of it. */
#define LKI_TEST_SETTING_LIST(X)                                                                             \
    X(TEST_)                                                                                                 \
    X(GOLDEN)                                                                                                \
    X(SHARED)                                                                                                \
    X(EMULATED_)                                                                                             \
    X(DUMP_)                                                                                                 \
    X(NVCC)

typedef enum lki_setting {
#define X(symbol, kind, otherwise, meaning) LKI_SETTING_##symbol,
    LKI_SETTING_LIST(X)
#undef X
        LKI_SETTING_COUNT
} lki_setting;

typedef enum lki_setting_kind {
    LKI_SETTING_TEXT,
    LKI_SETTING_SECRET,  /* a text that is shown to nobody */
    LKI_SETTING_SWITCH,  /* 0 or 1 */
    LKI_SETTING_SECONDS, /* a whole number from 1 to LKI_SETTING_MAX_SECONDS */
} lki_setting_kind;

enum { LKI_SETTING_MAX_SECONDS = 1000000 };

typedef struct lki_setting_entry {
    const char *name;
    lki_setting_kind kind;
    const char *otherwise, *meaning;
} lki_setting_entry;

/* By lki_setting; LKI_SETTING_COUNT of them. */
extern const lki_setting_entry lki_settings[];

/* The text, NULL if it is not set. */
const char *lki_setting_text(lki_setting setting);

typedef enum lki_switch { LKI_SWITCH_OFF, LKI_SWITCH_ON, LKI_SWITCH_UNSET } lki_switch;

/* A value of another kind is LK_ERR_CONFIG, in one line that names the variable. */
lk_status lki_setting_switch(lki_setting setting, lki_switch *out);
/* 0 if it is not set. */
lk_status lki_setting_seconds(lki_setting setting, int *out);
/* Whether its value is of its kind. */
lk_status lki_setting_check(lki_setting setting);

#ifdef __cplusplus
}
#endif
#endif
