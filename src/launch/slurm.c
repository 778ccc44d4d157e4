/* A role from Slurm: one task a rank, or one task a node that forks its ranks. */
#include "launch/devices.h"
#include "launch/hostlist.h"
#include "launch/role.h"

#include "base/log.h"
#include "base/status.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where Catalyst's users expect it; a few more in case another job on the node has it already. */
enum { FIRST_PORT = 50000, PORT_RANGE = 10000, PORT_COUNT = 16, MAX_GPUS = 128 };

/* Slurm gives the batch script itself and its helpers step numbers up here. */
static const long FIRST_SPECIAL_STEP = 0xfffffff0L;

static const char *const count_names[] = {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", NULL};

static const char *first_of(const char *const *environment, const char *const *names)
{
    for (; *names; names++) {
        const char *value = lki_environment_get(environment, *names);
        if (value) return value;
    }
    return NULL;
}

/* Inside `srun`, and not the batch script, where PROCID is set too. */
static bool is_task_of_step(const char *const *environment)
{
    static const char *const step_names[] = {"SLURM_STEP_ID", "SLURM_STEPID", NULL};
    const char *step = first_of(environment, step_names);
    if (!step || !lki_environment_get(environment, "SLURM_PROCID")) return false;
    char *end = NULL;
    long number = strtol(step, &end, 10);
    return *end == '\0' && number >= 0 && number < FIRST_SPECIAL_STEP;
}

/* Once, however often the process asks who it is. */
static void warn_without_srun(const char *const *environment)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    const char *tasks = lki_environment_get(environment, "SLURM_NTASKS");
    if (lki_environment_get(environment, "SLURM_JOB_ID") && tasks && atoi(tasks) > 1 &&
        !atomic_flag_test_and_set(&warned))
        lki_log(
            LKI_LOG_WARNING,
            "this Slurm job has %s tasks, but the program was started without srun: only this process runs",
            tasks);
}

static lk_status read_counts(lki_role *role, const char *const *environment)
{
    static const char *const task_names[] = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", NULL};
    bool found;
    const char *tasks = first_of(environment, task_names);
    if (!tasks)
        return lki_fail(LK_ERR_CONFIG,
                        "SLURM_PROCID is set, but neither SLURM_STEP_NUM_TASKS nor SLURM_NTASKS");
    LKI_TRY(lki_environment_int(
        environment, lki_environment_get(environment, task_names[0]) ? task_names[0] : task_names[1], 1,
        1000000, &role->world_size, &found));
    LKI_TRY(lki_environment_int(environment, "SLURM_PROCID", 0, role->world_size - 1, &role->rank, &found));
    role->local_rank = -1;
    LKI_TRY(lki_environment_int(environment, "SLURM_LOCALID", 0, 1000000, &role->local_rank, &found));
    LKI_TRY(lki_environment_int(environment, "SLURM_NODEID", 0, 1000000, &role->node_rank, &found));
    return LK_OK;
}

/* The hosts of this step, and how many of its tasks are on this one. */
static lk_status read_nodes(lki_role *role, const char *const *environment)
{
    static const char *const list_names[] = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST",
                                             NULL};
    const char *list = first_of(environment, list_names), *counts = first_of(environment, count_names);
    lki_hostlist hosts;
    if (!list) return lki_fail(LK_ERR_CONFIG, "SLURM_PROCID is set, but not SLURM_JOB_NODELIST");
    LKI_TRY(lki_hostlist_expand(&hosts, list));
    role->node_count = hosts.count;
    snprintf(role->master, sizeof role->master, "%s", hosts.names[0]);
    lki_hostlist_fini(&hosts);
    if (role->node_rank >= role->node_count)
        return lki_fail(LK_ERR_CONFIG, "SLURM_NODEID is %d, but \"%s\" has %d hosts", role->node_rank, list,
                        role->node_count);
    return counts ? lki_tasks_of_node(&role->local_size, counts, role->node_rank) : LK_OK;
}

