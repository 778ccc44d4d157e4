/* lockstep run: builds what a config says and makes its calls. */
#include "cli/after_run.h"
#include "cli/commands.h"
#include "cli/expdir.h"
#include "cli/load.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"
#include "comm/store/store.h"
#include "config/config.h"
#include "config/run_config.h"
#include "launch/connect.h"
#include "launch/min_nodes.h"
#include "launch/restart.h"
#include "launch/role.h"
#include "resume/started_again.h"

#include <lockstep/launch.h>
#include <lockstep/log.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct run_options {
    lki_config_options config;
    const char *logdir, *resume, *autoresume, *device, *precision, *comm, *host, *token_file;
    const char *save_every;
    lki_option_int seed, num_epochs, batch_size, num_workers, log_every, nproc, max_restarts, min_nodes,
        world_size, rank, port, shards;
    bool ddp, fp16, tf32, benchmark, deterministic, check, overfit, timeit, verbose, quiet, overwrite;
    bool profile;
} run_options;

enum { MAX_SAVE_EVERY = 1000000 };

#define OFFSET(field) offsetof(run_options, field)

static const lki_option table[] = {
    {"config", 'C', LKI_OPTION_TEXTS, OFFSET(config.files), "FILE", NULL,
     "a config; later files are merged over earlier ones", 0},
    {"configs", 0, LKI_OPTION_TEXTS, OFFSET(config.files), "FILE", NULL, "the same as --config", 0},
    LKI_EXPDIR_OPTION(OFFSET(config.expdir)),
    {"logdir", 0, LKI_OPTION_TEXT, OFFSET(logdir), "DIR", NULL, "directory for logs and checkpoints", 0},
    {"num-epochs", 'e', LKI_OPTION_INT, OFFSET(num_epochs), "N", NULL, "number of epochs", 1},
    {"batch-size", 'b', LKI_OPTION_INT, OFFSET(batch_size), "N", NULL, "batch size of all loaders", 1},
    {"num-workers", 'j', LKI_OPTION_INT, OFFSET(num_workers), "N", NULL, "worker threads of each loader", 0},
    {"seed", 0, LKI_OPTION_INT, OFFSET(seed), "N", NULL, "seed of all random numbers (42)", 0},
    {"resume", 0, LKI_OPTION_TEXT, OFFSET(resume), "FILE", NULL, "continue from this runner checkpoint", 0},
    {"autoresume", 0, LKI_OPTION_TEXT, OFFSET(autoresume), NULL, "last|best",
     "continue from the checkpoint in the logdir, if there is one", 0},
    {"save-every", 0, LKI_OPTION_TEXT, OFFSET(save_every), "N|Nm", NULL,
     "save the run's place every N train batches, or N minutes, not only at the end of each epoch", 0},
    {"overwrite", 0, LKI_OPTION_FLAG, OFFSET(overwrite), NULL, NULL,
     "replace the files of an earlier run instead of moving them to LOGDIR.1", 0},
    {"ddp", 0, LKI_OPTION_FLAG, OFFSET(ddp), NULL, NULL, "one rank per GPU, or per core if there is no GPU",
     0},
    {"distributed", 0, LKI_OPTION_FLAG, OFFSET(ddp), NULL, NULL, "the same as --ddp", 0},
    {"nproc", 0, LKI_OPTION_INT, OFFSET(nproc), "N", NULL, "number of ranks on this host", 1},
    {"shards", 0, LKI_OPTION_INT, OFFSET(shards), "N", NULL,
     "parts of a global batch: the same bits on any number of ranks that divides N", 1},
    {"max-restarts", 0, LKI_OPTION_INT, OFFSET(max_restarts), "N", NULL,
     "restart up to N times from the last checkpoint if a rank dies", 0},
    {"min-nodes", 0, LKI_OPTION_INT, OFFSET(min_nodes), "N", NULL,
     "with --max-restarts: go on without lost hosts as long as N are left", 1},
    {"comm", 0, LKI_OPTION_TEXT, OFFSET(comm), NULL, "auto|shm|gloo|mpi|nccl", "how the ranks communicate",
     0},
    {"device", 0, LKI_OPTION_TEXT, OFFSET(device), NULL, "auto|cpu|cuda|ref", "the device to run on", 0},
    {"precision", 0, LKI_OPTION_TEXT, OFFSET(precision), NULL, "fp32|bf16|fp16", "precision of products", 0},
    {"fp16", 0, LKI_OPTION_FLAG, OFFSET(fp16), NULL, NULL, "the same as --precision fp16", 0},
    {"amp", 0, LKI_OPTION_FLAG, OFFSET(fp16), NULL, NULL, "the same as --fp16", 0},
    {"tf32", 0, LKI_OPTION_FLAG, OFFSET(tf32), NULL, NULL,
     "a GPU may round the factors of fp32 products to TF32", 0},
    {"benchmark", 0, LKI_OPTION_FLAG, OFFSET(benchmark), NULL, NULL,
     "a GPU uses its fastest convolutions, even if their bits vary", 0},
    {"deterministic", 0, LKI_OPTION_FLAG, OFFSET(deterministic), NULL, NULL,
     "the same bits each time: overrides benchmark in the config", 0},
    {"check", 0, LKI_OPTION_FLAG, OFFSET(check), NULL, NULL,
     "try the run: three batches per loader, three epochs", 0},
    {"overfit", 0, LKI_OPTION_FLAG, OFFSET(overfit), NULL, NULL,
     "train on the first batch of each loader only", 0},
    {"timeit", 0, LKI_OPTION_FLAG, OFFSET(timeit), NULL, NULL,
     "add the times of loading and computing to the metrics", 0},
    {"log-every", 0, LKI_OPTION_INT, OFFSET(log_every), "N", NULL,
     "print a line every N train batches: loss, gradient norm, rate, time and throughput", 1},
    {"profile", 0, LKI_OPTION_FLAG, OFFSET(profile), NULL, NULL,
     "trace the first batches to LOGDIR/trace.json, and say where the time goes", 0},
    {"verbose", 'v', LKI_OPTION_FLAG, OFFSET(verbose), NULL, NULL,
     "also print the layers and all metrics of each epoch", 0},
    {"quiet", 'q', LKI_OPTION_FLAG, OFFSET(quiet), NULL, NULL, "print errors only", 0},
    {"world-size", 0, LKI_OPTION_INT, OFFSET(world_size), "N", NULL,
     "number of ranks in the job that this process joins", 1},
    {"rank", 'r', LKI_OPTION_INT, OFFSET(rank), "N", NULL, "rank of this process", 0},
    {"host", 'm', LKI_OPTION_TEXT, OFFSET(host), "ADDRESS", NULL, "address of rank 0", 0},
    {"token-file", 0, LKI_OPTION_TEXT, OFFSET(token_file), "FILE", NULL,
     "file with the secret of the job, instead of LOCKSTEP_TOKEN", 0},
    {"master", 0, LKI_OPTION_TEXT, OFFSET(host), "ADDRESS", NULL, "the same as --host", 0},
    {"master-addr", 0, LKI_OPTION_TEXT, OFFSET(host), "ADDRESS", NULL, "the same as --host", 0},
    {"port", 0, LKI_OPTION_INT, OFFSET(port), "N", NULL, "port of rank 0 (29500)", 1},
    {0},
};

