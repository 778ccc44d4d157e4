#define _GNU_SOURCE
#include "launch/connect.h"

#include "base/memory.h"
#include "base/settings.h"
#include "base/status.h"
#include "base/threads.h"
#include "comm/comm.h"
#include "comm/comm_own.h"
#include "comm/store/store_wire.h"
#include "launch/devices.h"
#include "launch/gpus.h"
#include "launch/job_key.h"
#include "launch/meeting.h"
#include "launch/min_nodes.h"
#include "launch/restart.h"

#include <lockstep/version.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TERMS_NBYTES = 160 };

static bool wants(const lki_connect_options *options, const char *backend)
{
    return options->backend && strcmp(options->backend, backend) == 0;
}

static bool is_auto(const lki_connect_options *options)
{
    return !options->backend || !*options->backend || wants(options, "auto");
}

static lk_status check_backend(const lki_connect_options *options, const lki_role *role)
{
    static const char *const known[] = {"self", "shm", "gloo", "mpi", "nccl"};
    bool found = is_auto(options);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) found = found || wants(options, known[i]);
    if (!found)
        return lki_fail(LK_ERR_CONFIG, "--comm: unknown \"%s\": known are auto, self, shm, gloo, mpi, nccl",
                        options->backend);
    if (wants(options, "self") && role->world_size > 1)
        return lki_fail(LK_ERR_CONFIG, "--comm self is for one rank, not %d", role->world_size);
    if (wants(options, "mpi") && lki_restarts_allowed() > 0)
        return lki_fail(LK_ERR_CONFIG, "--comm mpi: MPI cannot start a lost rank again: leave --comm or "
                                       "--max-restarts out");
    if (wants(options, "mpi") && role->shm_fd >= 0)
        return lki_fail(LK_ERR_CONFIG, "--comm mpi is not for forked ranks: start them with mpirun or srun");
    return LK_OK;
}

/* A name that only the ranks of this job, and of this host, come to. */
static void shm_name(char *text, size_t capacity, const char *secret, const char *purpose)
{
    lki_wire_hello blank = {0};
    unsigned char digest[LKI_WIRE_MAC], nonce[LKI_WIRE_NONCE] = {0};
    lki_wire_prove(digest, secret, purpose, &blank, nonce);
    size_t length = 0;
    for (int i = 0; i < 12; i++)
        length += (size_t)snprintf(text + length, capacity - length, "%02x", digest[i]);
}

/* What the store knows of ranks that could not connect, or have died since they met. */
static lk_status nobody_has_failed(void *context)
{
    LKI_SCOPED char *sentence = NULL;
    lk_status status = lki_store_get(context, LKI_STORE_FAILED_KEY, &sentence, NULL);
    if (status == LK_ERR_NOT_FOUND) return LK_OK;
    return status == LK_OK ? lki_fail(LK_ERR_PEER, "%s", sentence) : status;
}

static lk_status join_shm(lk_comm **out, const lki_meeting *meeting, const lki_connect_options *options,
                          const char *purpose)
{
    char name[64], secret[64];
    lki_shm_options shm = {.rank = meeting->local_rank,
                           .size = meeting->local_size,
                           .fd = -1,
                           .name = name,
                           .join_timeout_ms = options->join_timeout_ms,
                           .timeout_ms = options->timeout_ms,
                           .names = meeting->locals,
                           .owner_reports = meeting->host_count > 1,
                           .still_wanted = meeting->store ? nobody_has_failed : NULL,
                           .context = meeting->store};
    snprintf(secret, sizeof secret, "%s %d", meeting->nonce, meeting->host_of[meeting->locals[0]]);
    shm_name(name, sizeof name, secret, purpose);
    *out = NULL;
    return meeting->local_size > 1 ? lki_comm_shm_create(out, &shm) : LK_OK;
}

/* How far the ranks of this host are, for the monitor. */
typedef struct host_report {
    lk_comm *up;
    lk_comm *_Atomic own; /* where the host has one rank: the comm itself */
    void (*own_progress)(lk_comm *comm, lk_comm_progress *out);
    void (*own_doing)(lk_comm *comm, char *text, size_t capacity); /* optional */
} host_report;

