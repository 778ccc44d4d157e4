/* A solver that learns while it runs: u_t + u_x = NU u_xx on a ring, on MPI ranks.
 *
 *     mpicc closure.c $(pkg-config --cflags --libs lockstep) -o closure
 *     mpirun -n 4 ./closure            300 time steps
 *     mpirun -n 4 ./closure 0 100      the first 100, and then, in another job,
 *     mpirun -n 4 ./closure 100 300    the rest, with the same bits
 *
 * A fine grid resolves the solution, and a coarse grid of 64 cells does not: its upwind scheme smears it. A
 * network learns, from five neighbouring cells, what the coarse scheme gets wrong in one time step. The first
 * half of the ranks trains it, on a communicator of their own, with the cells that they hold in memory. At
 * the end all ranks use it on the coarse grid. closure.f90 is the same program in Fortran. */
#include <lockstep/lockstep.h>
#include <lockstep/mpi.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COARSE = 64, RATIO = 8, SUBSTEPS = 16, WIDTH = 5, HIDDEN = 16, REPEATS = 4, FORECAST = 32 };

static const double NU = 1e-3, DT = 0.5 / COARSE;
static const char *const names[] = {"0.weight", "0.bias", "2.weight", "2.bias"};

/* What a rank holds: its part of both grids, with cells of its neighbours around it. */
typedef struct solver {
    int rank, size, cells;          /* coarse cells of this rank */
    double *fine, *coarse, *closed; /* RATIO * cells + 2 * SUBSTEPS; cells + 4 */
    double *x, *y;                  /* (cells, WIDTH), (cells): what the network gets, and should answer */
} solver;