/* Sets `key` of a call, as if the config said so: what is checked, run and kept in logdir/config.yml is the
 * same. */
static lk_status set_text(lk_config *config, int call, const char *key, const char *value)
{
    LKI_SCOPED char *assignment = value ? lki_format("run/%d/%s=%s:str", call, key, value) : NULL;
    return assignment ? lk_config_override(config, assignment) : value ? LK_ERR_NOMEM : LK_OK;
}

static lk_status set_int(lk_config *config, int call, const char *key, const lki_option_int *value)
{
    LKI_SCOPED char *assignment = value->given ? lki_format("run/%d/%s=%lld", call, key, value->value) : NULL;
    return assignment ? lk_config_override(config, assignment) : value->given ? LK_ERR_NOMEM : LK_OK;
}

static lk_status set_flag(lk_config *config, int call, const char *key, bool value)
{
    return value ? set_int(config, call, key, &(lki_option_int){true, 1}) : LK_OK;
}

/* "500": batches; "10m": minutes. */
static lk_status set_save_every(lk_config *config, int call, const char *text)
{
    if (!text) return LK_OK;
    char *end = NULL;
    errno = 0;
    double number = lki_strtod(text, &end);
    bool minutes = strcmp(end, "m") == 0, batches = *end == '\0' && number == (int)number;
    if (end == text || number <= 0 || number > MAX_SAVE_EVERY || !(minutes || batches))
        return lki_fail(LK_ERR_CONFIG,
                        "--save-every: expected a number of batches (500) or of minutes (10m), found \"%s\"",
                        text);
    if (batches) return set_int(config, call, "save_every", &(lki_option_int){true, (long long)number});
    LKI_SCOPED char *assignment = lki_format("run/%d/save_every_minutes=%.*s", call, (int)(end - text), text);
    return assignment ? lk_config_override(config, assignment) : LK_ERR_NOMEM;
}