static void report_host(void *context, int index, lk_comm_progress *out)
{
    host_report *host = context;
    lk_comm *own = host->own;
    if (host->up)
        host->up->ops->progress(host->up, index, out);
    else if (own)
        host->own_progress(own, out);
}

static bool tell_doing(void *context, int index, char *text, size_t capacity)
{
    host_report *host = context;
    lk_comm *own = host->own;
    *text = '\0';
    if (host->up) return host->up->ops->doing(host->up, index, text, capacity);
    if (own && host->own_doing) host->own_doing(own, text, capacity);
    return false;
}

static void look_at_stall(void *context, lki_stall *wait, const lk_comm_progress *own)
{
    host_report *host = context;
    lk_comm *comm = host->own;
    if (comm) lki_stall_look(wait, comm, own->started, own->kind);
}

/* What a comm over several hosts keeps until it is freed. */
typedef struct session {
    lki_meeting *meeting;
    host_report report;
} session;

static void end_session(void *context)
{
    session *s = context;
    lki_meeting_close(s->meeting);
    lki_free(s);
}

static lk_status start_monitor(session *s, const lki_role *role)
{
    lki_meeting *meeting = s->meeting;
    lki_store_client *standing = meeting->store;
    lki_store_options where = {.host = meeting->host,
                               .port = meeting->port,
                               .token = role->token,
                               .rank = role->rank,
                               .world_size = role->world_size,
                               .was_there = true};
    lki_store_client *plain = NULL;
    LKI_TRY(lki_store_connect(&plain, &where));
    meeting->store = plain; /* the other stands for this rank, and is the monitor's from now on */
    lki_monitor_options options = {.host = meeting->host,
                                   .port = meeting->port,
                                   .token = role->token,
                                   .rank = role->rank,
                                   .world_size = role->world_size,
                                   .standing = standing,
                                   .progress = report_host,
                                   .doing = tell_doing,
                                   .stalled = look_at_stall,
                                   .tells_silence = meeting->host_of[role->rank] == 1,
                                   .ranks = meeting->locals,
                                   .rank_count = meeting->local_size,
                                   .context = &s->report};
    return lki_monitor_start(&meeting->monitor, &options);
}

/* The comm between the hosts' first ranks; NULL for others. */
static lk_status join_leaders(lk_comm **out, session *s, const lki_role *role,
                              const lki_connect_options *options)
{
    lki_meeting *meeting = s->meeting;
    *out = NULL;
    if (meeting->local_rank != 0) return LK_OK;
    if (role->source == LKI_ROLE_MPI && !meeting->store) {
        int *first = LKI_NEW_ARRAY(int, meeting->host_count);
        if (!first) return LK_ERR_NOMEM;
        for (int r = role->world_size - 1; r >= 0; r--) first[meeting->host_of[r]] = r;
        lk_status status = lki_comm_mpi_create(out, &(lki_mpi_options){.ranks = first,
                                                                       .count = meeting->host_count,
                                                                       .timeout_ms = options->timeout_ms});
        lki_free(first);
        return status;
    }
    LKI_TRY(start_monitor(s, role));
    if (wants(options, "mpi"))
        return lki_comm_mpi_meet(out, &(lki_mpi_meet_options){.rank = meeting->host_of[role->rank],
                                                              .size = meeting->host_count,
                                                              .store = meeting->store,
                                                              .join_timeout_ms = options->join_timeout_ms,
                                                              .timeout_ms = options->timeout_ms});
    lki_gloo_options gloo = {.rank = meeting->host_of[role->rank],
                             .size = meeting->host_count,
                             .store = meeting->store,
                             .prefix = "gloo/",
                             .monitor = meeting->monitor,
                             .host = meeting->address,
                             .interface = lki_setting_text(LKI_SETTING_INTERFACE),
                             .join_timeout_ms = options->join_timeout_ms,
                             .timeout_ms = options->timeout_ms};
    return lki_comm_gloo_create(out, &gloo);
}

