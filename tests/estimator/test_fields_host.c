/* Fields that several processes of a host read: every block is read by one of them, a reader that dies is
 * replaced, a failure is everybody's, and nothing is left behind. */
#define _GNU_SOURCE
#include "case.h"

#include "base/status.h"
#include "base/threads.h"
#include "data/fields_host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 4, BLOCKS = 6, NUMBERS = 3 * 8 * 8 * 8, NONE = -1 };

/* What all processes of a test see. */
typedef struct board {
    atomic_int reads[BLOCKS];   /* how often each block was read */
    atomic_int readers[BLOCKS]; /* and by whom, last */
    atomic_int killed, arrived, waited_in_vain;
    int survivors;
    int slow, deadly, bad, worse; /* blocks */
    bool large, independent;
    bool spares_caller; /* any block is deadly, to the first who is not the caller */
    pid_t caller;
    char sentences[PROCESSES][256];
} board;
static board *shared;

/* ---- A source whose blocks can be slow, bad and deadly ---- */

static lk_status plan_blocks(void *context, lki_fields_layout *out)
{
    (void)context;
    *out = (lki_fields_layout){.dims = 3,
                               .size = {8, 8, 8},
                               .features = LK_SHAPE(BLOCKS, 3, 8, 8, 8),
                               .targets = LK_SHAPE(BLOCKS, 3, 8, 8, 8),
                               .target_shape = LK_SHAPE(3, 8, 8, 8),
                               .same = true,
                               .nbytes = sizeof(float) * BLOCKS * NUMBERS,
                               .block_count = BLOCKS,
                               .read_nbytes = shared->large ? 1u << 30 : 1,
                               .independent = shared->independent};
    return LK_OK;
}

static bool others_have_read(void)
{
    bool found = false;
    for (int i = 0; i < BLOCKS; i++) found |= shared->readers[i] && shared->readers[i] != gettid();
    return found;
}

static bool somebody_was_killed(void)
{
    return shared->killed > 0;
}

static bool the_worse_one_was_read(void)
{
    return shared->reads[shared->worse] > 0;
}

static bool all_have_arrived(void)
{
    return shared->arrived >= shared->survivors;
}

/* Until another process has done something; two minutes are a failure, not a measure. */
static void wait_until(bool (*done)(void))
{
    for (int i = 0; i < 120000; i++) {
        if (done()) return;
        usleep(1000);
    }
    shared->waited_in_vain++;
}

static lk_status read_block(void *context, int64_t block, void *memory)
{
    (void)context;
    shared->reads[block]++;
    shared->readers[block] = gettid();
    bool spared = shared->spares_caller && getpid() == shared->caller;
    if (shared->deadly == block || (shared->spares_caller && !spared))
        if (atomic_exchange(&shared->killed, 1) == 0) raise(SIGKILL);
    if (shared->slow == block) wait_until(others_have_read);
    if (spared) wait_until(somebody_was_killed);
    if (shared->bad == block && shared->worse >= 0) wait_until(the_worse_one_was_read);
    if (shared->bad == block || shared->worse == block)
        return lki_fail(LK_ERR_FORMAT, "block %d is bad", (int)block);
    float *numbers = (float *)memory + block * NUMBERS;
    for (int i = 0; i < NUMBERS; i++) numbers[i] = (float)(block * NUMBERS + i);
    return LK_OK;
}

static const lki_fields_source source = {plan_blocks, read_block, NULL};

/* ---- Around it ---- */

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

/* A file of this time; nobody reads it. */
static const char *template_path(time_t seconds)
{
    static char path[512];
    char file[512];
    const struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    snprintf(path, sizeof path, "%s/{feature}.h5", lkt_scratch_folder("fields_host"));
    snprintf(file, sizeof file, "%s/u.h5", lkt_scratch_folder("fields_host"));
    int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && futimens(fd, times) == 0);
    close(fd);
    return path;
}

static lk_fields *open_fields(const char *path)
{
    static const char *const names[] = {"u"};
    lk_fields_options options = {LK_SIZE(lk_fields_options), .features = {names, 1}, .input_size = {8, 8, 8}};
    return lki_fields_of_host(path, &options, &source);
}

static bool is_right(const lk_fields *fields)
{
    const lk_tensor *x = lk_fields_features(fields), *y = lk_fields_targets(fields);
    bool right = x && y && x->shape.dim[0] == BLOCKS && x->data == y->data;
    for (int64_t i = 0; right && i < (int64_t)BLOCKS * NUMBERS; i++)
        right = ((float *)x->data)[i] == (float)i;
    return right;
}

