/* The generator against PyTorch's own numbers. */
#include "lktest.h"

#include <lockstep/random.h>

static void raw_words_of_seed_137(void **state)
{
    (void)state;
    lk_generator generator;
    lk_generator_seed(&generator, 137);
    assert_int_equal(lk_generator_u32(&generator), 4053805790u);
    assert_int_equal(lk_generator_u32(&generator), 2173880614u);
    assert_int_equal(lk_generator_u32(&generator), 380293709u);
}

static void uniform_and_normal_of_seed_0(void **state)
{
    (void)state;
    static const double uniform[] = {.4963, .7682, .0885, .1320, .3074};
    static const double normal_5[] = {1.5410, -.2934, -2.1788, .5684, -1.0845};
    static const double normal_20[] = {-1.1258, -1.1524, -.2506, -.4339, .5988};
    lk_manual_seed(0);
    lk_tensor *tensor = lk_rand(LK_SHAPE(5));
    for (int i = 0; i < 5; i++) lkt_close(lk_tensor_get(tensor, i), uniform[i], 5.1e-5);
    lk_tensor_free(tensor);
    lk_manual_seed(0);
    tensor = lk_randn(LK_SHAPE(5));
    for (int i = 0; i < 5; i++) lkt_close(lk_tensor_get(tensor, i), normal_5[i], 5.1e-5);
    lk_tensor_free(tensor);
    lk_manual_seed(0);
    tensor = lk_randn(LK_SHAPE(20));
    for (int i = 0; i < 5; i++) lkt_close(lk_tensor_get(tensor, i), normal_20[i], 5.1e-5);
    lk_tensor_free(tensor);
}

static void permutations(void **state)
{
    (void)state;
    static const int64_t of_seed_0[] = {4, 1, 7, 5, 3, 9, 0, 8, 6, 2};
    static const int64_t of_seed_42[] = {2, 6, 1, 8, 4, 5, 0, 9, 3, 7};
    lk_generator generator;
    int64_t order[10];
    lk_generator_seed(&generator, 0);
    lk_randperm(order, 10, &generator);
    assert_memory_equal(order, of_seed_0, sizeof order);
    lk_generator_seed(&generator, 42);
    lk_randperm(order, 10, &generator);
    assert_memory_equal(order, of_seed_42, sizeof order);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(raw_words_of_seed_137),
        cmocka_unit_test(uniform_and_normal_of_seed_0),
        cmocka_unit_test(permutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
