/* The nets of the examples against live PyTorch: the losses of the first 20 batches, in one process and
 * shared by two ranks whose gradients are averaged. tests/oracle/nets.py wrote what is expected. A run on
 * ranks compares their weights at its end and fails if they differ. */
#include "lktest.h"

enum { MOST = 32 };

static FILE *opened(FILE *file, const char *what)
{
    if (!file) fail_msg("%s does not open", what);
    return file;
}

static int expected_losses(const char *name, int ranks, double *losses)
{
    char path[1200];
    snprintf(path, sizeof path, LK_SOURCE_DIR "/tests/golden/nets/%s.txt", name);
    FILE *file = opened(fopen(path, "r"), path);
    int count = 0, of;
    double loss;
    while (count < MOST && fscanf(file, "%d %lf", &of, &loss) == 2)
        if (of == ranks) losses[count++] = loss;
    fclose(file);
    return count;
}

static int losses_of_example(const char *name, int ranks, double *losses)
{
    char command[1300], line[256];
    snprintf(command, sizeof command, "'" LK_BUILD_DIR "/examples/%s' 20 --nproc %d", name, ranks);
    FILE *example = opened(popen(command, "r"), command);
    int count = 0;
    while (fgets(line, sizeof line, example)) {
        const char *loss = strstr(line, "loss ");
        if (loss && count < MOST) losses[count++] = strtod(loss + strlen("loss "), NULL);
    }
    if (pclose(example)) fail_msg("%s fails", command);
    return count;
}

/* Each loss within 1e-5 of what is expected. A loss near 0 is a difference of larger numbers: its error
 * counts as if it were 0.1. */
static void compare(const char *name, int ranks)
{
    double expected[MOST], found[MOST];
    int count = expected_losses(name, ranks, expected);
    assert_true(count >= 20 / ranks);
    assert_int_equal(losses_of_example(name, ranks, found), count);
    for (int i = 0; i < count; i++)
        if (!(fabs(found[i] - expected[i]) <= 1e-5 * fmax(fabs(expected[i]), 0.1)))
            fail_msg("%s on %d ranks: loss %d is %.9g, PyTorch's %.9g", name, ranks, i + 1, found[i],
                     expected[i]);
}

static const char *const examples[] = {"12_wgan_gp", "13_simsiam", "14_vq_vae", "15_maml",
                                       "16_burgers", "17_seq2seq", "18_gpt"};
enum { EXAMPLES = sizeof examples / sizeof *examples };

static void losses_are_those_of_pytorch(void **state)
{
    (void)state;
    for (int i = 0; i < EXAMPLES; i++) compare(examples[i], 1);
}

static void two_ranks_average_their_gradients(void **state)
{
    (void)state;
    for (int i = 0; i < EXAMPLES; i++) compare(examples[i], 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_those_of_pytorch),
        cmocka_unit_test(two_ranks_average_their_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
