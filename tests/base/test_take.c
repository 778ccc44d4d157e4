/* Structs from a program that was built for another version: what is copied, and what is refused. */
#include "lktest.h"

#include <lockstep/lockstep.h>

#include "base/take.h"

#include <string.h>

/* A struct of three versions: each has one field more. */
typedef struct first_options {
    size_t struct_size;
    double lr;
} first_options;
typedef struct second_options {
    size_t struct_size;
    double lr;
    const char *name;
} second_options;
typedef struct third_options {
    size_t struct_size;
    double lr;
    const char *name;
    int64_t count;
} third_options;

static void an_older_program_has_defaults(void **state)
{
    (void)state;
    struct {
        first_options options;
        const char *beyond; /* what happens to lie behind the program's struct */
    } program = {{LK_SIZE(first_options), .lr = 0.5}, "not an option"};
    third_options taken;
    memset(&taken, 0xff, sizeof taken);
    lkt_ok(lki_take(&taken, sizeof taken, &program.options, "some_options"));
    assert_int_equal(taken.struct_size, sizeof taken);
    assert_true(taken.lr == 0.5);
    assert_null(taken.name);
    assert_int_equal(taken.count, 0);
}

static void a_newer_program_may_leave_its_fields_alone(void **state)
{
    (void)state;
    second_options taken;
    lkt_ok(lki_take(&taken, sizeof taken, LK_OPTIONS(third_options, .lr = 2, .name = "n"), "some_options"));
    assert_int_equal(taken.struct_size, sizeof taken);
    assert_true(taken.lr == 2);
    assert_string_equal(taken.name, "n");
}

static void a_newer_field_that_is_set_is_refused(void **state)
{
    (void)state;
    second_options taken;
    const third_options *given = LK_OPTIONS(third_options, .lr = 2, .name = "n", .count = 1);
    lkt_fails(lki_take(&taken, sizeof taken, given, "some_options"), LK_ERR_UNSUPPORTED,
              "some_options: built for a newer lockstep");
    assert_string_equal(taken.name, "n"); /* what was handed over can be freed */
}

static void without_a_size_it_is_refused(void **state)
{
    (void)state;
    second_options taken, given = {.lr = 2};
    lkt_fails(lki_take(&taken, sizeof taken, &given, "some_options"), LK_ERR_INVALID,
              "some_options: struct_size is not set: begin with LK_SIZE(some_options)");
    assert_true(taken.lr == 0);
    lkt_ok(lki_take(&taken, sizeof taken, NULL, "some_options"));
    assert_int_equal(taken.struct_size, sizeof taken);
}

/* The header knows the size where a program of before left it out, by pointer and by value. */
static void the_header_fills_in_a_size(void **state)
{
    (void)state;
    lk_callback_ops callback = {.name = "mine"};
    lk_callback *made = lk_callback_create(&callback, NULL, 0);
    assert_non_null(made);
    lk_callback_free(made);
    lk_runner_ops slots = {0};
    lk_runner *runner = lk_custom_runner(&slots, NULL);
    assert_non_null(runner);
    lk_train_options options = {.num_epochs = 1};
    lkt_fails(lk_train_with(runner, &options), LK_ERR_INVALID, "there are no loaders");
    lk_runner_free(runner);
    lk_engine *by_value = lk_engine_open("ref", (lk_engine_options){.thread_count = 1});
    lk_engine *by_default = lk_engine_open("ref", NULL);
    assert_non_null(by_value);
    assert_non_null(by_default);
    lk_engine_close(by_value);
    lk_engine_close(by_default);
}

/* Without the header's help, as from another language. */
#undef lk_callback_create
#undef lk_custom_runner
#undef lk_logger_create
#undef lk_dataset_create
#undef lk_comm_create

/* Every kind of constructor says it: those with options, with ops, and those that carry their error along. */
static void constructors_refuse(void **state)
{
    (void)state;
    lk_adam_options adam = {.lr = 1};
    assert_null(lk_adam_with(&adam));
    lkt_contains(lk_error(), "LK_SIZE(lk_adam_options)");
    lk_step_lr_options decay = {.gamma = 0.5};
    assert_null(lk_step_lr_with(2, &decay));
    lkt_contains(lk_error(), "LK_SIZE(lk_step_lr_options)");
    lk_callback_ops callback = {.name = "mine"};
    assert_null(lk_callback_create(&callback, NULL, 0));
    lkt_contains(lk_error(), "LK_SIZE(lk_callback_ops)");
    lk_runner_ops runner = {0};
    assert_null(lk_custom_runner(&runner, NULL));
    lkt_contains(lk_error(), "LK_SIZE(lk_runner_ops)");
    lk_logger_ops logger = {0};
    assert_null(lk_logger_create(&logger, 0, NULL));
    lkt_contains(lk_error(), "LK_SIZE(lk_logger_ops)");
    lk_dataset_ops dataset = {0};
    assert_null(lk_dataset_create(&dataset, NULL, 0, NULL));
    lkt_contains(lk_error(), "LK_SIZE(lk_dataset_ops)");
    lk_comm_ops comm = {0};
    assert_null(lk_comm_create(&comm, 0, 1, NULL));
    lkt_contains(lk_error(), "LK_SIZE(lk_comm_ops)");
}