/* What the way in which ranks connect depends on: ranks that differ in it would wait for each other. */
static void describe_terms(char text[TERMS_NBYTES], const lki_connect_options *options)
{
    snprintf(text, TERMS_NBYTES, "lockstep %.31s\n--comm %.31s\n--device %.31s", lk_version(),
             is_auto(options) ? "auto" : options->backend,
             lki_gpu_is_meant(options->device) ? "auto or cuda"
             : options->device                 ? options->device
                                               : "cpu");
    size_t length = strlen(text);
    if (options->min_nodes)
        snprintf(text + length, TERMS_NBYTES - length, "\n--min-nodes %d", options->min_nodes);
}

/* A rank that cannot connect says so: the others wait for it in one place or another. */
static lk_status tell_failure(lki_meeting *meeting, const lki_role *role, lk_status status)
{
    char sentence[512];
    bool swapped;
    lki_error first = {0};
    if (lki_error_keep(&first, status) == LK_OK || !meeting->store) return status;
    snprintf(sentence, sizeof sentence, "rank %d could not connect: %.440s", role->rank, first.sentence);
    lki_store_compare_set(meeting->store, LKI_STORE_FAILED_KEY, NULL, sentence, &swapped);
    return lki_error_restore(&first);
}

/* Nobody asks it any more: the host's leader has a monitor, which speaks for all its ranks. Rank 0 of a large
 * job has one descriptor less per host. */
static void leave_store(lki_meeting *meeting)
{
    lki_store_close(meeting->store);
    meeting->store = NULL;
}

/* Takes the meeting over, whatever comes of it. */
static lk_status build_hierarchy(lk_comm **out, lki_meeting *meeting, const lki_role *role,
                                 const lki_connect_options *options)
{
    lki_hierarchy_options tree = {.rank = role->rank,
                                  .size = role->world_size,
                                  .host_of = meeting->host_of,
                                  .on_free = end_session,
                                  .timeout_ms = options->timeout_ms};
    session *s = LKI_NEW(session);
    if (!s) {
        lki_meeting_close(meeting);
        return LK_ERR_NOMEM;
    }
    s->meeting = meeting;
    s->report.own_progress = lki_hierarchy_progress;
    s->report.own_doing = lki_hierarchy_doing;
    tree.context = s;
    lk_status status = join_shm(&tree.up, meeting, options, "up");
    if (status == LK_OK) status = join_shm(&tree.down, meeting, options, "down");
    s->report.up = tree.up;
    if (status == LK_OK) status = join_leaders(&tree.leaders, s, role, options);
    tree.monitor = meeting->monitor;
    if (status == LK_OK) status = lki_comm_hierarchy_create(out, &tree);
    if (status == LK_OK) {
        s->report.own = *out;
        (*out)->own->is_watched = meeting->monitor != NULL;
        leave_store(meeting);
        return LK_OK;
    }
    status = tell_failure(meeting, role, status);
    lk_comm_free(tree.leaders);
    end_session(s); /* ends the monitor, which looks at the comms below */
    lk_comm_free(tree.up);
    lk_comm_free(tree.down);
    return status;
}

/* Makes every rank a host of its own: all of them speak the comm between hosts. */
static void split_hosts(lki_meeting *meeting, int rank, int world_size)
{
    for (int r = 0; r < world_size; r++) meeting->host_of[r] = r;
    meeting->host_count = world_size;
    meeting->locals[0] = rank;
    meeting->local_size = 1;
    meeting->local_rank = 0;
}

