/* The engine of a run: which device it computes on, and who shares it. */
#ifndef LKI_RUN_RUN_ENGINE_H
#define LKI_RUN_RUN_ENGINE_H

#include <lockstep/runner.h>

typedef struct lki_run_engine {
    lk_engine *handle;
    char device[32]; /* what it was opened for and with; an evaluation may have taken another */
    lk_engine_options options;
    int cpu_level;   /* the widest vector level that all ranks have; 0: the machine's own */
    bool mixed_cpus; /* some ranks' machines have more than that */
} lki_run_engine;

/* After any fork: engines start threads. */
lk_status lki_run_open_engine(lk_runner *runner);
/* With all steps that were compiled for it. */
lk_status lki_run_close_engine(lk_runner *runner);
/* "2 ranks share GPU 0: NVIDIA H200"; "" if no rank computes on a GPU. Collective. */
/* What is taken of this rank's GPU, by all who use it; below 0 for none. */
double lki_run_gpu_memory_mb(const lk_runner *runner);
lk_status lki_run_describe_gpus(const lk_runner *runner, char *text, size_t capacity);

#endif
