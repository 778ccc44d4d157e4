/* How long an all-reduce takes, ours beside Open MPI and Gloo called directly, in one run on the same cores.
 *
 *     bench_comm [RANKS]            the tables
 *     bench_comm --part NAME RANKS  one row: "COUNT median-us best-us" a line; the mpi parts are for mpirun
 *
 * A second table says what our comm costs over the library below it: the same ranks reduce the same buffer
 * once through the comm and once directly, in turns, so that what else the machine does hits both alike. A
 * line of such a row is "COUNT our-us their-us", where the fastest tenth of each has its middle. */
#include "base/clock.h"
#include "comm/comm.h"
#include "launch/devices.h"

#include "gloo_direct.h"

#include <lockstep/status.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef LOCKSTEP_HAVE_MPI
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#endif

static const int64_t counts[] = {1, 7850, 101770, 2460000}; /* a loss; MNIST-linear; the toy MLP; 10 MB */
enum { COUNTS = sizeof counts / sizeof *counts, SMALL = 1000, LARGE = 1000000 };

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int repeats(int64_t count, int few)
{
    return count >= LARGE ? 200 : few;
}

/* Times `reduce` on each size and prints rank 0's lines. */
static int measure(int rank, int few, int (*reduce)(void *context, float *data, int64_t count), void *context)
{
    for (int c = 0; c < COUNTS; c++) {
        int n = repeats(counts[c], few);
        float *data = calloc((size_t)counts[c], sizeof *data);
        double *us = calloc((size_t)n, sizeof *us);
        if (!data || !us) return 1;
        for (int i = -n / 10; i < n; i++) {
            int64_t start = lki_now_ns();
            if (reduce(context, data, counts[c]) != 0) return 1;
            if (i >= 0) us[i] = (double)(lki_now_ns() - start) / 1e3;
        }
        qsort(us, (size_t)n, sizeof *us, ascending);
        if (rank == 0) printf("%lld %.2f %.2f\n", (long long)counts[c], us[n / 2], us[0]);
        fflush(stdout);
        free(us);
        free(data);
    }
    return 0;
}

typedef int (*reducer)(void *context, float *data, int64_t count);

/* Of one; small ones are timed by the hundred, as the clock goes in tens of nanoseconds. */
static double timed_us(reducer reduce, void *context, float *data, int64_t count)
{
    int n = count < SMALL ? 100 : 1;
    int64_t start = lki_now_ns();
    for (int i = 0; i < n; i++) {
        data[0] = 0; /* nor does it grow beyond what a float is */
        if (reduce(context, data, count) != 0) exit(1);
    }
    return (double)(lki_now_ns() - start) / 1e3 / n;
}

/* Times both in turns, each first every other time, and prints rank 0's lines. */
static int compare(int rank, int few, reducer ours, void *our_context, reducer theirs, void *their_context)
{
    for (int c = 0; c < COUNTS; c++) {
        int n = repeats(counts[c], few);
        float *data = calloc((size_t)counts[c], sizeof *data);
        double *our_us = calloc((size_t)n, sizeof *our_us), *their_us = calloc((size_t)n, sizeof *their_us);
        if (!data || !our_us || !their_us) return 1;
        for (int i = -n / 10; i < n; i++) {
            double a = 0, b = 0;
            if (i & 1) b = timed_us(theirs, their_context, data, counts[c]);
            a = timed_us(ours, our_context, data, counts[c]);
            if (!(i & 1)) b = timed_us(theirs, their_context, data, counts[c]);
            if (i < 0) continue;
            our_us[i] = a;
            their_us[i] = b;
        }
        qsort(our_us, (size_t)n, sizeof *our_us, ascending);
        qsort(their_us, (size_t)n, sizeof *their_us, ascending);
        if (rank == 0) printf("%lld %.3f %.3f\n", (long long)counts[c], our_us[n / 20], their_us[n / 20]);
        fflush(stdout);
        free(data);
        free(our_us);
        free(their_us);
    }
    return 0;
}

static int reduce_with_comm(void *comm, float *data, int64_t count)
{
    if (lk_comm_all_reduce(comm, data, count, LK_F32, LK_REDUCE_SUM) == LK_OK) return 0;
    fprintf(stderr, "%s\n", lk_error());
    return 1;
}

