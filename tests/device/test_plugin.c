/* What becomes of a run that meets a GPU part it cannot use: missing, of another version, or over a driver
 * that does not suit. Whoever asked for a GPU gets one sentence; "auto" says it in one line and takes the
 * CPU. Each case is a process of its own: the GPU part is opened once in a process. */
#include "lktest.h"

#include <lockstep/lockstep.h>

#include "device/open_plugin.h"

#include <sys/wait.h>
#include <unistd.h>

enum { SAID_NBYTES = 4096 };

/* A GPU part as the linker finds it, whose driver is too old; or of a version that is not ours. */
static const char source[] =
    "#include \"device/plugin.h\"\n"
    "static const lki_cuda_host *table;\n"
    "static const char *const sentence = \"the NVIDIA driver is one for CUDA 9.0, too old for CUDA 13.0\";\n"
    "static lk_status count(int *out) { *out = 0; return table->fail(LK_ERR_DEVICE, sentence); }\n"
    "static lk_status open(void **state, const lk_engine_options *o)\n"
    "{ (void)state; (void)o; return table->fail(LK_ERR_DEVICE, sentence); }\n"
    "static const lk_engine_ops ops = {LK_SIZE(lk_engine_ops), .name = \"cuda\", .open = open};\n"
    "static const lki_cuda_plugin made = {.version = VERSION, .engine_ops = &ops, .device_count = count};\n"
    "const lki_cuda_plugin *lki_cuda_plugin_open(const lki_cuda_host *host) { table = host; return &made; "
    "}\n";

static bool build(const char *path, const char *version)
{
    char command[8192], file[1200];
    snprintf(file, sizeof file, "%s.c", path);
    FILE *out = fopen(file, "w");
    if (!out || fputs(source, out) < 0 || fclose(out)) return false;
    snprintf(command, sizeof command,
             "cc -std=gnu11 -shared -fPIC -I'" LK_SOURCE_DIR "/src' -I'" LK_SOURCE_DIR
             "/include' -DVERSION=%s -o '%s' '%s' 2> /dev/null",
             version, path, file);
    return system(command) == 0;
}

/* What a process says that opens an engine with this GPU part: its log, then the engine's name or the error.
 */
static const char *said(const char *plugin, const char *device)
{
    static char text[SAID_NBYTES];
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        setenv("LOCKSTEP_CUDA_PLUGIN", plugin, 1);
        unsetenv("LOCKSTEP_ENGINE");
        lk_set_log_sink(lk_log_to_stderr, NULL);
        lk_engine *engine = lk_engine_open(device, LK_OPTIONS(lk_engine_options, .thread_count = 1));
        dprintf(ends[1], "%s: %s", engine ? "engine" : "error", engine ? lk_engine_name(engine) : lk_error());
        lk_engine_close(engine);
        _exit(0);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t got; (got = read(ends[0], text + used, sizeof text - 1 - used)) > 0;) used += (size_t)got;
    text[used] = 0;
    close(ends[0]);
    int status;
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    return text;
}

static int line_count(const char *text)
{
    int count = 1;
    for (; *text; text++) count += *text == '\n';
    return count;
}

static void check(const char *plugin, const char *fragment)
{
    char error[512];
    const char *text = said(plugin, "cuda");
    lkt_contains(text, "error: ");
    lkt_contains(text, fragment);
    assert_int_equal(line_count(text), 1);
    snprintf(error, sizeof error, "training on the CPU: ");
    text = said(plugin, "auto");
    lkt_contains(text, error);
    lkt_contains(text, fragment);
    assert_null(strstr(text, "engine: cuda"));
    lkt_contains(text, "engine: ");
    assert_int_equal(line_count(text), 2);
}

static void no_plugin(void **state)
{
    (void)state;
    check("/nowhere/liblockstep_cuda.so", "the GPU part of Lockstep cannot be loaded");
}

static void not_a_plugin(void **state)
{
    (void)state;
    char path[1100];
    snprintf(path, sizeof path, "%s/broken.so", lkt_scratch_folder("device_plugin_broken"));
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("not a library\n", file);
    fclose(file);
    check(path, "the GPU part of Lockstep cannot be loaded");
}

static void other_versions_and_drivers(void **state)
{
    (void)state;
    char old[1100], other[1100];
    const char *folder = lkt_scratch_folder("device_plugin");
    snprintf(old, sizeof old, "%s/old_driver.so", folder);
    snprintf(other, sizeof other, "%s/other_version.so", folder);
    if (!build(old, "LKI_CUDA_PLUGIN_VERSION") || !build(other, "LKI_CUDA_PLUGIN_VERSION+1")) {
        print_message("there is no C compiler to make a GPU part with\n");
        skip();
    }
    check(other, "belongs to another version of Lockstep");
    check(old, "the NVIDIA driver is one for CUDA 9.0, too old for CUDA 13.0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_plugin),
        cmocka_unit_test(not_a_plugin),
        cmocka_unit_test(other_versions_and_drivers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