/* A loader does not take its own order for one that could not be made. */
static void a_sampler_that_was_refused_breaks_its_loader(void **state)
{
    (void)state;
    lk_random_sampler_options options = {.replacement = true};
    lk_sampler *sampler = lk_random_sampler_with(8, &options);
    assert_non_null(sampler);
    lk_dataset *digits = lk_synthetic_digits(.count = 8);
    assert_null(lk_loader(digits, .batch_size = 2, .sampler = sampler));
    lkt_contains(lk_error(), "LK_SIZE(lk_random_sampler_options)");
}

/* What was handed over in options that are refused is freed: a sanitizer would say so. */
static void what_was_handed_over_is_freed(void **state)
{
    (void)state;
    struct {
        lk_train_options options;
        int64_t later;
    } newer = {{.struct_size = sizeof newer,
                .model = lk_linear(2, 2),
                .criterion = lk_mse_loss(),
                .optimizer = lk_adam(),
                .callbacks = lk_callbacks(lk_timer_callback())},
               .later = 1};
    lk_runner *runner = lk_supervised_runner();
    lkt_fails(lk_train_with(runner, &newer.options), LK_ERR_UNSUPPORTED,
              "lk_train_options: built for a newer");
    lk_runner_free(runner);
}

static lk_status build_nothing(const lk_component *self, lk_args *args, void **out)
{
    (void)self, (void)args, (void)out;
    return lk_fail(LK_ERR_CONFIG, "nothing");
}

static void components_state_their_version(void **state)
{
    (void)state;
    static const lk_component component = {
        .name = "TakeTest", .kind = LK_KIND_MODULE, .build = build_nothing};
    lk_build build = LK_BUILD_;
    build.version = LK_VERSION_NUMBER + 100;
    lkt_fails(lk_component_add_built(&component, &build), LK_ERR_UNSUPPORTED, "but this is " LK_VERSION);
    build.version = LK_VERSION_NUMBER + 10000;
    lkt_fails(lk_component_add_built(&component, &build), LK_ERR_UNSUPPORTED, "compile it again");
    assert_null(lk_component_find("TakeTest"));
    build.version = LK_VERSION_NUMBER;
    lkt_ok(lk_component_add_built(&component, &build));
    assert_ptr_equal(lk_component_find("TakeTest"), &component);
}

/* Parameters of a version that had fewer fields: the table is read at that version's distances. */
static void components_of_smaller_structs_are_adapted(void **state)
{
    (void)state;
    enum { OLD_NBYTES = offsetof(lk_parameter, implied) };
    static char table[3 * OLD_NBYTES];
    for (int i = 0; i < 2; i++) {
        lk_parameter parameter = {
            .name = i ? "width" : "depth", .type = LK_PARAMETER_INT, .default_value = "3"};
        memcpy(table + i * OLD_NBYTES, &parameter, OLD_NBYTES);
    }
    static lk_component component = {.name = "OldTest", .kind = LK_KIND_MODULE, .build = build_nothing};
    component.parameters = (const lk_parameter *)(void *)table;
    lk_build build = LK_BUILD_;
    build.component_nbytes = offsetof(lk_component, context);
    build.parameter_nbytes = OLD_NBYTES;
    lkt_ok(lk_component_add_built(&component, &build));
    const lk_component *found = lk_component_find("OldTest");
    assert_non_null(found);
    assert_string_equal(found->parameters[0].name, "depth");
    assert_string_equal(found->parameters[1].name, "width");
    assert_string_equal(found->parameters[1].default_value, "3");
    assert_null(found->parameters[1].implied);
    assert_null(found->parameters[2].name);
}

static void the_version_is_one(void **state)
{
    (void)state;
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", LK_VERSION_MAJOR, LK_VERSION_MINOR, LK_VERSION_PATCH);
    assert_string_equal(text, LK_VERSION);
    assert_string_equal(text, lk_version());
    assert_int_equal(lk_version_number(), LK_VERSION_NUMBER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_older_program_has_defaults),
        cmocka_unit_test(a_newer_program_may_leave_its_fields_alone),
        cmocka_unit_test(a_newer_field_that_is_set_is_refused),
        cmocka_unit_test(without_a_size_it_is_refused),
        cmocka_unit_test(the_header_fills_in_a_size),
        cmocka_unit_test(constructors_refuse),
        cmocka_unit_test(a_sampler_that_was_refused_breaks_its_loader),
        cmocka_unit_test(what_was_handed_over_is_freed),
        cmocka_unit_test(components_state_their_version),
        cmocka_unit_test(components_of_smaller_structs_are_adapted),
        cmocka_unit_test(the_version_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
