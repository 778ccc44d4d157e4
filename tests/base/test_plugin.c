/* Plug-ins: each one of this build opens; one that is missing, damaged or stale is refused in one line. */
#include "board/http.h"
#include "comm/gloo/gloo_plugin.h"
#include "comm/mpi/mpi_plugin.h"
#include "data/curl/curl_plugin.h"
#include "data/fftw/fftw_plugin.h"
#include "data/hdf5/hdf5_plugin.h"
#include "plot/plplot/plplot_plugin.h"
#include "lktest.h"
#include "tensor/pictures/pictures_plugin.h"

#include <lockstep/data.h>

#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static lki_plugin *const plugins[] = {&lki_mpi,  &lki_gloo,     &lki_hdf5,   &lki_fftw,
                                      &lki_curl, &lki_pictures, &lki_plplot, &lki_http};
enum { COUNT = sizeof plugins / sizeof *plugins };

/* LKT_PLUGINS lists those of this build: " mpi gloo ". */
static bool is_built(const lki_plugin *plugin)
{
    char word[64];
    snprintf(word, sizeof word, " %s ", plugin->name);
    return strstr(LKT_PLUGINS, word);
}

static char folder[512];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/tests/plugins-%d", LK_BUILD_DIR, (int)getpid());
    return mkdir(folder, 0777);
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

/* The plug-in as if nobody had opened it yet, looked for in `place`. */
static const void *open_in(const char *place, const lki_plugin *plugin)
{
    lki_plugin fresh = {
        .name = plugin->name,
        .library = plugin->library,
        .package = plugin->package,
        .functions_nbytes = plugin->functions_nbytes,
        .services = plugin->services,
        .services_nbytes = plugin->services_nbytes,
    };
    setenv("LOCKSTEP_PLUGIN_PATH", place, 1);
    const void *functions = lki_plugin_open(&fresh);
    unsetenv("LOCKSTEP_PLUGIN_PATH");
    return functions;
}

static void each_opens(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        const void *functions = lki_plugin_open(plugins[i]);
        if (is_built(plugins[i]) && !functions) fail_msg("%s: %s", plugins[i]->name, lk_error());
        if (functions) assert_ptr_equal(lki_plugin_open(plugins[i]), functions);
    }
}

static void missing_ones_are_named(void **state)
{
    (void)state;
    for (int i = 0; i < COUNT; i++) {
        char file[64];
        snprintf(file, sizeof file, "liblockstep_%s.so", plugins[i]->name);
        assert_null(open_in(folder, plugins[i]));
        lkt_contains(lk_error(), folder);
        lkt_contains(lk_error(), file);
        lkt_contains(lk_error(), plugins[i]->package);
        assert_null(strchr(lk_error(), '\n'));
    }
}

static void a_file_that_is_none(void **state)
{
    char path[700];
    (void)state;
    snprintf(path, sizeof path, "%s/liblockstep_hdf5.so", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("no shared object, but as long as the head of one would be: 64 bytes, and more", file);
    fclose(file);
    assert_null(open_in(folder, &lki_hdf5));
    lkt_contains(lk_error(), path);
    lkt_contains(lk_error(), "cannot be loaded");
    lkt_contains(lk_error(), "libhdf5-dev");
    remove(path);
}

/* tests/base/stale_plugin.c */
static void stale_ones_are_refused(void **state)
{
    static const lki_plugin stale = {.name = "stale", .library = "A library", .package = "none"},
                            other = {.name = "other", .library = "A library", .package = "none"},
                            small = {.name = "small",
                                     .library = "A library",
                                     .package = "none",
                                     .functions_nbytes = 2 * sizeof(int)},
                            empty = {.name = "empty", .library = "A library", .package = "none"};
    const lki_plugin *const refused[] = {&stale, &other, &small, &empty};
    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_null(open_in(LK_BUILD_DIR "/tests/stale", refused[i]));
        lkt_contains(lk_error(), "belongs to another version of Lockstep");
        lkt_contains(lk_error(), refused[i]->name);
    }
}

/* Without the variable: beside the program, which is one folder below the build's. */
static void what_uses_one_says_why_it_cannot(void **state)
{
    (void)state;
    pid_t child = fork(); /* where nothing is open yet */
    if (child == 0) {
        setenv("LOCKSTEP_PLUGIN_PATH", folder, 1);
        bool right = !lk_hdf5_read("some.h5", NULL) && lk_error_status() == LK_ERR_UNSUPPORTED &&
                     strstr(lk_error(), "some.h5: HDF5: there is no liblockstep_hdf5.so in ") == lk_error();
        unsetenv("LOCKSTEP_PLUGIN_PATH"); /* it is looked for again: */
        lk_hdf5_read("some.h5", NULL);
        if (is_built(&lki_hdf5)) right = right && !strcmp(lk_error(), "some.h5: no such file");
        _exit(right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void *open_from_a_thread(void *plugin)
{
    return (void *)lki_plugin_open(plugin);
}

static void threads_get_the_same(void **state)
{
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    (void)state;
    void *functions[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, open_from_a_thread, &lki_pictures), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], &functions[i]);
    for (int i = 1; i < THREADS; i++) assert_ptr_equal(functions[i], functions[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_uses_one_says_why_it_cannot),
        cmocka_unit_test(threads_get_the_same),
        cmocka_unit_test(each_opens),
        cmocka_unit_test(missing_ones_are_named),
        cmocka_unit_test(a_file_that_is_none),
        cmocka_unit_test(stale_ones_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
