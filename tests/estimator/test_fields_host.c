/* Fields that several processes of a host read are loaded by one of them; what is left behind goes away. */
#include "case.h"

#include "data/fields_host.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 4 };

/* How often `load` was called, by all processes. */
static int *loads;

static lk_fields *load(const char *path, lk_fields_options options)
{
    (void)path;
    __atomic_add_fetch(loads, 1, __ATOMIC_SEQ_CST);
    usleep(100000); /* the others come meanwhile */
    return lk_tensor_fields_create(lkt_wavy(LK_SHAPE(2, 3, 8, 8, 8)), lkt_wavy(LK_SHAPE(2, 1, 8, 8, 8)),
                                   options);
}

static lk_fields *cannot_load(const char *path, lk_fields_options options)
{
    (void)path, (void)options;
    __atomic_add_fetch(loads, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static int count_files(void)
{
    int count = 0;
    char prefix[64];
    snprintf(prefix, sizeof prefix, "lockstep-%u-fields-", (unsigned)getuid());
    DIR *folder = opendir(getenv("LOCKSTEP_SHM"));
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    if (folder) closedir(folder);
    return count;
}

static const char *template_path(void)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/{feature}.h5", lkt_scratch_folder("fields_host"));
    char file[512];
    snprintf(file, sizeof file, "%s/u.h5", lkt_scratch_folder("fields_host"));
    FILE *stream = fopen(file, "w");
    lkt_not_null(stream);
    fprintf(stream, "not read here");
    fclose(stream);
    return path;
}

static lk_fields_options options_of(void)
{
    static const char *const names[] = {"u"};
    return (lk_fields_options){.features = {names, 1}, .input_size = {8, 8, 8}, .batch_size = {4, 4, 4}};
}

/* In a child: the fields are whole, and writing to them changes nobody else's. */
static int use_fields(const char *path, bool dies)
{
    lk_fields_options options = options_of();
    lk_fields *fields = lki_fields_of_host(path, &options, load);
    if (!fields) return 1;
    lk_tensor *expected = lkt_wavy(LK_SHAPE(2, 3, 8, 8, 8));
    lk_tensor *whole = lk_fields_combine(fields, lk_fields_targets(fields));
    bool right = whole && lk_fields_features(fields)->shape.dim[0] == 16 && lk_tensor_get(whole, 7) != 0 &&
                 lk_tensor_get(lk_fields_features(fields), 0) == lk_tensor_get(expected, 0);
    if (dies) raise(SIGKILL);
    usleep(200000);
    right = right && lk_tensor_get(lk_fields_features(fields), 0) == lk_tensor_get(expected, 0);
    lk_tensor_set((lk_tensor *)lk_fields_features(fields), 0, 1e9);
    lk_tensor_free(whole);
    lk_tensor_free(expected);
    lk_fields_free(fields);
    return right ? 0 : 1;
}

static void run_children(const char *path, int count, bool die)
{
    pid_t children[PROCESSES];
    fflush(NULL);
    for (int i = 0; i < count; i++) {
        children[i] = fork();
        if (children[i] == 0) _exit(use_fields(path, die));
    }
    for (int i = 0; i < count; i++) {
        int status = 0;
        waitpid(children[i], &status, 0);
        assert_true(die ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static int setup(void **state)
{
    (void)state;
    setenv("WORLD_SIZE", "4", 1);
    setenv("LOCKSTEP_SHM", lkt_scratch_folder("fields_host_shared"), 1);
    loads = mmap(NULL, sizeof *loads, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return loads == MAP_FAILED;
}

static void one_process_loads_for_all(void **state)
{
    (void)state;
    *loads = 0;
    run_children(template_path(), PROCESSES, false);
    assert_int_equal(*loads, 1);
    assert_int_equal(count_files(), 0);
}

static void what_a_killed_process_left_is_used_and_taken_away(void **state)
{
    (void)state;
    const char *path = template_path();
    *loads = 0;
    run_children(path, 1, true);
    assert_int_equal(count_files(), 1);
    run_children(path, 2, false);
    assert_int_equal(*loads, 1);
    assert_int_equal(count_files(), 0);
    run_children(path, 1, true);
    sleep(1); /* the files' times must differ */
    run_children(template_path(), 1, false);
    assert_int_equal(*loads, 3); /* another version of the file is other fields */
    assert_int_equal(count_files(), 0);
}

static void a_failure_leaves_nothing(void **state)
{
    (void)state;
    lk_fields_options options = options_of();
    *loads = 0;
    assert_null(lki_fields_of_host(template_path(), &options, cannot_load));
    assert_null(lki_fields_of_host("/nowhere/{feature}", &options, cannot_load));
    assert_int_equal(*loads, 2);
    assert_int_equal(count_files(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_process_loads_for_all),
        cmocka_unit_test(what_a_killed_process_left_is_used_and_taken_away),
        cmocka_unit_test(a_failure_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
