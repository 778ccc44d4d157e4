/* The secret of a job: the user's key file, which is made at its first use, and --token-file. And who can
 * reach the port at all. */
#define _GNU_SOURCE
#include "../comm/ranks.h"

#include "base/clock.h"
#include "comm/net.h"
#include "comm/store/store.h"
#include "launch/connect.h"
#include "launch/job_key.h"
#include "launch/role.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { TOKEN_NBYTES = 160 };

static char home[1024];

static void use_new_home(const char *name)
{
    snprintf(home, sizeof home, "%s", lkt_scratch_folder(name));
    setenv("XDG_CONFIG_HOME", home, 1);
    unsetenv("LOCKSTEP_TOKEN");
}

static const char *key_path(void)
{
    static char path[2048];
    snprintf(path, sizeof path, "%s/lockstep/key", home);
    return path;
}

static const char *token_with(const char *token_file)
{
    static char tokens[4][TOKEN_NBYTES];
    static int next;
    char *token = tokens[next++ % 4];
    strcpy(token, "job");
    lkt_ok(lki_job_key_add(token, TOKEN_NBYTES, token_file));
    return token;
}

static void write_file(const char *path, const char *text, mode_t mode)
{
    unlink(path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(path, mode), 0);
}

static void made_at_its_first_use(void **state)
{
    (void)state;
    struct stat info;
    use_new_home("job_key");
    const char *first = token_with(NULL);
    assert_int_equal(strncmp(first, "job ", 4), 0);
    assert_int_equal(strlen(first), 4 + 40);
    assert_int_equal(lstat(key_path(), &info), 0);
    assert_true(S_ISREG(info.st_mode));
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(info.st_size, 65);
    assert_int_equal(info.st_nlink, 1); /* nothing else is left beside it */
    assert_string_equal(token_with(NULL), first);
    use_new_home("job_key_other");
    assert_string_not_equal(token_with(NULL), first);
}

static const char *add_key(int rank, int size, void *context)
{
    char(*tokens)[TOKEN_NBYTES] = context;
    (void)size;
    rank_ok(lki_job_key_add(tokens[rank], TOKEN_NBYTES, NULL));
    return NULL;
}

static void ranks_that_start_together_have_one_key(void **state)
{
    (void)state;
    enum { COUNT = 12 };
    char(*tokens)[TOKEN_NBYTES] = shared_zeros(COUNT * TOKEN_NBYTES);
    use_new_home("job_key_race");
    run_processes(COUNT, add_key, tokens);
    for (int i = 1; i < COUNT; i++) assert_string_equal(tokens[i], tokens[0]);
    munmap(tokens, COUNT * TOKEN_NBYTES);
}

static void assert_refused(const char *sentence)
{
    char token[TOKEN_NBYTES] = "job";
    assert_int_not_equal(lki_job_key_add(token, sizeof token, NULL), LK_OK);
    lkt_contains(lk_error(), key_path());
    lkt_contains(lk_error(), sentence);
    lkt_contains(lk_error(), "no key file is needed if LOCKSTEP_TOKEN or --token-file");
    assert_string_equal(token, "job");
}

static void a_key_that_others_may_know_is_refused(void **state)
{
    (void)state;
    char elsewhere[2048];
    use_new_home("job_key_refused");
    token_with(NULL);
    assert_int_equal(chmod(key_path(), 0640), 0);
    assert_refused("others can read it");
    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", home);
    assert_int_equal(rename(key_path(), elsewhere), 0);
    assert_int_equal(chmod(elsewhere, 0600), 0);
    assert_int_equal(symlink(elsewhere, key_path()), 0);
    assert_refused("could not open");
    unlink(key_path());
    assert_int_equal(mkdir(key_path(), 0700), 0);
    assert_refused("is no file");
    rmdir(key_path());
    write_file(key_path(), "\n", 0600);
    assert_refused("expected a secret, found nothing");
    if (geteuid() != 0) return; /* only root can give a file away */
    assert_int_equal(chown(key_path(), 1, (gid_t)-1), 0);
    assert_refused("belongs to another user");
}

static void a_home_that_cannot_be_written(void **state)
{
    (void)state;
    char token[TOKEN_NBYTES] = "job";
    setenv("XDG_CONFIG_HOME", "/proc/nothing", 1);
    assert_int_not_equal(lki_job_key_add(token, sizeof token, NULL), LK_OK);
    lkt_contains(lk_error(), "/proc/nothing");
    lkt_contains(lk_error(), "no key file is needed if LOCKSTEP_TOKEN or --token-file");
    setenv("LOCKSTEP_TOKEN", "open sesame", 1);
    lkt_ok(lki_job_key_add(token, sizeof token, NULL));
    assert_int_equal(strlen(token), 4 + 40);
    unsetenv("LOCKSTEP_TOKEN");
}

static void a_token_file(void **state)
{
    (void)state;
    char path[2048], token[TOKEN_NBYTES] = "job";
    use_new_home("job_key_file");
    snprintf(path, sizeof path, "%s/token", home);
    write_file(path, "open sesame\n", 0600);
    const char *first = token_with(path);
    write_file(path, "open sesame", 0600);
    assert_string_equal(token_with(path), first);
    setenv("LOCKSTEP_TOKEN", "another", 1);
    assert_string_equal(token_with(path), first);
    assert_string_not_equal(token_with(NULL), first);
    setenv("LOCKSTEP_TOKEN", "open sesame", 1); /* the same secret, wherever it comes from */
    assert_string_equal(token_with(NULL), first);
    write_file(path, "open sesamf", 0600);
    assert_string_not_equal(token_with(path), first);
    assert_int_not_equal(access(key_path(), F_OK), 0); /* nobody has asked for it */
    write_file(path, " ", 0600);
    lkt_fails(lki_job_key_add(token, sizeof token, path), LK_ERR_CONFIG, "expected a secret, found nothing");
    unlink(path);
    lkt_fails(lki_job_key_add(token, sizeof token, path), LK_ERR_CONFIG, "--token-file ");
    unsetenv("LOCKSTEP_TOKEN");

    lki_launch_flags flags = {.token_file = "secret"};
    const char *const nothing[] = {NULL};
    lki_role role;
    lkt_fails(lki_launch_role(&role, &flags, nothing, 0), LK_ERR_CONFIG, "--token-file secret needs ranks");
}