/* A loader that the call does not build itself (_var_) has no batch size that could be set here. */
static lk_status apply_to_loaders(lk_config *config, int call, const lki_node *loaders,
                                  const run_options *options)
{
    const struct {
        const char *name;
        const lki_option_int *value;
    } numbers[] = {{"batch_size", &options->batch_size}, {"num_workers", &options->num_workers}};
    for (int i = 0; loaders && loaders->kind == LKI_NODE_MAP && i < loaders->count; i++) {
        const char *loader = loaders->entries[i].key;
        bool is_built = lki_node_get(loaders->entries[i].value, "_target_") != NULL;
        for (int k = 0; k < 2; k++) {
            if (!numbers[k].value->given) continue;
            if (!is_built)
                return lki_fail(
                    LK_ERR_CONFIG,
                    "run: loader \"%s\" is not built in the call of train: set its %s where it is built",
                    loader, numbers[k].name);
            LKI_SCOPED char *key = lki_format("loaders/%s/%s", loader, numbers[k].name);
            if (!key) return LK_ERR_NOMEM;
            LKI_TRY(set_int(config, call, key, numbers[k].value));
        }
    }
    return LK_OK;
}

/* The numbers of the loaders that a call makes of datasets. */
static lk_status apply_to_datasets(lk_config *config, int call, const lki_node *datasets,
                                   const run_options *options)
{
    if (lki_node_is_null(datasets)) return LK_OK;
    LKI_TRY(set_int(config, call, "datasets/batch_size", &options->batch_size));
    return set_int(config, call, "datasets/num_workers", &options->num_workers);
}

static lk_status apply_to_call(lk_config *config, int call, const run_options *options)
{
    LKI_TRY(set_text(config, call, "logdir", options->logdir));
    LKI_TRY(set_text(config, call, "resume", options->resume));
    LKI_TRY(set_text(config, call, "autoresume", options->autoresume));
    LKI_TRY(set_text(config, call, "device", options->device));
    LKI_TRY(set_text(config, call, "precision", options->precision));
    LKI_TRY(set_text(config, call, "comm", options->comm));
    LKI_TRY(set_int(config, call, "num_epochs", &options->num_epochs));
    LKI_TRY(set_int(config, call, "seed", &options->seed));
    LKI_TRY(set_int(config, call, "shards", &options->shards));
    LKI_TRY(set_int(config, call, "min_nodes", &options->min_nodes));
    LKI_TRY(set_save_every(config, call, options->save_every));
    LKI_TRY(set_int(config, call, "nproc", &options->nproc));
    LKI_TRY(set_flag(config, call, "ddp", options->ddp));
    LKI_TRY(set_flag(config, call, "fp16", options->fp16));
    LKI_TRY(set_flag(config, call, "tf32", options->tf32));
    LKI_TRY(set_flag(config, call, "benchmark", options->benchmark));
    if (options->deterministic) LKI_TRY(set_int(config, call, "benchmark", &(lki_option_int){true, 0}));
    LKI_TRY(set_flag(config, call, "check", options->check));
    LKI_TRY(set_flag(config, call, "overfit", options->overfit));
    LKI_TRY(set_flag(config, call, "timeit", options->timeit));
    LKI_TRY(set_flag(config, call, "overwrite", options->overwrite));
    LKI_TRY(set_flag(config, call, "profile", options->profile));
    LKI_TRY(set_int(config, call, "log_every", &options->log_every));
    if (options->quiet) return set_int(config, call, "verbose", &(lki_option_int){true, 0});
    return set_flag(config, call, "verbose", options->verbose);
}