/* Every rank speaks NCCL with all others, and looks after them itself. Takes the meeting over. */
static lk_status build_nccl(lk_comm **out, lki_meeting *meeting, const lki_role *role,
                            const lki_connect_options *options, const lki_gpu_plan *plan)
{
    session *s = LKI_NEW(session);
    if (!s) {
        lki_meeting_close(meeting);
        return LK_ERR_NOMEM;
    }
    split_hosts(meeting, role->rank, role->world_size);
    s->meeting = meeting;
    s->report.own_progress = lki_comm_progress_of;
    lk_status status = start_monitor(s, role);
    lki_comm_nccl_options nccl = {.rank = role->rank,
                                  .size = role->world_size,
                                  .store = meeting->store,
                                  .prefix = "nccl/",
                                  .monitor = meeting->monitor,
                                  .device = plan->device,
                                  .shares_gpu = plan->shared,
                                  .on_free = end_session,
                                  .context = s,
                                  .join_timeout_ms = options->join_timeout_ms,
                                  .timeout_ms = options->timeout_ms};
    if (status == LK_OK) status = lki_comm_nccl_create(out, &nccl);
    if (status == LK_OK) {
        s->report.own = *out;
        (*out)->own->is_watched = true;
        leave_store(meeting);
        return LK_OK;
    }
    status = tell_failure(meeting, role, status);
    end_session(s);
    return status;
}

/* Where GPUs are meant, the ranks find out together whether they can speak NCCL. */
static lk_status plan_gpus(lki_gpu_plan *plan, const lki_meeting *meeting, const lki_role *role,
                           const lki_connect_options *options)
{
    bool must = wants(options, "nccl");
    *plan = (lki_gpu_plan){0};
    if (!must && !(is_auto(options) && lki_gpu_is_meant(options->device))) return LK_OK;
    return lki_gpus_agree(plan, meeting, role, options->device, must, options->join_timeout_ms);
}

/* The last of its job: others may still come back. Takes the meeting over. */
static lk_status stay_alone(lk_comm **out, lki_meeting *meeting)
{
    lk_status status = lki_comm_self_create(out);
    if (status == LK_OK)
        lki_door_keep(meeting);
    else
        lki_meeting_close(meeting);
    return status;
}

static lk_status meet_and_connect(lk_comm **out, lki_role *role, const lki_connect_options *options)
{
    lki_meeting *meeting = NULL;
    char terms[TERMS_NBYTES];
    if (!role->master[0])
        return lki_fail(LK_ERR_CONFIG, "rank %d of %d: the address of rank 0 is unknown: set MASTER_ADDR",
                        role->rank, role->world_size);
    if (role->source == LKI_ROLE_SLURM) lki_slurm_find_master(role);
    describe_terms(terms, options);
    lki_meeting_options how = {.terms = terms,
                               .join_timeout_ms = options->join_timeout_ms,
                               .min_nodes = options->min_nodes,
                               .shards = options->shards};
    if (how.min_nodes) LKI_TRY(lki_min_nodes_settle_ms(&how));
    LKI_TRY(lki_meeting_open(&meeting, role, &how));
    role->rank = meeting->rank;
    role->world_size = meeting->world_size;
    if (how.min_nodes) lki_door_open(meeting);
    role->local_rank = meeting->local_rank;
    role->local_size = meeting->local_size;
    role->node_count = meeting->host_count;
    lki_gpu_plan plan;
    lk_status planned = tell_failure(meeting, role, plan_gpus(&plan, meeting, role, options));
    if (planned != LK_OK) lki_meeting_close(meeting);
    if (planned != LK_OK) return planned;
    if (role->world_size == 1) return stay_alone(out, meeting);
    if (plan.nccl) return build_nccl(out, meeting, role, options, &plan);
    if (wants(options, "gloo") || wants(options, "mpi")) split_hosts(meeting, role->rank, role->world_size);
    if (meeting->host_count == 1) {
        lk_status status = tell_failure(meeting, role, join_shm(out, meeting, options, "job"));
        if (status == LK_OK && how.min_nodes)
            lki_door_keep(meeting);
        else
            lki_meeting_close(meeting);
        return status;
    }
    if (wants(options, "shm")) {
        lki_meeting_close(meeting);
        return lki_fail(LK_ERR_CONFIG, "--comm shm: the ranks are on %d hosts; leave --comm out or use gloo",
                        role->node_count);
    }
    return build_hierarchy(out, meeting, role, options);
}

