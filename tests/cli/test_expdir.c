/* --expdir: a user's C components compiled, kept, loaded and named in configs, and everything that can be
 * wrong with them. */
#include "command.h"

#include <lockstep/checkpoint.h>
#include <lockstep/config.h>

#include <dirent.h>
#include <sys/stat.h>

#define EXAMPLE LK_SOURCE_DIR "/examples/expdir"
#define BUILDS  "static lk_status build(const lk_component *s, lk_args *a, void **out)\n"

static char folder[1024];

/* A scratch folder with the example's sources in my/. */
static void enter(const char *name)
{
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder(name));
    lkt_shell_in(folder, "mkdir my && cp %s/* my/", EXAMPLE);
    unsetenv("CC");
    unsetenv("CFLAGS");
    unsetenv("LDFLAGS");
}

static const char *path_of(const char *name)
{
    static char path[1300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_source(const char *name, const char *text)
{
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    fprintf(file, "#include <lockstep/lockstep.h>\n%s", text);
    fclose(file);
}

static const said *check_done(const char *arguments)
{
    const said *r = lockstep_in(folder, arguments);
    if (r->exit_code) fail_msg("lockstep %s: exit code %d\n%s", arguments, r->exit_code, r->err);
    return r;
}

/* How many shared objects a folder holds. */
static int object_count(const char *name)
{
    int count = 0;
    DIR *entries = opendir(path_of(name));
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        count += strstr(entry->d_name, ".so") != NULL;
    if (entries) closedir(entries);
    return count;
}

#define RUN "run -C my/config.yml --expdir my -e 2 "

static void test_a_config_names_them(void **state)
{
    (void)state;
    enter("expdir_run");
    check_done(RUN);
    assert_int_equal(object_count("my/.lockstep"), 1);
    assert_int_equal(access(path_of("logs/expdir/code/components.c"), R_OK), 0);
    lkt_shell_in(folder, "cmp my/components.c logs/expdir/code/components.c");
    const said *r =
        check_done("evaluate -C my/config.yml --expdir my -c logs/expdir/checkpoints/model.best.safetensors");
    lkt_contains(r->out, "root: ");
    check_done(
        "predict -C my/config.yml --expdir my -c logs/expdir/checkpoints/model.best.safetensors -o out.npy");
    assert_int_equal(access(path_of("out.npy"), R_OK), 0);
    lkt_contains(check_done("components --expdir my --kind module")->out, "WideNet");
    lkt_contains(check_done("help WideNet --expdir my")->out, "Units of the hidden layers.");
    assert_int_equal(object_count("my/.lockstep"), 1);
    /* The kept config is a config, too. */
    check_done("run -C logs/expdir/config.yml --expdir logs/expdir/code --logdir again");
    lkt_shell_in(
        folder,
        "cmp logs/expdir/checkpoints/model.last.safetensors again/checkpoints/model.last.safetensors");
}

/* Its state is kept and taken up again. */
static void test_an_update_rule_of_ones_own(void **state)
{
    (void)state;
#define SIGNUM                                                                                               \
    "run -C my/config.yml --expdir my --device cpu '--run/0/optimizer={_target_: Signum, lr: 0.003}' "
    enter("expdir_rule");
    check_done(SIGNUM "-e 4 --logdir straight");
    check_done(SIGNUM "-e 2 --logdir parts");
    check_done(SIGNUM "-e 4 --logdir parts --autoresume last");
    lkt_shell_in(folder,
                 "cmp straight/checkpoints/model.last.safetensors parts/checkpoints/model.last.safetensors");
#undef SIGNUM
}

static void test_it_is_compiled_when_something_changed(void **state)
{
    (void)state;
    enter("expdir_change");
    check_done(RUN);
    setenv("CC", "/no/such/compiler", 1); /* part of what it depends on */
    check_refused(folder, RUN, 2, "the compiler \"/no/such/compiler\" cannot be run");
    setenv("CC", "cc", 1);
    check_done(RUN);
    assert_int_equal(object_count("my/.lockstep"), 1);
    lkt_shell_in(folder, "printf '\\nenum { NEW_LINE };\\n' >> my/components.c");
    check_done(RUN);
    assert_int_equal(object_count("my/.lockstep"), 2);
    write_source("my/more.h", "#define MORE 1\n");
    check_done(RUN);
    assert_int_equal(object_count("my/.lockstep"), 3);
    setenv("CFLAGS", "-DSIZE=3 -Wno-unused", 1);
    check_done(RUN);
    assert_int_equal(object_count("my/.lockstep"), 4);
    unsetenv("CFLAGS");
}

/* What the sources include counts wherever it lies, and travels with the run. */
static void test_headers_in_folders_below(void **state)
{
    (void)state;
    enter("expdir_below");
    lkt_shell_in(
        folder,
        "mkdir -p my/inc/deep && printf '#pragma once\\n#include \"deep/width.h\"\\n' > my/inc/all.h && "
        "printf '#pragma once\\n#include \"../../inc/all.h\"\\n' > my/inc/deep/width.h && "
        "sed -i '1i #include \"inc/all.h\"' my/components.c");
    check_done(RUN);
    check_done(RUN);
    assert_int_equal(object_count("my/.lockstep"), 1);
    check_done("run -C logs/expdir/config.yml --expdir logs/expdir/code --logdir again");
    lkt_shell_in(folder, "printf 'enum { MORE };\\n' >> my/inc/deep/width.h");
    check_done(RUN);
    assert_int_equal(object_count("my/.lockstep"), 2);
    lkt_shell_in(folder, "cmp my/inc/deep/width.h logs/expdir/code/inc/deep/width.h");
    /* One that the compiler finds by its flags. */
    lkt_shell_in(folder, "mkdir my/found && printf '#define FOUND 1\\n' > my/found/by_flag.h && "
                         "sed -i '1i #include <by_flag.h>' my/components.c");
    setenv("CFLAGS", "-I my/found", 1);
    check_done(RUN);
    lkt_shell_in(folder, "printf 'enum { MORE_FOUND };\\n' >> my/found/by_flag.h");
    check_done(RUN);
    unsetenv("CFLAGS");
    assert_int_equal(object_count("my/.lockstep"), 4);
}

/* LOGDIR/code has the sources of the latest run, and what somebody else put there. */
static void test_sources_that_were_renamed(void **state)
{
    (void)state;
    enter("expdir_renamed");
    check_done(RUN);
    lkt_shell_in(folder, "mv my/components.c my/parts.c && printf x > logs/expdir/code/notes.txt && "
                         "printf 'typedef int mine;\\n' > logs/expdir/code/mine.c");
    check_done(RUN);
    assert_int_not_equal(access(path_of("logs/expdir/code/components.c"), F_OK), 0);
    assert_int_equal(access(path_of("logs/expdir/code/notes.txt"), F_OK), 0);
    assert_int_equal(access(path_of("logs/expdir/code/mine.c"), F_OK), 0);
    check_done("run -C logs/expdir/config.yml --expdir logs/expdir/code");
    assert_int_equal(access(path_of("logs/expdir/code/parts.c"), F_OK), 0);
}

static void test_ranks_of_one_run_and_several_at_once(void **state)
{
    (void)state;
    char port[16];
    enter("expdir_ranks");
    /* Four runs that start together compile once; a run of two ranks is like one process with half batches.
     */
    lkt_shell_in(
        folder, "for i in 1 2 3 4; do '%s' run -C my/config.yml --expdir my -e 1 --logdir par$i & done; wait",
        LK_BUILD_DIR "/lockstep");
    assert_int_equal(object_count("my/.lockstep"), 1);
    for (int i = 1; i <= 4; i++) {
        char name[64];
        snprintf(name, sizeof name, "par%d/checkpoints/model.last.safetensors", i);
        assert_int_equal(access(path_of(name), R_OK), 0);
    }
    check_done("run -C my/config.yml --expdir my -e 2 --ddp --nproc 2 --logdir two "
               "--run/0/loaders/train/batch_size=16");
    assert_int_equal(access(path_of("two/code/components.c"), R_OK), 0);
    /* By hand: each process loads the same object. */
    snprintf(port, sizeof port, "%d", 20000 + (int)getpid() % 12000);
    setenv("LKT_PORT", port, 1);
    lkt_shell_in(folder,
                 "one() { '%s' run -C my/config.yml --expdir my -e 1 --logdir hand --world-size 2 --rank $1 "
                 "--host 127.0.0.1 --port $LKT_PORT; }; one 1 & one 0 && wait $!",
                 LK_BUILD_DIR "/lockstep");
    assert_int_equal(access(path_of("hand/checkpoints/model.last.safetensors"), R_OK), 0);
    assert_int_equal(object_count("my/.lockstep"), 1);
}

static void test_folders_that_do_not_do(void **state)
{
    (void)state;
    enter("expdir_folders");
    check_refused(folder, "run -C my/config.yml --expdir nowhere", 2,
                  "--expdir: nowhere: No such file or directory");
    check_refused(folder, "run -C my/config.yml --expdir my/config.yml", 2, "Not a directory");
    lkt_shell_in(folder, "mkdir empty");
    check_refused(folder, "run -C my/config.yml --expdir empty", 2,
                  "--expdir: empty: there are no C sources (*.c) in it");
    check_refused(folder, "run -C my/config.yml", 2,
                  "my/config.yml:4: _target_: unknown component \"WideNet\"");
    check_refused(folder, "components --expdir nowhere", 2, "nowhere");
    check_refused(folder, "help --expdir nowhere", 2, "nowhere");
    check_refused(folder, "evaluate -C my/config.yml -c x --expdir nowhere", 2, "nowhere");
}

/* Where the folder cannot be written, the user's cache serves. */
static void test_a_folder_that_cannot_be_written(void **state)
{
    (void)state;
    enter("expdir_sealed");
    lkt_shell_in(folder,
                 "printf x > my/.lockstep"); /* root writes anywhere: a file stands where the folder would */
    setenv("XDG_CACHE_HOME", path_of("cache"), 1);
    check_done(RUN);
    assert_int_equal(object_count("cache/lockstep"), 1);
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
    check_refused(folder, RUN, 1, "neither my/.lockstep nor /proc/nowhere/lockstep can be written");
    unsetenv("XDG_CACHE_HOME");
}

static void test_sources_that_do_not_do(void **state)
{
    (void)state;
    enter("expdir_sources");
    lkt_shell_in(folder, "mkdir bad");
    write_source("bad/a.c", "int broken(void) { return nothing; }\n");
    const said *r = lockstep_in(folder, "components --expdir bad");
    assert_int_equal(r->exit_code, 2);
    lkt_contains(r->err, "bad/a.c:2:");
    lkt_contains(r->err, "lockstep: --expdir: bad: cc failed with exit code 1\n");
    assert_int_equal(object_count("bad/.lockstep"), 0);

    write_source("bad/a.c", "int fine(void);\nint fine(void) { return 1; }\n");
    check_refused(folder, "components --expdir bad", 2,
                  "it adds no components: LK_COMPONENTS(&name) is missing");

    write_source("bad/a.c",
                 "lk_status elsewhere(void);\n" BUILDS
                 "{ (void)s; (void)a; (void)out; return elsewhere(); }\n"
                 "static const lk_component c = {.name = \"C\", .build = build};\nLK_COMPONENTS(&c);\n");
    check_refused(folder, "components --expdir bad", 2, "undefined symbol: elsewhere");

    write_source("bad/a.c", BUILDS "{ (void)s; (void)a; (void)out; return LK_OK; }\n"
                                   "static const lk_component c = {.name = \"Linear\", .build = build};\n"
                                   "LK_COMPONENTS(&c);\n");
    check_refused(folder, "components --expdir bad", 2,
                  "bad/a.c: component Linear: the name is already taken by Linear");
}

static void test_a_component_that_fails(void **state)
{
    (void)state;
    enter("expdir_fails");
    write_source("my/other.c",
                 BUILDS "{ (void)s; (void)a; (void)out; return lk_fail(LK_ERR_INVALID, \"width: %d is too "
                        "much\", 7); }\n"
                        "static const lk_component one = {.name = \"One\", .build = build};\n"
                        "static const lk_component two = {.name = \"Two\", .build = build, .help = \"h\"};\n"
                        "LK_COMPONENTS(&one);\nLK_COMPONENTS(&two)\n;\n");
    const said *r = check_done("components --names --expdir my");
    lkt_contains(r->out, "WideNet\n");
    lkt_contains(r->out, "One\n");
    lkt_contains(r->out, "Two\n");
    check_refused(folder, RUN "--runner/model/_target_=One", 2,
                  "my/config.yml:4: One: unknown key \"width\"");
    lkt_shell_in(folder, "sed -i 's/WideNet, width: 64/One/' my/config.yml");
    check_refused(folder, RUN, 2, "my/config.yml:4: One: width: 7 is too much");
    lkt_shell_in(folder, "cp %s/config.yml my/", EXAMPLE);
    check_refused(folder, RUN "--run/0/loaders/train/dataset/count=1", 2,
                  "Spirals: count: expected at least 2, found 1");
}

/* The kinds that the example has none of; a call of one's own needs no runner. */
static void test_other_kinds(void **state)
{
    (void)state;
    enter("expdir_kinds");
    write_source(
        "my/other.c",
        "static lk_status sgd(const lk_component *s, lk_args *a, void **out)\n"
        "{ (void)s; *out = lk_sgd(.lr = lk_arg_float(a, \"lr\"), .momentum = 0.9);\n"
        "  return *out ? LK_OK : lk_error_status(); }\n"
        "static lk_status fall(const lk_component *s, lk_args *a, void **out)\n"
        "{ (void)s; (void)a; *out = lk_exponential_lr(0.5); return *out ? LK_OK : lk_error_status(); }\n"
        "static lk_status hello(const lk_component *s, lk_args *a, void **out)\n"
        "{ (void)s; (void)out; lk_log_to_stderr(\"note\", lk_arg_string(a, \"text\"), NULL); return LK_OK; "
        "}\n"
        "static const lk_parameter lr[] = {{.name = \"lr\", .type = LK_PARAMETER_FLOAT}, {0}};\n"
        "static const lk_parameter text[] = {{.name = \"text\", .type = LK_PARAMETER_STRING}, {0}};\n"
        "static const lk_component a = {.name = \"Heavy\", .kind = LK_KIND_OPTIMIZER, .parameters = lr,\n"
        "    .build = sgd}, b = {.name = \"Fall\", .kind = LK_KIND_SCHEDULER, .build = fall},\n"
        "    c = {.name = \"hello\", .kind = LK_KIND_CALL, .parameters = text, .build = hello};\n"
        "LK_COMPONENTS(&a, &b, &c);\n");
    check_done(RUN "'--run/0/optimizer={_target_: Heavy, lr: 0.02}' --run/0/scheduler=Fall");
    lkt_shell_in(folder, "printf 'run:\\n  - {_call_: hello, text: good morning}\\n' > hello.yml");
    lkt_contains(check_done("run -C hello.yml --expdir my")->err, "good morning");
    check_refused(folder, "run -C hello.yml", 2, "unknown component \"hello\"");
}

/* Without the command: a program opens a shared object itself; a second with the same names adds nothing. */
static void test_from_a_program(void **state)
{
    (void)state;
    lkt_fails(lk_components_load("/no/such/object.so"), LK_ERR_CONFIG, "/no/such/object.so");
}

int main(void)
{
    if (system("cc --version >/dev/null 2>&1")) {
        print_message("there is no C compiler here\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_config_names_them),
        cmocka_unit_test(test_an_update_rule_of_ones_own),
        cmocka_unit_test(test_it_is_compiled_when_something_changed),
        cmocka_unit_test(test_headers_in_folders_below),
        cmocka_unit_test(test_sources_that_were_renamed),
        cmocka_unit_test(test_ranks_of_one_run_and_several_at_once),
        cmocka_unit_test(test_folders_that_do_not_do),
        cmocka_unit_test(test_a_folder_that_cannot_be_written),
        cmocka_unit_test(test_sources_that_do_not_do),
        cmocka_unit_test(test_a_component_that_fails),
        cmocka_unit_test(test_other_kinds),
        cmocka_unit_test(test_from_a_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