/* An estimator has its own names for what a run has, and no others. */
static lk_status apply_to_estimator(lk_config *config, int call, const run_options *options)
{
    if (options->resume || options->autoresume || options->precision || options->fp16 || options->tf32 ||
        options->benchmark || options->deterministic || options->comm || options->check || options->overfit ||
        options->timeit || options->profile || options->overwrite || options->save_every ||
        options->min_nodes.given || options->log_every.given || options->batch_size.given ||
        options->num_workers.given)
        return lki_fail(LK_ERR_CONFIG,
                        "run: an estimator takes --logdir, --num-epochs, --seed, --device, --ddp, "
                        "--nproc, --quiet and --verbose only");
    LKI_TRY(set_text(config, call, "estimator/logdir", options->logdir));
    LKI_TRY(set_text(config, call, "estimator/device", options->device));
    LKI_TRY(set_int(config, call, "estimator/n_epochs", &options->num_epochs));
    LKI_TRY(set_int(config, call, "seed", &options->seed));
    LKI_TRY(set_int(config, call, "estimator/nproc", &options->nproc));
    if (options->quiet) LKI_TRY(set_int(config, call, "estimator/verbose", &(lki_option_int){true, 0}));
    LKI_TRY(set_flag(config, call, "estimator/verbose", options->verbose));
    return set_flag(config, call, "estimator/ddp", options->ddp);
}

static lk_status apply_to_calls(lk_config *config, const run_options *options)
{
    const lki_node *calls = lki_node_get(config->tree.root, "run");
    if (!calls || calls->kind != LKI_NODE_LIST) return LK_OK; /* the check says what is wrong */
    for (int i = 0; i < calls->count; i++) {
        const lki_node *name = lki_node_get(calls->entries[i].value, "_call_");
        if (!name || name->kind != LKI_NODE_SCALAR) continue;
        if (!strcmp(name->text, "train")) {
            const lki_node *call = calls->entries[i].value;
            LKI_TRY(apply_to_loaders(config, i, lki_node_get(call, "loaders"), options));
            LKI_TRY(apply_to_datasets(config, i, lki_node_get(call, "datasets"), options));
            LKI_TRY(apply_to_call(config, i, options));
        }
        if (!strcmp(name->text, "train_estimator")) LKI_TRY(apply_to_estimator(config, i, options));
    }
    return LK_OK;
}

/* Who this process is, told to the launcher in its own words. */
static lk_status apply_launch(const run_options *options)
{
    char texts[4][24];
    char *words[14] = {"lockstep"};
    int count = 1;
    const struct {
        const char *flag;
        const lki_option_int *value;
    } numbers[] = {{"--world-size", &options->world_size},
                   {"--rank", &options->rank},
                   {"--port", &options->port},
                   {"--nproc", &options->nproc}};
    for (int i = 0; i < 4; i++) {
        if (!numbers[i].value->given) continue;
        snprintf(texts[i], sizeof texts[i], "%lld", numbers[i].value->value);
        words[count++] = (char *)numbers[i].flag;
        words[count++] = texts[i];
    }
    if (options->host) {
        words[count++] = "--host";
        words[count++] = (char *)options->host;
    }
    if (options->token_file) {
        words[count++] = "--token-file";
        words[count++] = (char *)options->token_file;
    }
    return lk_launch_arguments(&count, words);
}