/* The role itself keeps no secret: it may be shown, and it connects more than once. */
static lk_status connect_by_store(lk_comm **out, lki_role *role, const lki_connect_options *options)
{
    char public_part[sizeof role->token];
    memcpy(public_part, role->token, sizeof public_part);
    LKI_TRY(lki_job_key_add(role->token, sizeof role->token, lki_process_flags()->token_file));
    lk_status status = meet_and_connect(out, role, options);
    memcpy(role->token, public_part, sizeof public_part);
    return status;
}

/* Forked ranks that want NCCL, or Gloo all the same (to try it out): the port of rank 0's store travels
 * through shared memory. */
static lk_status connect_forked(lk_comm **out, lki_role *role, const lki_connect_options *options)
{
    lki_shm_options shm = {.rank = role->rank,
                           .size = role->world_size,
                           .fd = role->shm_fd,
                           .round = role->shm_round++,
                           .join_timeout_ms = options->join_timeout_ms,
                           .timeout_ms = options->timeout_ms};
    bool networks = wants(options, "gloo") || wants(options, "nccl") ||
                    (is_auto(options) && lki_gpus_suffice(options->device, role->world_size));
    if (!networks) return lki_comm_shm_create(out, &shm);
    lk_comm *comm = NULL;
    lki_role networked = *role;
    int32_t port = 0;
    LKI_TRY(lki_comm_shm_create(&comm, &shm));
    snprintf(networked.master, sizeof networked.master, "127.0.0.1");
    lk_status status = LK_OK;
    if (role->rank == 0) { /* a free port, found by opening a store and closing it */
        lki_store_server *probe = NULL;
        lki_store_server_options any = {.world_size = 1, .token = "probe", .address = networked.master};
        status = lki_job_key_random(networked.token, sizeof networked.token);
        if (status == LK_OK && lki_store_server_start(&probe, &any) == LK_OK)
            port = lki_store_server_port(probe);
        lki_store_server_stop(probe, 0);
    }
    if (status == LK_OK) status = lk_comm_broadcast(comm, &port, 1, LK_I32, 0);
    if (status == LK_OK) status = lk_comm_broadcast(comm, networked.token, sizeof networked.token, LK_U8, 0);
    lk_comm_free(comm);
    networked.port = port;
    networked.port_count = 1;
    return status == LK_OK ? meet_and_connect(out, &networked, options) : status;
}

/* Who is where, through MPI itself. */
static lk_status sort_hosts_by_mpi(lki_meeting *meeting, lk_comm *world, const lki_role *role,
                                   const lki_connect_options *options)
{
    char terms[TERMS_NBYTES];
    lki_rank_word mine;
    LKI_SCOPED lki_rank_word *all = LKI_NEW_ARRAY(lki_rank_word, world->size);
    unsigned char random[16];
    if (!all) return LK_ERR_NOMEM;
    describe_terms(terms, options);
    lki_rank_word_init(&mine, terms);
    LKI_TRY(lk_comm_all_gather(world, &mine, all, sizeof mine, LK_U8));
    LKI_TRY(lki_check_same_terms(all, world->size));
    LKI_TRY(lki_wire_random(random, sizeof random));
    for (int i = 0; i < 16; i++) snprintf(meeting->nonce + 2 * i, 3, "%02x", random[i]);
    LKI_TRY(lk_comm_broadcast(world, meeting->nonce, sizeof meeting->nonce, LK_U8, 0));
    return lki_meeting_sort_hosts(meeting, role->rank, role->world_size, all);
}