static int use_fields(const char *path, int index)
{
    lk_fields *fields = open_fields(path);
    snprintf(shared->sentences[index], sizeof *shared->sentences, "%s", fields ? "" : lk_error());
    int status = fields && is_right(fields) ? 0 : 1;
    lk_fields_free(fields);
    return status;
}

/* All are there at once; what one of them writes to is its own from then on. */
static int use_fields_together(const char *path, int index)
{
    lk_fields *fields = open_fields(path);
    if (!fields || !is_right(fields)) return 1;
    shared->arrived++;
    wait_until(all_have_arrived);
    for (int i = 0; i < 100; i++) lk_tensor_set((lk_tensor *)lk_fields_features(fields), 0, index + 1);
    bool right = lk_tensor_get(lk_fields_features(fields), 0) == index + 1;
    lk_fields_free(fields);
    return right ? 0 : 1;
}

typedef int (*child_function)(const char *path, int index);

/* Runs children; gives how many were killed and how many ended well. */
static void run_children(int count, child_function function, const char *path, int *killed, int *well)
{
    pid_t children[PROCESSES];
    fflush(NULL);
    for (int i = 0; i < count; i++) {
        children[i] = fork();
        if (children[i] == 0) _exit(function(path, i));
    }
    *killed = *well = 0;
    for (int i = 0; i < count; i++) {
        int status = 0;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        *killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        *well += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    assert_int_equal(shared->waited_in_vain, 0);
}

static int reader_count(void)
{
    int count = 0;
    for (int i = 0; i < BLOCKS; i++) {
        bool seen = false;
        for (int j = 0; j < i; j++) seen |= shared->readers[j] == shared->readers[i];
        count += !seen;
    }
    return count;
}

static void expect_reads(int each, int block, int of_block)
{
    for (int i = 0; i < BLOCKS; i++) assert_int_equal(shared->reads[i], i == block ? of_block : each);
}

static int begin(void **state)
{
    (void)state;
    if (!shared)
        shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 1;
    memset(shared, 0, sizeof *shared);
    shared->survivors = PROCESSES;
    shared->slow = shared->deadly = shared->bad = shared->worse = NONE;
    shared->caller = getpid();
    setenv("WORLD_SIZE", "4", 1);
    setenv("LOCKSTEP_SHM", lkt_scratch_folder("fields_host_shared"), 1);
    return 0;
}

/* ---- Ranks that were started one by one ---- */

static void every_block_is_read_once_by_one_of_several(void **state)
{
    (void)state;
    int killed, well;
    shared->slow = 0;
    run_children(PROCESSES, use_fields_together, template_path(1), &killed, &well);
    assert_int_equal(well, PROCESSES);
    expect_reads(1, NONE, 0);
    assert_true(reader_count() > 1);
    assert_int_equal(count_files(), 0);
}

static void the_block_of_a_killed_reader_is_read_by_another(void **state)
{
    (void)state;
    int killed, well;
    shared->deadly = 2;
    shared->survivors = PROCESSES - 1;
    run_children(PROCESSES, use_fields_together, template_path(1), &killed, &well);
    assert_int_equal(killed, 1);
    assert_int_equal(well, PROCESSES - 1);
    expect_reads(1, 2, 2);
    assert_int_equal(count_files(), 0);
}

static void what_a_killed_process_left_is_used_and_taken_away(void **state)
{
    (void)state;
    int killed, well;
    const char *path = template_path(1);
    shared->deadly = 3;
    run_children(1, use_fields, path, &killed, &well);
    assert_int_equal(killed, 1);
    assert_int_equal(count_files(), 1);
    run_children(1, use_fields, path, &killed, &well);
    assert_int_equal(well, 1);
    expect_reads(1, 3, 2);
    assert_int_equal(count_files(), 0);
}

static void other_versions_of_a_file_are_other_fields(void **state)
{
    (void)state;
    int killed, well;
    shared->deadly = 3;
    run_children(1, use_fields, template_path(1), &killed, &well);
    assert_int_equal(count_files(), 1);
    run_children(1, use_fields, template_path(2), &killed, &well);
    assert_int_equal(well, 1);
    for (int i = 0; i < BLOCKS; i++) assert_int_equal(shared->reads[i], i <= 3 ? 2 : 1);
    assert_int_equal(count_files(), 0);
}

static void all_name_the_first_bad_block(void **state)
{
    (void)state;
    int killed, well;
    shared->bad = 1;
    shared->worse = 4;
    run_children(PROCESSES, use_fields, template_path(1), &killed, &well);
    assert_int_equal(well, 0);
    assert_int_equal(killed, 0);
    for (int i = 0; i < PROCESSES; i++) assert_string_equal(shared->sentences[i], "block 1 is bad");
    assert_int_equal(count_files(), 0);
}

static void a_missing_file_or_folder_is_no_reason_to_hang(void **state)
{
    (void)state;
    shared->bad = 0;
    assert_null(open_fields("/nowhere/{feature}"));
    assert_string_equal(lk_error(), "block 0 is bad");
    shared->bad = NONE;
    setenv("LOCKSTEP_SHM", "/nowhere", 1);
    lk_fields *fields = open_fields(template_path(1));
    lkt_not_null(fields);
    assert_true(is_right(fields));
    lk_fields_free(fields);
}

/* ---- No room ---- */

static int use_fields_without_room(const char *path, int index)
{
    struct rlimit limit = {8192, 8192};
    signal(SIGXFSZ, SIG_IGN);
    return setrlimit(RLIMIT_FSIZE, &limit) != 0 || use_fields(path, index);
}

static void without_room_each_reads_for_itself(void **state)
{
    (void)state;
    int killed, well;
    run_children(2, use_fields_without_room, template_path(1), &killed, &well);
    assert_int_equal(well, 2);
    expect_reads(2, NONE, 0);
    unsetenv("WORLD_SIZE");
    shared->large = true;
    run_children(1, use_fields_without_room, template_path(1), &killed, &well);
    assert_int_equal(well, 1);
    expect_reads(3, NONE, 0);
    assert_int_equal(count_files(), 0);
}

enum { CANNOT_MOUNT = 77 };

static int use_fields_on_a_small_disk(const char *path, int index)
{
    const char *folder = getenv("LOCKSTEP_SHM");
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", "none", MS_REC | MS_PRIVATE, "") != 0 ||
        mount("none", folder, "tmpfs", 0, "size=16k") != 0)
        return CANNOT_MOUNT;
    return use_fields(path, index) || count_files() != 0;
}