typedef struct job {
    int size, shm_fd;
    int port;
    char folder[64];
} job;

static int shm_rank(const job *job, int rank)
{
    lk_comm *comm = NULL;
    lki_shm_options options = {.rank = rank, .size = job->size, .fd = job->shm_fd};
    if (lki_comm_shm_create(&comm, &options) != LK_OK) return 1;
    int failed = measure(rank, 5000, reduce_with_comm, comm);
    lk_comm_free(comm);
    return failed;
}

/* Our comm over Gloo; by itself, or in turns with Gloo where `beside` is its context. */
static int gloo_rank_beside(const job *job, int rank, void *beside)
{
    lki_store_client *store = NULL;
    lk_comm *comm = NULL;
    lki_store_options where = {
        .host = "127.0.0.1", .port = job->port, .token = "bench", .rank = rank, .world_size = job->size};
    if (lki_store_connect(&store, &where) != LK_OK) return 1;
    lki_gloo_options options = {
        .rank = rank, .size = job->size, .store = store, .prefix = "g/", .host = "127.0.0.1"};
    if (lki_comm_gloo_create(&comm, &options) != LK_OK) return 1;
    int failed = beside ? compare(rank, 500, reduce_with_comm, comm, gloo_direct_reduce, beside)
                        : measure(rank, 500, reduce_with_comm, comm);
    lk_comm_free(comm);
    lki_store_close(store);
    return failed;
}

static int gloo_rank(const job *job, int rank)
{
    return gloo_rank_beside(job, rank, NULL);
}

static int gloo_both_rank(const job *job, int rank)
{
    void *direct = gloo_direct_connect(rank, job->size, job->folder);
    return !direct || gloo_rank_beside(job, rank, direct);
}

static int gloo_direct_rank(const job *job, int rank)
{
    void *context = gloo_direct_connect(rank, job->size, job->folder);
    return !context || measure(rank, 500, gloo_direct_reduce, context);
}

static int run_forked(int size, int (*body)(const job *job, int rank))
{
    job job = {.size = size, .folder = "/tmp/bench-comm-XXXXXX"};
    lki_store_server *server = NULL;
    int failed = 0;
    if (lki_shm_memory_create(&job.shm_fd, size, 0) != LK_OK || !mkdtemp(job.folder)) return 1;
    if (lki_store_server_start(&server, &(lki_store_server_options){.world_size = size, .token = "bench"}) !=
        LK_OK)
        return 1;
    job.port = lki_store_server_port(server);
    for (int rank = 0; rank < size; rank++) {
        if (fork() != 0) continue;
        lki_pin_rank(rank, size);
        _exit(body(&job, rank));
    }
    for (int status; wait(&status) > 0;) failed |= status != 0;
    lki_store_server_stop(server, 0);
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", job.folder);
    return failed | (system(command) != 0);
}

#ifdef LOCKSTEP_HAVE_MPI
static int reduce_with_mpi(void *context, float *data, int64_t count)
{
    (void)context;
    return MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) != MPI_SUCCESS;
}

/* The one that does not block, as the collectives of a backward half must not. */
static int reduce_with_mpi_request(void *context, float *data, int64_t count)
{
    MPI_Request request;
    int done = 0;
    (void)context;
    if (MPI_Iallreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request) !=
        MPI_SUCCESS)
        return 1;
    while (!done) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    return 0;
}

static int mpi_part(const char *part)
{
    lk_comm *comm = NULL;
    if (lki_comm_mpi_create(&comm, &(lki_mpi_options){0}) != LK_OK) return 1;
    int failed = strcmp(part, "mpi") == 0 ? measure(comm->rank, 5000, reduce_with_comm, comm)
                 : strcmp(part, "mpi-both") == 0
                     ? compare(comm->rank, 5000, reduce_with_comm, comm, reduce_with_mpi, NULL)
                 : strcmp(part, "mpi-both-nonblocking") == 0
                     ? compare(comm->rank, 5000, reduce_with_comm, comm, reduce_with_mpi_request, NULL)
                 : strcmp(part, "mpi-nonblocking") == 0
                     ? measure(comm->rank, 5000, reduce_with_mpi_request, NULL)
                     : measure(comm->rank, 5000, reduce_with_mpi, NULL);
    lk_comm_free(comm);
    return failed;
}
#endif

