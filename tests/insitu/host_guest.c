/* A program that trains and infers on its one thread, and looks at itself before and after: test_guest.c
 * traces it. Ends with 0 if the library has left everything as it was; otherwise a line on stderr says what
 * is different. The arguments are a folder to work in, and "first", if what the library loads once is to be
 * looked at, too. */
#include <lockstep/lockstep.h>
#include <lockstep/sys/comm.h>
#include <lockstep/sys/engine.h>

#include <dirent.h>
#include <fenv.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

enum { SIGNALS = 65 };

/* What belongs to the host. */
typedef struct belongings {
    int descriptors, tasks, rounding;
    struct sigaction actions[SIGNALS];
    sigset_t mask;
    char environment[65536], folder[1024], locale[256];
    mode_t umask;
#if defined(__x86_64__)
    unsigned control;
#endif
} belongings;

static int count_entries(const char *path)
{
    int count = 0;
    DIR *folder = opendir(path);
    while (folder && readdir(folder)) count++;
    if (folder) closedir(folder);
    return count;
}

static void look(belongings *b)
{
    memset(b, 0, sizeof *b);
    b->descriptors = count_entries("/proc/self/fd");
    b->tasks = count_entries("/proc/self/task");
    b->rounding = fegetround();
    for (int i = 1; i < SIGNALS; i++) sigaction(i, NULL, &b->actions[i]);
    sigprocmask(SIG_SETMASK, NULL, &b->mask);
    size_t used = 0;
    for (char **entry = environ; *entry && used + strlen(*entry) + 2 < sizeof b->environment; entry++)
        used += (size_t)snprintf(b->environment + used, sizeof b->environment - used, "%s\n", *entry);
    if (!getcwd(b->folder, sizeof b->folder)) b->folder[0] = '\0';
    snprintf(b->locale, sizeof b->locale, "%s", setlocale(LC_ALL, NULL));
    b->umask = umask(0);
    umask(b->umask);
#if defined(__x86_64__)
    b->control = __builtin_ia32_stmxcsr() & ~0x3fu; /* without the flags of what has happened */
#endif
}

static int differ(const char *what)
{
    fprintf(stderr, "the host has another %s than before\n", what);
    return 1;
}

static int compare(const belongings *a, const belongings *b)
{
    int found = 0;
    if (a->descriptors != b->descriptors) found += differ("number of open descriptors");
    if (a->tasks != b->tasks) found += differ("number of threads");
    if (a->rounding != b->rounding) found += differ("rounding of floating-point numbers");
    for (int i = 1; i < SIGNALS; i++)
        if (a->actions[i].sa_handler != b->actions[i].sa_handler) found += differ("signal handler");
    if (memcmp(&a->mask, &b->mask, sizeof a->mask)) found += differ("signal mask");
    if (strcmp(a->environment, b->environment)) found += differ("environment");
    if (strcmp(a->folder, b->folder)) found += differ("folder");
    if (strcmp(a->locale, b->locale)) found += differ("locale");
    if (a->umask != b->umask) found += differ("umask");
#if defined(__x86_64__)
    if (a->control != b->control) found += differ("control word of floating-point numbers");
#endif
    return found;
}

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, lk_error());
    return 1;
}

static lk_module *net(void)
{
    return lk_sequential(lk_linear(8, 64), lk_batch_norm1d(64), lk_gelu(), lk_dropout(.p = 0.1),
                         lk_linear(64, 1));
}

static int train(lk_step *step, const lk_tensor *x, const lk_tensor *y, int batches)
{
    lk_input batch[] = {{"features", x}, {"targets", y}};
    for (int i = 0; i < batches; i++)
        if (lk_step_train(step, batch, 2)) return fail("train");
    return lk_step_evaluate(step, batch, 1) ? fail("evaluate") : 0;
}

/* Training, saving and restoring. Mistakes are statuses, too. */
static int use_steps(const char *weights)
{
    lk_engine *engine = lk_engine_open("cpu", &(lk_engine_options){.thread_count = 1});
    lk_module *model = net();
    lk_step *step =
        lk_step(.model = model, .criterion = lk_mse_loss(), .optimizer = lk_adam(.lr = 0.01),
                .scheduler = lk_step_lr(5), .engine = engine, .comm = lk_comm_alone(), .owned = true);
    lk_tensor *x = lk_randn(LK_SHAPE(4096, 8)), *y = lk_randn(LK_SHAPE(4096, 1));
    if (!step || !x || !y) return fail("step");
    if (train(step, x, y, 10)) return 1;
    if (lk_step_save(step, "step.safetensors") || lk_step_restore(step, "step.safetensors"))
        return fail("save");
    if (train(step, x, y, 3)) return 1;
    if (lk_step_restore(step, "nowhere.safetensors") == LK_OK) return fail("restored what is not there");
    if (lk_engine_open("nothing", NULL)) return fail("opened what is not there");
    lk_state_dict *state = lk_module_state_dict(model);
    if (!state || lk_save_safetensors(weights, state)) return fail("weights");
    lk_state_dict_free(state);
    lk_step_free(step);
    lk_tensor_free(x);
    lk_tensor_free(y);
    lk_engine_close(engine);
    return 0;
}

static int use_predictor(const char *weights)
{
    lk_predictor *predictor = lk_predictor(weights, .model = net(), .device = "cpu", .thread_count = 1);
    lk_tensor *x = lk_randn(LK_SHAPE(1000, 8));
    lk_tensor *y = predictor && x ? lk_predictor_run(predictor, x) : NULL;
    if (!y) return fail("predictor");
    lk_tensor_free(x);
    lk_tensor_free(y);
    lk_predictor_free(predictor);
    return 0;
}

int main(int argc, char **argv)
{
    static belongings before, after;
    if (argc < 2 || chdir(argv[1])) return 2;
    look(&before);
    if (access("/guest begins", F_OK) == 0) return 2; /* marks of the trace */
    int failed = use_steps("weights.safetensors") || use_predictor("weights.safetensors");
    if (access("/guest ends", F_OK) == 0) return 2;
    look(&after);
    return failed || compare(&before, &after);
}