/* The sources of the run's own components go into each logdir, once a job. */
lk_status lki_keep_code(const lk_config *config, const char *expdir)
{
    lki_role role;
    const lki_node *calls = lki_node_get(config->tree.root, "run");
    if (!expdir || lki_launch_role(&role, lki_process_flags(), NULL, -1) || role.rank != 0) return LK_OK;
    for (int i = 0; i < calls->count; i++) {
        const lki_node *call = calls->entries[i].value, *estimator = lki_node_get(call, "estimator");
        const lki_node *logdir = lki_node_get(estimator ? estimator : call, "logdir");
        if (!lki_node_is_null(logdir) && logdir->kind == LKI_NODE_SCALAR)
            LKI_TRY(lki_expdir_copy(expdir, logdir->text));
    }
    return LK_OK;
}

enum { MAX_CALLS = 64 };

/* A run, which may be started again: what its calls' checkpoints were before it began. */
typedef struct job {
    lk_config *config;
    const char *expdir;
    int max_restarts;
    lki_role role; /* of this process; of the first rank that it forks */
    bool quiet;
    struct stat before[MAX_CALLS][2]; /* of runner.last, and of the one before it */
} job;

/* The checkpoint that a call goes on from (age 0) or the one before it, and what is there now; NULL where the
 * call keeps none. */
static char *last_checkpoint(const lk_config *config, int call, int age, struct stat *found)
{
    *found = (struct stat){0};
    char *path =
        lki_checkpoint_of_call(config, call, age ? "runner.last.1.safetensors" : "runner.last.safetensors");
    if (path && stat(path, found) != 0) *found = (struct stat){0};
    return path;
}

/* Whether the run has written it: one of an earlier run is not where this one goes on. */
static bool is_new(const struct stat *before, const struct stat *now)
{
    return now->st_ino && (now->st_ino != before->st_ino || now->st_mtim.tv_sec != before->st_mtim.tv_sec ||
                           now->st_mtim.tv_nsec != before->st_mtim.tv_nsec);
}

/* The newest that the run has written; NULL if it has written none. In a file system without links the older
 * one is alone if the run died between the two steps of a save. */
static char *new_checkpoint(const job *run, int call)
{
    struct stat now;
    char *path = last_checkpoint(run->config, call, 0, &now);
    if (path && !now.st_ino) {
        lki_free(path);
        path = last_checkpoint(run->config, call, 1, &now);
        if (path && !is_new(&run->before[call][1], &now)) now = (struct stat){0};
    }
    if (path && is_new(&run->before[call][0], &now)) return path;
    lki_free(path);
    return NULL;
}

/* The place of a run that was asked to stop. */
static int report_stop(const job *run)
{
    char *saved = NULL;
    lki_report(LKI_EXIT_FAILED);
    for (int i = 0; i < MAX_CALLS; i++) {
        char *path = new_checkpoint(run, i);
        if (!path) continue;
        lki_free(saved);
        saved = path;
    }
    lki_print_how_to_go_on(run->config, saved);
    lki_free(saved);
    return lki_exit_code_of_stop();
}

/* Who comes back is said once for the job. */
static int report_meeting(void)
{
    if (lk_rank() == 0) lki_log(LKI_LOG_WARNING, "%s", lk_error());
    return LKI_EXIT_FAILED;
}

static int run_config(const job *run, lk_status *status)
{
    lki_plan plan;
    int exit_code = LKI_EXIT_DONE;
    *status = lki_config_build(run->config, &plan);
    if (!*status) *status = lki_keep_code(run->config, run->expdir);
    plan.show = LK_SHOW_EPOCHS;
    if (*status)
        exit_code = lki_report(lki_build_exit_code(*status));
    else if ((*status = lki_config_call(run->config, &plan)) == LK_ERR_STOPPED)
        exit_code = lki_is_to_meet_again() ? report_meeting() : report_stop(run);
    else if (*status)
        exit_code = lki_report(*status == LK_ERR_CONFIG ? LKI_EXIT_WRONG : LKI_EXIT_FAILED);
    if (!*status && run->role.source != LKI_ROLE_LOCAL) lki_attempt_is_done();
    if (!*status && !run->quiet && lk_rank() == 0) lki_print_best(run->config, run->expdir);
    lki_plan_fini(&plan);
    return exit_code;
}