static int run_part(const char *part, int size)
{
    if (strcmp(part, "shm") == 0) return run_forked(size, shm_rank);
    if (strcmp(part, "gloo") == 0) return run_forked(size, gloo_rank);
    if (strcmp(part, "gloo-direct") == 0) return run_forked(size, gloo_direct_rank);
    if (strcmp(part, "gloo-both") == 0) return run_forked(size, gloo_both_rank);
#ifdef LOCKSTEP_HAVE_MPI
    if (strncmp(part, "mpi", 3) == 0) return mpi_part(part);
#endif
    return 1;
}

/* Runs this program once for a row and reads its numbers back. */
static int read_row(const char *self, const char *part, int size, double median[COUNTS], double best[COUNTS])
{
    char command[1500];
    bool mpi = strncmp(part, "mpi", 3) == 0;
    snprintf(command, sizeof command, "%s%s '%s' --part %s %d 2>/dev/null",
             mpi ? "mpirun --allow-run-as-root --oversubscribe --bind-to core -np " : "",
             mpi ? (char[]){(char)('0' + size), 0} : "", self, part, size);
    FILE *output = popen(command, "r");
    int read = 0;
    long long count;
    while (output && read < COUNTS && fscanf(output, "%lld %lf %lf", &count, &median[read], &best[read]) == 3)
        read++;
    return output && pclose(output) == 0 && read == COUNTS ? 0 : 1;
}

static int print_table(int size)
{
    static const struct {
        const char *part, *label;
    } rows[] = {
        {"shm", "lockstep shm"},   {"mpi-direct", "MPI_Allreduce"},
        {"mpi", "lockstep mpi"},   {"mpi-nonblocking", "MPI_Iallreduce"},
        {"gloo", "lockstep gloo"}, {"gloo-direct", "Gloo"},
    };
    char self[1024] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 1;
    printf("All-reduce (sum) of floats between %d processes of this host: median (best) microseconds\n%-16s",
           size, "");
    for (int c = 0; c < COUNTS; c++) printf("%22lld", (long long)counts[c]);
    printf("\n");
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        double median[COUNTS], best[COUNTS];
        printf("%-16s", rows[r].label);
        fflush(stdout);
        if (read_row(self, rows[r].part, size, median, best) != 0) {
            printf("  not here\n");
            continue;
        }
        for (int c = 0; c < COUNTS; c++) printf("%11.1f (%8.1f)", median[c], best[c]);
        printf("\n");
    }
    return 0;
}

/* What the comm adds: ours over theirs, in percent. */
static void print_costs(int size)
{
    static const struct {
        const char *part, *label;
    } rows[] = {
        {"gloo-both", "Gloo"}, {"mpi-both", "MPI_Allreduce"}, {"mpi-both-nonblocking", "MPI_Iallreduce"}};
    char self[1024] = "";
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return;
    printf("\nThrough our comm and directly, in turns, the fastest tenth: microseconds of each, and what "
           "ours adds\n");
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        double ours[COUNTS], theirs[COUNTS];
        printf("%-16s", rows[r].label);
        fflush(stdout);
        if (read_row(self, rows[r].part, size, ours, theirs) != 0) {
            printf("  not here\n");
            continue;
        }
        for (int c = 0; c < COUNTS; c++)
            printf("%10.2f %9.2f %+5.1f%%", ours[c], theirs[c], 100 * (ours[c] / theirs[c] - 1));
        printf("\n");
    }
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--part") == 0) return run_part(argv[2], atoi(argv[3]));
    int size = argc > 1 ? atoi(argv[1]) : 2;
    if (size < 1 || size > 9) {
        fprintf(stderr, "bench_comm: expected 1 to 9 ranks, found \"%s\"\n", argv[1]);
        return 2;
    }
    int failed = print_table(size);
    print_costs(size);
    return failed;
}