static lk_status connect_by_mpi(lk_comm **out, lki_role *role, const lki_connect_options *options)
{
    lk_comm *world = NULL;
    bool one_host = role->world_size > 0 && role->local_size == role->world_size && strlen(role->token) > 8;
    char name[64];
    if (one_host && !wants(options, "mpi")) { /* then MPI need not even be started */
        lki_shm_options shm = {.rank = role->rank,
                               .size = role->world_size,
                               .fd = -1,
                               .name = name,
                               .join_timeout_ms = options->join_timeout_ms,
                               .timeout_ms = options->timeout_ms};
        shm_name(name, sizeof name, role->token, "mpi");
        return lki_comm_shm_create(out, &shm);
    }
    LKI_TRY(lki_comm_mpi_create(&world, &(lki_mpi_options){.timeout_ms = options->timeout_ms}));
    if (role->world_size && (world->size != role->world_size || world->rank != role->rank)) {
        lk_status status = lki_fail(
            LK_ERR_CONFIG,
            "MPI says rank %d of %d, the environment rank %d of %d: is the MPI of mpirun (or srun --mpi) "
            "the one that lockstep was built with?",
            world->rank, world->size, role->rank, role->world_size);
        lk_comm_free(world);
        return status;
    }
    role->rank = world->rank;
    role->world_size = world->size;
    lki_meeting *meeting = LKI_NEW(lki_meeting);
    lk_status status = meeting ? sort_hosts_by_mpi(meeting, world, role, options) : LK_ERR_NOMEM;
    if (status != LK_OK) {
        lk_comm_free(world);
        lki_meeting_close(meeting);
        return status;
    }
    role->local_rank = meeting->local_rank;
    role->local_size = meeting->local_size;
    role->node_count = meeting->host_count;
    if (wants(options, "mpi") || meeting->host_count == role->world_size) {
        lki_meeting_close(meeting);
        *out = world;
        return LK_OK;
    }
    lk_comm_free(world);
    if (meeting->host_count > 1) return build_hierarchy(out, meeting, role, options);
    status = join_shm(out, meeting, options, "job");
    lki_meeting_close(meeting);
    return status;
}

/* Nobody has bound this process to cores, and it has neighbours: take the own share. */
static void pin_unbound(const lki_role *role, const lki_connect_options *options)
{
    bool unbound = lki_affinity_count() == (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (!options->no_pinning && role->source != LKI_ROLE_FORKED && unbound && role->local_size > 1)
        lki_pin_rank(role->local_rank, role->local_size);
}

/* Where the caller has set no limit, the environment may. */
static lk_status read_limit(lki_setting setting, int64_t *limit_ms)
{
    int seconds;
    LKI_TRY(lki_setting_seconds(setting, &seconds));
    if (seconds && !*limit_ms) *limit_ms = (int64_t)seconds * 1000;
    return LK_OK;
}

static bool have_met;

bool lki_ranks_have_met(void)
{
    return have_met;
}

/* MPI ends a job that has lost a process: ranks that may be started again meet without it. */
static bool speaks_mpi(const lki_role *role, const lki_connect_options *options)
{
    if (lki_restarts_allowed() > 0) return false;
    return (wants(options, "mpi") && role->source == LKI_ROLE_SLURM) ||
           (role->source == LKI_ROLE_MPI && !wants(options, "gloo") && !wants(options, "nccl"));
}

lk_status lki_comm_connect(lk_comm **out, lki_role *role, const lki_connect_options *given)
{
    lki_connect_options limited = given ? *given : (lki_connect_options){0}, *options = &limited;
    lk_status status;
    *out = NULL;
    LKI_TRY(check_backend(options, role));
    LKI_TRY(lki_connect_check_min_nodes(options->min_nodes, options->backend, role));
    LKI_TRY(read_limit(LKI_SETTING_JOIN_TIMEOUT, &limited.join_timeout_ms));
    LKI_TRY(read_limit(LKI_SETTING_COMM_TIMEOUT, &limited.timeout_ms));
    LKI_TRY(lki_setting_check(LKI_SETTING_LINK_TIMEOUT)); /* whoever opens a link cannot fail over it */
    if (lki_restarts_allowed() > 0) LKI_TRY(lki_meet_without_mpi(role));
    if (role->world_size == 1) {
        role->local_rank = 0;
        role->local_size = 1;
        return lki_comm_self_create(out);
    }
    if (role->shm_fd >= 0)
        status = connect_forked(out, role, options);
    else if (speaks_mpi(role, options))
        status = connect_by_mpi(out, role, options);
    else
        status = connect_by_store(out, role, options);
    if (status == LK_OK && role->local_size > 0) lki_share_cores(role->local_size);
    if (status == LK_OK) pin_unbound(role, options);
    have_met = have_met || status == LK_OK;
    if (status != LK_OK) lki_ranks_close_door();
    return status;
}