/* ---- Restarts ---- */

/* "restart 2 of 3", or why the ranks meet again without one. */
static void say_how(const job *run, const lki_attempt_place *place, const char *from)
{
    if (place->is_restart)
        lki_log(LKI_LOG_WARNING, "restart %d of %d, from %s", place->restarts, run->max_restarts, from);
    else
        lki_log(LKI_LOG_WARNING, "the ranks meet again, to go on from %s", from);
}

static lk_status go_on_from_last(job *run, const lki_attempt_place *place)
{
    bool any = false;
    lki_started_again();
    if (run->role.rank != 0) return LK_OK; /* rank 0 has what the others go on from */
    for (int i = 0; i < MAX_CALLS; i++) {
        LKI_SCOPED char *path = new_checkpoint(run, i);
        if (!path) continue;
        LKI_TRY(lki_started_again_from(path));
        LKI_TRY(set_int(run->config, i, "overwrite", &(lki_option_int){true, 0})); /* it has done so */
        say_how(run, place, path);
        any = true;
    }
    if (!any) say_how(run, place, "the start");
    return LK_OK;
}

/* Whether a peer's end is what ended this attempt, and another one may go better. Ranks that never came will
 * not come to the next one either, and a rank whose own run has failed would fail again. */
static bool may_go_better(const job *run, lk_status status)
{
    if (run->role.source == LKI_ROLE_LOCAL) return status == LK_ERR_PEER || status == LK_ERR_TIMEOUT;
    if (status == LK_ERR_TIMEOUT) return lki_ranks_have_met();
    bool is_final = strstr(lk_error(), LKI_RUN_FAILED) || strstr(lk_error(), LKI_STORE_TOO_FEW);
    return status == LK_ERR_PEER && !is_final;
}

/* In a process of its own. */
static int attempt_run(void *context, const lki_attempt_place *place)
{
    job *run = context;
    lk_status status;
    if (!place->is_first && go_on_from_last(run, place)) return lki_report(LKI_EXIT_FAILED);
    int exit_code = run_config(run, &status);
    if (fflush(stdout) != 0 && exit_code == LKI_EXIT_DONE) {
        lki_fail(LK_ERR_IO, "the output could not be written: %s", strerror(errno));
        exit_code = lki_report(LKI_EXIT_FAILED);
    }
    if (lki_is_to_meet_again() && status == LK_ERR_STOPPED) return LKI_EXIT_AGAIN;
    return may_go_better(run, status) ? LKI_EXIT_PEER : exit_code;
}

/* What the config or --min-nodes says, before the data is read. */
static lk_status check_min_nodes(const job *run)
{
    const lki_node *calls = lki_node_get(run->config->tree.root, "run");
    lki_role role;
    for (int i = 0; calls && calls->kind == LKI_NODE_LIST && i < calls->count; i++) {
        const lki_node *call = calls->entries[i].value, *least = lki_node_get(call, "min_nodes");
        const lki_node *comm = lki_node_get(call, "comm");
        if (!least || least->kind != LKI_NODE_SCALAR || atoi(least->text) <= 0) continue;
        LKI_TRY(lki_launch_role(&role, lki_process_flags(), NULL, -1));
        LKI_TRY(lki_connect_check_min_nodes(
            atoi(least->text), comm && comm->kind == LKI_NODE_SCALAR ? comm->text : NULL, &role));
        if (run->max_restarts == 0)
            return lki_fail(LK_ERR_CONFIG,
                            "min_nodes: ranks that lose one have to be started again to go on: add "
                            "--max-restarts, or leave min_nodes out");
    }
    return LK_OK;
}