static void a_full_disk_is_no_failure(void **state)
{
    (void)state;
    int status = 0;
    const char *path = template_path(1);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) _exit(use_fields_on_a_small_disk(path, 0));
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WEXITSTATUS(status) == CANNOT_MOUNT) {
        print_message("a small disk needs root\n");
        skip();
    }
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- Forked readers ---- */

static void begin_large(void)
{
    unsetenv("WORLD_SIZE");
    shared->large = true;
    if (lki_core_count() > 1) return;
    print_message("one core: one reader\n");
    skip();
}

static void expect_no_traces(void)
{
    assert_int_equal(shared->waited_in_vain, 0);
    assert_int_equal(count_files(), 0);
    assert_true(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
}

static void read_by_several(void)
{
    shared->slow = 0;
    lk_fields *fields = open_fields(template_path(1));
    lkt_not_null(fields);
    assert_true(is_right(fields));
    lk_fields_free(fields);
    expect_reads(1, NONE, 0);
    assert_true(reader_count() > 1);
    expect_no_traces();
}

static void large_fields_are_read_by_threads(void **state)
{
    (void)state;
    begin_large();
    shared->independent = true;
    read_by_several();
}

static void or_by_forked_readers(void **state)
{
    (void)state;
    begin_large();
    read_by_several();
}

static void a_killed_forked_reader_is_replaced(void **state)
{
    (void)state;
    begin_large();
    shared->spares_caller = true;
    lk_fields *fields = open_fields(template_path(1));
    lkt_not_null(fields);
    assert_true(is_right(fields));
    lk_fields_free(fields);
    assert_int_equal(shared->killed, 1);
    expect_no_traces();
}

static void a_readers_failure_is_the_callers(void **state)
{
    (void)state;
    begin_large();
    for (int threads = 0; threads < 2; threads++) {
        shared->independent = threads;
        shared->bad = 1;
        shared->worse = 4; /* the first one is named, also where it is found later */
        shared->reads[4] = 0;
        assert_null(open_fields(template_path(1)));
        assert_string_equal(lk_error(), "block 1 is bad");
        expect_no_traces();
    }
}

#define TEST(function) cmocka_unit_test_setup(function, begin)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_block_is_read_once_by_one_of_several),
        TEST(the_block_of_a_killed_reader_is_read_by_another),
        TEST(what_a_killed_process_left_is_used_and_taken_away),
        TEST(other_versions_of_a_file_are_other_fields),
        TEST(all_name_the_first_bad_block),
        TEST(a_missing_file_or_folder_is_no_reason_to_hang),
        TEST(without_room_each_reads_for_itself),
        TEST(a_full_disk_is_no_failure),
        TEST(large_fields_are_read_by_threads),
        TEST(or_by_forked_readers),
        TEST(a_killed_forked_reader_is_replaced),
        TEST(a_readers_failure_is_the_callers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