static lk_status choose_port_and_token(lki_role *role, const char *const *environment)
{
    static const char *const step_names[] = {"SLURM_STEP_ID", "SLURM_STEPID", NULL};
    const char *job = lki_environment_get(environment, "SLURM_JOB_ID");
    const char *restarts = lki_environment_get(environment, "SLURM_RESTART_COUNT");
    bool found;
    if (!job) job = lki_environment_get(environment, "SLURM_JOBID");
    if (!job) return lki_fail(LK_ERR_CONFIG, "SLURM_PROCID is set, but not SLURM_JOB_ID");
    role->port = FIRST_PORT + (int)(strtoul(job, NULL, 10) % PORT_RANGE);
    role->port_count = PORT_COUNT;
    snprintf(role->token, sizeof role->token, "slurm %.32s.%.32s.%.16s", job,
             first_of(environment, step_names), restarts ? restarts : "0");
    LKI_TRY(lki_environment_int(environment, "MASTER_PORT", 1, 65535, &role->port, &found));
    if (found) role->port_count = 1;
    const char *master = lki_environment_get(environment, "MASTER_ADDR");
    if (master) snprintf(role->master, sizeof role->master, "%s", master);
    return LK_OK;
}

/* Slurm's gres plugin lists them in CUDA_VISIBLE_DEVICES; where it does not, SLURM_GPUS_ON_NODE counts them,
 * and where Slurm knows of none, the host's are there for everyone. */
static lk_status count_gpus(lki_role *role, const char *const *environment, int gpu_count)
{
    const char *visible = lki_environment_get(environment, "CUDA_VISIBLE_DEVICES");
    bool found;
    if (gpu_count < 0) return LK_OK;
    if (visible) {
        role->gpu_count = lki_visible_gpu_count(visible, MAX_GPUS);
        return LK_OK;
    }
    role->gpu_count = gpu_count;
    return lki_environment_int(environment, "SLURM_GPUS_ON_NODE", 0, MAX_GPUS, &role->gpu_count, &found);
}

/* Every task looks at every node: where one of them is wrong, all of them say so, and nobody waits. */
static bool has_tasks_on_each_node(const lki_role *role, const char *const *environment, int count)
{
    const char *counts = first_of(environment, count_names);
    for (int node = 0; counts && node < role->node_count; node++) {
        int tasks;
        if (lki_tasks_of_node(&tasks, counts, node) != LK_OK || tasks != count) return false;
    }
    return counts != NULL;
}

/* One task on each node and several ranks wanted there: the task becomes them. */
static lk_status plan_forks(lki_role *role, const lki_launch_flags *flags, const char *const *environment)
{
    bool one_a_node = role->world_size == role->node_count;
    int wanted = flags->nproc ? flags->nproc : one_a_node && role->gpu_count > 1 ? role->gpu_count : 1;
    role->fork_count = 1;
    if (wanted == 1 && (!flags->nproc || one_a_node)) return LK_OK;
    if (!one_a_node && has_tasks_on_each_node(role, environment, wanted)) return LK_OK;
    if (!one_a_node)
        return lki_fail(LK_ERR_CONFIG,
                        "--nproc %d with %d Slurm tasks on %d nodes: either start one task per node (srun "
                        "--ntasks-per-node=1) or "
                        "leave --nproc out: each task is a rank",
                        wanted, role->world_size, role->node_count);
    role->fork_count = wanted;
    role->world_size = role->node_count * wanted;
    role->rank = role->node_rank * wanted;
    role->local_rank = 0;
    role->local_size = wanted;
    return LK_OK;
}

lk_status lki_slurm_role(lki_role *out, const lki_launch_flags *flags, const char *const *environment,
                         int gpu_count, bool *found)
{
    lki_role role = {.source = LKI_ROLE_SLURM, .shm_fd = -1};
    *found = is_task_of_step(environment);
    if (!*found) {
        warn_without_srun(environment);
        return LK_OK;
    }
    LKI_TRY(read_counts(&role, environment));
    LKI_TRY(read_nodes(&role, environment));
    LKI_TRY(choose_port_and_token(&role, environment));
    LKI_TRY(count_gpus(&role, environment, gpu_count));
    LKI_TRY(plan_forks(&role, flags, environment));
    *out = role;
    return LK_OK;
}