/* How many calls train, if the last call is one of them: what follows would be lost. */
static int count_trainings(const lki_node *calls)
{
    int count = 0;
    for (int i = 0; calls && calls->kind == LKI_NODE_LIST && i < calls->count; i++) {
        const lki_node *name = lki_node_get(calls->entries[i].value, "_call_");
        bool trains = name && name->kind == LKI_NODE_SCALAR && !strcmp(name->text, "train");
        if (trains)
            count++;
        else if (i == calls->count - 1)
            return 0;
    }
    return count;
}

static int run_with_restarts(job *run)
{
    int exit_code;
    if (lki_launch_role(&run->role, lki_process_flags(), NULL, -1)) return lki_report(LKI_EXIT_WRONG);
    /* Forked ranks are started again all together, and find that nothing is left to train. */
    if (run->role.source != LKI_ROLE_LOCAL)
        lki_attempt_expect(count_trainings(lki_node_get(run->config->tree.root, "run")));
    lki_role met = run->role;
    if (lki_meet_without_mpi(&met)) return lki_report(LKI_EXIT_WRONG);
    if (lki_run_with_restarts(&exit_code, attempt_run, run, run->max_restarts, run->role.rank))
        return lki_report(LKI_EXIT_FAILED);
    return exit_code == LKI_EXIT_PEER || exit_code == LKI_EXIT_AGAIN ? LKI_EXIT_FAILED : exit_code;
}

/* Options of which one would take the other back. */
static lk_status check_together(const run_options *options)
{
    if (options->benchmark && options->deterministic)
        return lki_fail(LK_ERR_CONFIG, "run: --benchmark and --deterministic contradict each other");
    if (options->port.given && !options->world_size.given)
        return lki_fail(LK_ERR_CONFIG,
                        "run: --port needs --world-size and --rank: it is where rank 0 of such a "
                        "job listens");
    if (options->verbose && options->quiet)
        return lki_fail(LK_ERR_CONFIG, "run: --verbose and --quiet contradict each other");
    if (options->check && options->overfit)
        return lki_fail(LK_ERR_CONFIG,
                        "run: --check and --overfit are two ways to try a run: give one of them");
    return LK_OK;
}

static int run(const void *pointer)
{
    const run_options *options = pointer;
    static job job; /* too large for the stack */
    lk_status status;
    if (check_together(options)) return lki_report(LKI_EXIT_WRONG);
    if (apply_launch(options)) return lki_report(LKI_EXIT_WRONG);
    if (options->quiet) lk_set_log_sink(NULL, NULL);
    int exit_code = lki_load_components(options->config.expdir);
    if (exit_code) return exit_code;
    lk_config *config = lki_load_config("run", &options->config);
    if (!config) return lki_report(LKI_EXIT_WRONG);
    job.config = config;
    job.expdir = options->config.expdir;
    job.quiet = options->quiet;
    job.max_restarts = (int)options->max_restarts.value;
    lk_status applied = apply_to_calls(config, options);
    if (!applied) applied = check_min_nodes(&job);
    for (int i = 0; i < 2 * MAX_CALLS; i++)
        lki_free(last_checkpoint(config, i / 2, i % 2, &job.before[i / 2][i % 2]));
    if (applied)
        exit_code = lki_report(LKI_EXIT_WRONG);
    else if (job.max_restarts > 0)
        exit_code = run_with_restarts(&job);
    else
        exit_code = run_config(&job, &status);
    lk_config_free(config);
    return exit_code;
}

const lki_command lki_command_run = {
    .name = "run",
    .usage = "-C FILE [-C FILE ...] [--expdir DIR] [--a/b/0=VALUE ...] [options]",
    .summary = "Trains the model that a config describes.",
    .options = table,
    .options_nbytes = sizeof(run_options),
    .takes_overrides = true,
    .overrides_offset = OFFSET(config.overrides),
    .run = run,
    .notes =
        "A process learns its rank from these options, RANK and WORLD_SIZE, Slurm, or MPI, in this order.",
};
