/* Estimators from configs: every one trains, is measured, saved, drawn and recorded; what a config gets wrong
 * is one line. */
#include "command.h"

#include <lockstep/lockstep.h>

#define CONFIG   LK_SOURCE_DIR "/examples/krr.yml"
#define AS(name) "run -C " CONFIG " --run/0/estimator/_target_=" name " "

static char folder[1024];

static void enter(const char *name)
{
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder(name));
}

static const said *check_done(const char *arguments)
{
    const said *r = lockstep_in(folder, arguments);
    if (r->exit_code) fail_msg("lockstep %s: exit code %d\n%s", arguments, r->exit_code, r->err);
    return r;
}

/* As check_refused, after the warning that the data are made up. */
static void check_wrong(const char *arguments, int exit_code, const char *fragment)
{
    const said *r = lockstep_in(folder, arguments);
    if (r->exit_code != exit_code) fail_msg("lockstep %s: exit code %d\n%s", arguments, r->exit_code, r->err);
    lkt_contains(r->err, fragment);
}

static const char *path_of(const char *name)
{
    static char path[2][4096];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

static void check_file(const char *name)
{
    if (access(path_of(name), R_OK)) fail_msg("there is no %s", name);
}

/* The only run below mlruns/, whose names are made up. */
static const char *find_run(void)
{
    static char path[1600];
    char command[1200];
    snprintf(command, sizeof command, "ls -d '%s'/mlruns/*/*/params", folder);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    assert_non_null(fgets(path, sizeof path, pipe));
    pclose(pipe);
    path[strlen(path) - strlen("/params\n")] = 0;
    return path + strlen(folder) + 1;
}

static void check_tracked(const char *run, const char *name, const char *expected)
{
    char file[1600], text[512];
    snprintf(file, sizeof file, "%s/%s", run, name);
    check_file(file);
    read_whole(path_of(file), text, sizeof text);
    if (expected) assert_string_equal(text, expected);
}

/* The same estimator through the C interface gives the same numbers. */
static void check_krr_numbers(const char *said_line)
{
    char expected[128];
    lk_generator generator;
    lk_evaluation eval;
    lk_generator_seed(&generator, 0);
    lk_tensor *flow = lk_synthetic_turbulence(3, 3, (int64_t[]){32, 32, 32}, 0, &generator);
    lk_fields *fields =
        lk_tensor_fields(lk_tensor_reshape(flow, LK_SHAPE(1, 3, 32, 32, 32)), NULL, .sample_to = {8, 8, 8});
    lk_estimator *krr = lk_krr(lk_fields_loaders(fields));
    lkt_ok(lk_estimator_train(krr));
    lkt_ok(lk_estimator_evaluate(krr, lk_fields_features(fields), lk_fields_targets(fields), &eval));
    snprintf(expected, sizeof expected, "eval - MSE Loss: %.4e, eval - KS Stat: %.4f", eval.mse, eval.ks);
    lkt_contains(said_line, expected);
    lk_estimator_free(krr);
    lk_fields_free(fields);
    lk_tensor_free(flow);
}

static void test_kernel_ridge_regression(void **state)
{
    (void)state;
    static const char *const artifacts[] = {"model.safetensors", "params.json",  "config.yml", "slices.png",
                                            "distributions.png", "profiles.png", "spectra.png"};
    char name[256];
    enter("estimators_krr");
    const said *r = check_done("run -C " CONFIG);
    lkt_contains(r->err, "turbulence is made up instead");
    check_krr_numbers(r->out);
    check_file("model/model.safetensors");
    check_file("pictures/slices.png");
    check_file("logs/krr/config.yml");
    const char *run = find_run();
    check_tracked(run, "params/model - name", "KRR");
    check_tracked(run, "params/model - alpha", "1");
    check_tracked(run, "params/data - features", "(3, 8, 8, 8)");
    check_tracked(run, "metrics/train - loss", NULL);
    check_tracked(run, "metrics/train - runtime", NULL);
    check_tracked(run, "metrics/eval - KS Stat", NULL);
    check_tracked(run, "metrics/eval - MSE Loss", NULL);
    for (size_t i = 0; i < sizeof artifacts / sizeof *artifacts; i++) {
        snprintf(name, sizeof name, "artifacts/%s", artifacts[i]);
        check_tracked(run, name, NULL);
    }
    /* The kept config is the run again. */
    check_done("run -C logs/krr/config.yml --run/0/save=again --logdir logs2");
    lk_estimator *opened = lk_estimator_open(path_of("again"));
    lkt_not_null(opened);
    lk_estimator_free(opened);
}

static void test_every_network(void **state)
{
    (void)state;
    enter("estimators_all");
    lkt_contains(check_done(AS("CNN3dEstimator") "-e 2 --logdir a")->out, "CNN3d: device");
    lkt_contains(check_done(AS("sapsan.lib.estimators.CNN3d") "-e 2 --logdir a2")->out, "2 epochs");
    lkt_contains(check_done(AS("PICAEEstimator") "-e 2 --logdir b --run/0/estimator/nfilters=4")->out,
                 "PICAE:");
    lkt_contains(check_done(AS("PIMLturb3DEstimator") "-e 2 --logdir c --run/0/estimator/ks_frac=0 "
                                                      "--run/0/estimator/activation=silu")
                     ->out,
                 "PIMLturb3D:");
    lkt_contains(check_done(AS("CNN3dEstimator") "-e 2 --ddp --nproc 2 --logdir d --device cpu")->out,
                 "DDP on (2 ranks)");
    check_file("a/csv_logger/train.csv");
    check_file("a/model_details.txt");
    check_file("a/config.yml");
    check_file("pictures/losses.png");
    check_done("run -C " CONFIG " --run/0/estimator/_target_=Estimator --run/0/estimator/name=Own "
               "'--run/0/estimator/model={_target_: Sequential, args: [{_target_: Conv3d, in_channels: 3, "
               "out_channels: 3, kernel_size: 3, padding: 1}]}' --run/0/estimator/criterion=MSELoss "
               "'--run/0/estimator/optimizer={_target_: SGD, lr: 0.1}' --logdir e -e 2 --run/0/format=svg");
    check_file("pictures/losses.svg");
}

/* What was saved is measured the same. */
static void test_a_saved_one_is_measured(void **state)
{
    (void)state;
    char trained[4096];
    enter("estimators_saved");
    static const char *const names[] = {"KRR", "CNN3dEstimator"};
    for (int i = 0; i < 2; i++) {
        char words[1024];
        snprintf(words, sizeof words, AS("%s") "-e 2", names[i]);
        const char *line = strstr(check_done(words)->out, "eval - MSE");
        assert_non_null(line);
        snprintf(trained, sizeof trained, "%.*s", (int)(strstr(line, ", eval - runtime") - line), line);
        snprintf(words, sizeof words,
                 AS("%s") "--run/0/_call_=evaluate_estimator --run/0/load=model --run/0/save=null", names[i]);
        check_wrong(words, 2, "unknown key \"save\"");
        snprintf(words, sizeof words,
                 "sed -e 's/train_estimator/evaluate_estimator/' -e 's/save:/load:/' -e 's/_target_: "
                 "KRR/_target_: "
                 "%s/' '%s' > '%s'",
                 names[i], CONFIG, path_of("evaluate.yml"));
        assert_int_equal(system(words), 0);
        lkt_contains(check_done("run -C evaluate.yml --run/0/pictures=again")->out, trained);
        check_file("again/spectra.png");
    }
    check_wrong("run -C evaluate.yml --run/0/load=nowhere", 1, "nowhere/params.json: no such file");
}

/* A flat field of one dimension: the estimators of lines. */
static void test_one_dimension(void **state)
{
    (void)state;
    enter("estimators_1d");
    check_done(AS("PIMLturb1DEstimator") "-e 2 --run/0/estimator/loaders/train/dataset/input_size=[64] "
                                         "--run/0/estimator/loaders/train/dataset/sample_to=[32]");
    check_file("pictures/slices.png");
}

/* Ranks that were started one by one: the first alone measures, saves, draws and records. */
static void test_ranks_by_hand(void **state)
{
    (void)state;
    static const char *const names[] = {"CNN3dEstimator", "KRR"};
    char command[4096];
    enter("estimators_hand");
    for (int i = 0; i < 2; i++) {
        snprintf(
            command, sizeof command,
            "cd '%s' || exit 1; export MASTER_ADDR=127.0.0.1 MASTER_PORT=%d WORLD_SIZE=2; one() { RANK=$1 "
            "LOCAL_RANK=$1 '%s/lockstep' run -C '%s' --run/0/estimator/_target_=%s -e 2 > $1.out "
            "2>/dev/null; }; "
            "one 1 & one 0 && wait $!",
            folder, 20000 + ((int)getpid() + i) % 12000, LK_BUILD_DIR, CONFIG, names[i]);
        assert_int_equal(system(command), 0);
        char text[4096];
        read_whole(path_of("0.out"), text, sizeof text);
        lkt_contains(text, "eval - KS Stat");
        read_whole(path_of("1.out"), text, sizeof text);
        assert_string_equal(text, "");
    }
    snprintf(command, sizeof command, "test $(ls -d '%s'/mlruns/*/*/params | wc -l) -eq 2", folder);
    assert_int_equal(system(command), 0);
}

/* An estimator of a user's own, by name. */
static void test_of_ones_own(void **state)
{
    (void)state;
    static const char source[] =
        "#include <lockstep/lockstep.h>\n"
        "static lk_status build(const lk_component *self, lk_args *args, void **out)\n"
        "{\n"
        "    int k = lk_arg_int(args, \"kernel\");\n"
        "    (void)self;\n"
        "    *out = lk_estimator_from_args(\"Smooth\", lk_conv3d(3, 3, k, .padding = k / 2), args);\n"
        "    return *out ? LK_OK : lk_error_status();\n"
        "}\n"
        "static const lk_parameter table[] = {\n"
        "    {.name = \"kernel\", .type = LK_PARAMETER_INT, .default_value = \"3\"},\n"
        "    LK_ESTIMATOR_PARAMETERS, {0}};\n"
        "static const lk_component smooth = {.name = \"SmoothEstimator\", .kind = LK_KIND_ESTIMATOR,\n"
        "    .help = \"One convolution.\", .parameters = table, .build = build};\n"
        "LK_COMPONENTS(&smooth);\n";
    char command[1200];
    enter("estimators_own");
    snprintf(command, sizeof command, "mkdir '%s/my'", folder);
    assert_int_equal(system(command), 0);
    FILE *file = fopen(path_of("my/smooth.c"), "w");
    assert_non_null(file);
    fputs(source, file);
    fclose(file);
    const said *r = check_done(AS("SmoothEstimator") "--expdir my -e 2 --run/0/estimator/kernel=5");
    lkt_contains(r->out, "Smooth: device");
    lkt_contains(r->out, "1128 parameters");
    check_file("logs/krr/code/smooth.c");
    lkt_contains(check_done("help SmoothEstimator --expdir my")->out, "patience");
}

static void test_mistakes(void **state)
{
    (void)state;
    enter("estimators_wrong");
    check_refused(folder, AS("CNN3d"), 2, "krr.yml:9: CNN3d: unknown key");
    check_refused(folder, AS("KR"), 2, "unknown component \"KR\"");
    check_refused(folder, AS("KRR") "--run/0/estimator/alhpa=2", 2, "did you mean \"alpha\"");
    check_wrong(AS("CNN3dEstimator") "--run/0/estimator/n_epochs=0", 2,
                "n_epochs: expected at least 1, found 0");
    check_wrong(AS("KRR") "--run/0/estimator/gamma=0", 2, "gamma: expected more than 0");
    check_refused(folder, AS("KRR") "--run/0/estimator/loaders=[]", 2, "loaders");
    check_refused(folder, AS("KRR") "--resume x", 2, "an estimator takes --logdir, --num-epochs");
    check_refused(folder,
                  AS("KRR") "--run/0/evaluate=test --run/0/estimator/loaders/train/dataset/missing=error", 2,
                  "data/cnn_krr/t0/u_dim32_fm15.h5");
    check_refused(folder, AS("CNN3dEstimator") "--run/0/_call_=train", 2, "train: unknown key \"estimator\"");
    check_wrong(AS("KRR") "--device cuda", 2,
                "KRR: device: it is solved on the CPU, expected auto or cpu, found \"cuda\"");
    check_wrong(AS("KRR") "--run/0/evaluate=test", 2, "evaluate: there is no loader \"test\"");
}

int main(void)
{
    pass_over_fonts();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernel_ridge_regression),
        cmocka_unit_test(test_every_network),
        cmocka_unit_test(test_one_dimension),
        cmocka_unit_test(test_of_ones_own),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_ranks_by_hand),
        cmocka_unit_test(test_a_saved_one_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