/* All of a secret counts, and all of its digest is in the token, however much else is. */
static void nothing_is_cut(void **state)
{
    (void)state;
    char secret[301], tokens[2][TOKEN_NBYTES];
    for (int i = 0; i < 2; i++) {
        memset(secret, 'a', 300);
        strcpy(secret + 299, i ? "b" : "c");
        setenv("LOCKSTEP_TOKEN", secret, 1);
        memset(tokens[i], 'x', TOKEN_NBYTES - 1);
        tokens[i][TOKEN_NBYTES - 1] = 0;
        lkt_ok(lki_job_key_add(tokens[i], TOKEN_NBYTES, NULL));
        assert_int_equal(strlen(tokens[i]), TOKEN_NBYTES - 1);
    }
    assert_memory_equal(tokens[0], tokens[1], TOKEN_NBYTES - 1 - 40);
    assert_string_not_equal(tokens[0] + TOKEN_NBYTES - 1 - 40, tokens[1] + TOKEN_NBYTES - 1 - 40);
    lki_launch_flags flags = {.world_size = 2, .has_rank = true, .host = "h"};
    lki_role role;
    lkt_ok(lki_launch_role(&role, &flags, NULL, 0));
    assert_null(strstr(role.token, "aaa")); /* a role may be shown */
    unsetenv("LOCKSTEP_TOKEN");
}

/* Ranks 1 and 2 have other users' homes, or the same. Rank 2 has a scheduler's choice of ports: another job
 * might be at the first, so it looks at all of them as long as it may. */
typedef struct meeting_plan {
    int port;
    bool strangers;
} meeting_plan;

static const char *meet(int rank, int size, void *context)
{
    const meeting_plan *p = context;
    lki_launch_flags flags = {
        .world_size = size, .has_rank = true, .rank = rank, .host = "127.0.0.1", .port = p->port};
    int timeouts_ms[] = {10000, 60000, p->strangers ? 8000 : 60000};
    lki_connect_options options = {.join_timeout_ms = timeouts_ms[rank], .no_pinning = true};
    lki_role role;
    lk_comm *comm = NULL;
    if (p->strangers && rank > 0) use_new_home(rank == 1 ? "job_key_stranger" : "job_key_other_stranger");
    rank_ok(lki_launch_role(&role, &flags, NULL, 0));
    if (rank == 2) role.port_count = 2;
    lk_status status = lki_comm_connect(&comm, &role, &options);
    if (p->strangers) {
        rank_check(status == (rank == 0 ? LK_ERR_TIMEOUT : LK_ERR_PEER));
        rank_check(strstr(lk_error(), rank == 0 ? "missing: rank 1, 2" : "belongs to another job"));
        rank_check(rank != 2 || strstr(lk_error(), "none of the ports"));
        return NULL;
    }
    rank_ok(status);
    rank_ok(lk_comm_barrier(comm));
    lk_comm_free(comm);
    return NULL;
}

static void only_ranks_of_one_user_meet(void **state)
{
    (void)state;
    use_new_home("job_key_meets");
    for (int strangers = 0; strangers < 2; strangers++) {
        meeting_plan p = {.strangers = strangers};
        int fd;
        lkt_ok(lki_net_listen(&fd, &p.port));
        close(fd);
        run_processes(3, meet, &p);
    }
}

static lk_status knock(const char *address, int port)
{
    int fd = -1;
    lk_status status = lki_net_connect(&fd, address, port, lki_now_ns());
    if (fd >= 0) close(fd);
    return status;
}

/* 127.0.0.2 stands for another address of the machine. */
static void a_store_listens_where_it_was_told(void **state)
{
    (void)state;
    lki_store_server *server = NULL;
    lki_store_server_options options = {.world_size = 2, .token = "secret", .address = "127.0.0.1"};
    lkt_ok(lki_store_server_start(&server, &options));
    lkt_ok(knock("127.0.0.1", lki_store_server_port(server)));
    assert_int_not_equal(knock("127.0.0.2", lki_store_server_port(server)), LK_OK);
    lki_store_server_stop(server, 0);
    options.address = NULL;
    lkt_ok(lki_store_server_start(&server, &options));
    lkt_ok(knock("127.0.0.2", lki_store_server_port(server)));
    lki_store_server_stop(server, 0);
    options.address = "192.0.2.1"; /* of documentation: nobody's */
    lkt_fails(lki_store_server_start(&server, &options), LK_ERR_NOT_FOUND, "no address of this host");
    options.address = "somewhere";
    lkt_fails(lki_store_server_start(&server, &options), LK_ERR_NOT_FOUND, "no address to listen on");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(made_at_its_first_use),
        cmocka_unit_test(ranks_that_start_together_have_one_key),
        cmocka_unit_test(a_key_that_others_may_know_is_refused),
        cmocka_unit_test(a_home_that_cannot_be_written),
        cmocka_unit_test(a_token_file),
        cmocka_unit_test(nothing_is_cut),
        cmocka_unit_test(only_ranks_of_one_user_meet),
        cmocka_unit_test(a_store_listens_where_it_was_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