static void check(lk_status status)
{
    if (!status) return;
    fprintf(stderr, "closure: %s\n", lk_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static double *zeros(int count)
{
    double *numbers = calloc((size_t)count, sizeof *numbers);
    if (!numbers) MPI_Abort(MPI_COMM_WORLD, 1);
    return numbers;
}

/* Fills `halo` cells at each end of v, which has `count` cells between them. */
static void exchange(const solver *s, double *v, int count, int halo)
{
    int left = (s->rank + s->size - 1) % s->size, right = (s->rank + 1) % s->size;
    MPI_Sendrecv(v + count, halo, MPI_DOUBLE, right, 1, v, halo, MPI_DOUBLE, left, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(v + halo, halo, MPI_DOUBLE, left, 2, v + halo + count, halo, MPI_DOUBLE, right, 2,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* One upwind step of `dt` for the cells [begin, end), of width `h`. */
static void advance(double *v, int begin, int end, double h, double dt)
{
    double c = dt / h, d = NU * dt / (h * h), before = v[begin - 1];
    for (int i = begin; i < end; i++) {
        double here = v[i];
        v[i] = here - c * (here - before) + d * (v[i + 1] - 2 * here + before);
        before = here;
    }
}

/* The fine grid by one time step of the coarse one. As many cells of the neighbours are fetched as there are
 * substeps; each of them needs one less. */
static void advance_fine(solver *s)
{
    exchange(s, s->fine, RATIO * s->cells, SUBSTEPS);
    for (int i = 1; i <= SUBSTEPS; i++)
        advance(s->fine, i, RATIO * s->cells + 2 * SUBSTEPS - i, 1.0 / (COARSE * RATIO), DT / SUBSTEPS);
}

/* A coarse grid by one time step; its cells of the neighbours are up to date. */
static void advance_coarse(const solver *s, double *v)
{
    advance(v, 2, 2 + s->cells, 1.0 / COARSE, DT);
}

/* The mean of the fine cells below a coarse one. */
static double mean_below(const solver *s, int cell)
{
    double sum = 0;
    for (int k = 0; k < RATIO; k++) sum += s->fine[SUBSTEPS + cell * RATIO + k];
    return sum / RATIO;
}

static void restrict_to(solver *s, double *coarse)
{
    for (int i = 0; i < s->cells; i++) coarse[2 + i] = mean_below(s, i);
}

/* The five cells around each cell. */
static void gather(const solver *s, double *v)
{
    exchange(s, v, s->cells, 2);
    for (int i = 0; i < s->cells; i++) memcpy(s->x + i * WIDTH, v + i, WIDTH * sizeof *v);
}

/* A smooth wave of period 1. */
static double wave(double at)
{
    at = at - (int)at;
    return 16 * (at * (1 - at)) * (at * (1 - at));
}

static void start(solver *s)
{
    for (int i = 0; i < RATIO * s->cells; i++) {
        double at = (s->rank * RATIO * s->cells + i + 0.5) / (COARSE * RATIO);
        s->fine[SUBSTEPS + i] = wave(at) + 0.5 * wave(3 * at) + 0.25 * wave(5 * at + 0.3);
    }
}

/* Reads or writes this rank's part of the fine grid. */
static void file(solver *s, const char *mode)
{
    char path[64];
    snprintf(path, sizeof path, "field.%d.bin", s->rank);
    FILE *f = fopen(path, mode);
    size_t count = (size_t)(RATIO * s->cells), done = 0;
    if (f) done = *mode == 'r' ? fread(s->fine + SUBSTEPS, 8, count, f) : fwrite(s->fine + SUBSTEPS, 8, count, f);
    if (!f || fclose(f) || done != count) MPI_Abort(MPI_COMM_WORLD, 1);
}

/* One time step: the fine grid goes on, and the network learns from it on the ranks that have a step. */
static void time_step(solver *s, lk_step *step, int number)
{
    restrict_to(s, s->coarse);
    gather(s, s->coarse);
    advance_coarse(s, s->coarse);
    advance_fine(s);
    for (int i = 0; i < s->cells; i++) s->y[i] = (mean_below(s, i) - s->coarse[2 + i]) / DT;
    if (!step) return;
    lk_tensor *x = lk_tensor_borrow(LK_F64, LK_SHAPE(s->cells, WIDTH), s->x);
    lk_tensor *y = lk_tensor_borrow(LK_F64, LK_SHAPE(s->cells, 1), s->y);
    lk_input batch[] = {{"features", x}, {"targets", y}};
    for (int i = 0; i < REPEATS; i++) check(lk_step_train(step, batch, 2));
    if (s->rank == 0) printf("%4d %.16E\n", number, lk_step_loss(step));
    lk_tensor_free(x);
    lk_tensor_free(y);
}

/* All ranks get the weights of rank 0. */
static void share_weights(lk_module *net)
{
    for (int i = 0; i < 4; i++) {
        lk_param *param = lk_module_param(net, names[i]);
        MPI_Bcast(param->value->data, (int)lk_tensor_count(param->value), MPI_DOUBLE, 0, MPI_COMM_WORLD);
        lk_param_changed(param);
    }
}

/* Adds what the network says to a coarse grid that has been advanced. */
static void correct(solver *s, lk_step *step, double *v)
{
    lk_tensor *x = lk_tensor_borrow(LK_F64, LK_SHAPE(s->cells, WIDTH), s->x);
    check(lk_step_evaluate(step, &(lk_input){"features", x}, 1));
    const double *said = lk_step_output(step, "logits")->data;
    for (int i = 0; i < s->cells; i++) v[2 + i] = v[2 + i] + DT * said[i];
    lk_tensor_free(x);
}

static double distance(const solver *s, const double *v)
{
    double sum = 0, all = 0;
    for (int i = 0; i < s->cells; i++) sum += fabs(v[2 + i] - mean_below(s, i));
    MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return all / COARSE;
}

/* The coarse grid alone, without and with the network, beside the fine one. */
static void forecast(solver *s, lk_step *step)
{
    restrict_to(s, s->coarse);
    restrict_to(s, s->closed);
    for (int i = 0; i < FORECAST; i++) {
        gather(s, s->closed);
        advance_coarse(s, s->closed);
        correct(s, step, s->closed);
        exchange(s, s->coarse, s->cells, 2);
        advance_coarse(s, s->coarse);
        advance_fine(s);
    }
    double plain = distance(s, s->coarse), closed = distance(s, s->closed);
    if (s->rank == 0)
        printf("after %d steps the coarse grid is off by %.2E, with the network by %.2E\n", FORECAST, plain,
               closed);
}

/* One thread: the ranks have the cores. */
static lk_engine *one_thread(void)
{
    lk_engine *engine = lk_engine_open("cpu", &(lk_engine_options){.thread_count = 1});
    if (!engine) check(lk_error_status());
    return engine;
}

static void run(solver *s, int first, int last)
{
    MPI_Comm learners;
    int learns = s->rank < (s->size + 1) / 2;
    MPI_Comm_split(MPI_COMM_WORLD, learns ? 0 : MPI_UNDEFINED, s->rank, &learners);
    lk_manual_seed(7);
    lk_module *net = lk_sequential(lk_linear(WIDTH, HIDDEN), lk_tanh(), lk_linear(HIDDEN, 1));
    if (!net) check(lk_error_status());
    check(lk_module_to(net, LK_F64));
    lk_engine *engine = one_thread();
    lk_comm *comm = learns ? lk_comm_from_mpi(learners) : NULL;
    lk_criterion *criterion = lk_mse_loss();
    lk_optimizer *optimizer = lk_adam(.lr = 0.01);
    lk_step *step = !comm ? NULL
                          : lk_step(.model = net, .criterion = criterion, .optimizer = optimizer,
                                    .engine = engine, .comm = comm, .uneven_batches = true);
    if (learns && !step) check(lk_error_status());
    if (first > 0) {
        file(s, "rb");
        if (step) check(lk_step_restore(step, "closure.safetensors", .collective = true));
    } else {
        start(s);
    }
    for (int i = first + 1; i <= last; i++) time_step(s, step, i);
    file(s, "wb");
    if (step) check(lk_step_save(step, "closure.safetensors", .collective = true));

    share_weights(net);
    lk_step *answer = lk_step(.model = net, .engine = engine, .comm = lk_comm_alone());
    if (!answer) check(lk_error_status());
    forecast(s, answer);

    lk_step_free(answer);
    lk_step_free(step);
    lk_comm_free(comm);
    lk_optimizer_free(optimizer);
    lk_criterion_free(criterion);
    lk_module_free(net);
    lk_engine_close(engine);
    if (learns) MPI_Comm_free(&learners);
}

int main(int argc, char **argv)
{
    solver s = {0};
    int first = argc > 2 ? atoi(argv[1]) : 0, last = argc > 2 ? atoi(argv[2]) : 300;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &s.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &s.size);
    if (COARSE / 2 % s.size)
        check(lk_fail(LK_ERR_INVALID, "expected a number of ranks that divides %d", COARSE / 2));
    s.cells = COARSE / s.size;
    s.fine = zeros(RATIO * s.cells + 2 * SUBSTEPS), s.coarse = zeros(s.cells + 4), s.closed = zeros(s.cells + 4);
    s.x = zeros(s.cells * WIDTH), s.y = zeros(s.cells);
    run(&s, first, last);
    free(s.fine), free(s.coarse), free(s.closed), free(s.x), free(s.y);
    MPI_Finalize();
    return 0;
}
