/* A program that has MPI itself: what each rank of a real mpirun finds. It is compiled once per MPI library.
 * Ends with 0 if all is well; otherwise a line on stderr says what is not. */
#include <lockstep/lockstep.h>
#include <lockstep/mpi.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int world_rank;

static void expect(int is_so, const char *what, int line)
{
    if (is_so) return;
    fprintf(stderr, "rank %d, line %d: %s [%s]\n", world_rank, line, what, lk_error());
    MPI_Abort(MPI_COMM_WORLD, 3);
}
#define EXPECT(condition) expect((condition), #condition, __LINE__)

static void before_mpi(void)
{
    EXPECT(!lk_comm_from_mpi_handle(0, LK_MPI_LOADED));
    EXPECT(strstr(lk_error(), "MPI is not initialised: call MPI_Init_thread") != NULL);
}

/* Ranks 1 and 2 of 4 are a communicator of two; the others have none. */
static void some_of_the_ranks(void)
{
    MPI_Comm pair;
    float value = (float)(world_rank + 1);
    int trains = world_rank == 1 || world_rank == 2;
    MPI_Comm_split(MPI_COMM_WORLD, trains ? 0 : MPI_UNDEFINED, world_rank, &pair);
    lk_comm *comm = lk_comm_from_mpi(pair);
    if (!trains) {
        EXPECT(!comm && lk_error_status() == LK_ERR_INVALID);
        EXPECT(strstr(lk_error(), "MPI_COMM_NULL: only its members") != NULL);
        return;
    }
    EXPECT(comm && comm->size == 2 && comm->rank == world_rank - 1);
    EXPECT(!lk_comm_all_reduce(comm, &value, 1, LK_F32, LK_REDUCE_SUM) && value == 5);
    lk_comm_free(comm);
    MPI_Comm_free(&pair);
}

/* A message of the program is under way, and one of its collectives follows: both find their own. */
static void messages_never_meet(void)
{
    int size, sent = world_rank, got = -1, sum = 0;
    MPI_Request request;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    lk_comm *comm = lk_comm_from_mpi_handle((int)MPI_Comm_c2f(MPI_COMM_WORLD), LK_MPI_LOADED);
    EXPECT(comm && comm->size == size && comm->rank == world_rank);
    MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
    for (int i = 0; i < 20; i++) {
        double values[1000];
        for (int k = 0; k < 1000; k++) values[k] = world_rank;
        EXPECT(!lk_comm_all_reduce(comm, values, 1000, LK_F64, LK_REDUCE_SUM));
        EXPECT(values[999] == size * (size - 1) / 2.0);
    }
    MPI_Send(&sent, 1, MPI_INT, (world_rank + 1) % size, 7, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    EXPECT(got == (world_rank + size - 1) % size);
    MPI_Allreduce(&sent, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    EXPECT(sum == size * (size - 1) / 2);
    lk_comm_free(comm);
}

static void two_groups_are_refused(void)
{
    MPI_Comm half, between;
    int side = world_rank % 2;
    MPI_Comm_split(MPI_COMM_WORLD, side, world_rank, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - side, 5, &between);
    EXPECT(!lk_comm_from_mpi(between));
    EXPECT(strstr(lk_error(), "an intercommunicator has two groups") != NULL);
    MPI_Comm_free(&between);
    MPI_Comm_free(&half);
}

static void *use_elsewhere(void *context)
{
    lk_comm *comm = context;
    int level;
    float value = 1;
    MPI_Query_thread(&level);
    lk_status status = lk_comm_all_reduce(comm, &value, 1, LK_F32, LK_REDUCE_SUM);
    if (level >= MPI_THREAD_SERIALIZED) {
        EXPECT(!status && value == 1);
        return NULL;
    }
    EXPECT(status == LK_ERR_INVALID);
    EXPECT(strstr(lk_error(), "a collective: MPI was initialised with MPI_THREAD_") != NULL);
    EXPECT(strstr(lk_error(), "ask MPI_Init_thread for MPI_THREAD_SERIALIZED") != NULL);
    return NULL;
}

/* In a communicator of one rank nobody waits for anybody. */
static void threads_are_checked(void)
{
    pthread_t thread;
    lk_comm *comm = lk_comm_from_mpi(MPI_COMM_SELF);
    EXPECT(comm && comm->size == 1);
    EXPECT(!pthread_create(&thread, NULL, use_elsewhere, comm));
    pthread_join(thread, NULL);
    lk_comm_free(comm);
}

int main(int argc, char **argv)
{
    int level,
        wanted = argc > 1 && strcmp(argv[1], "serialized") == 0 ? MPI_THREAD_SERIALIZED : MPI_THREAD_FUNNELED;
    before_mpi();
    MPI_Init_thread(&argc, &argv, wanted, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    some_of_the_ranks();
    messages_never_meet();
    two_groups_are_refused();
    threads_are_checked();
    lk_comm *late = lk_comm_from_mpi(MPI_COMM_WORLD); /* freed after MPI: a mistake that does no harm */
    EXPECT(late != NULL);
    MPI_Finalize();
    lk_comm_free(late);
    if (lk_comm_from_mpi_handle(0, LK_MPI_LOADED) || !strstr(lk_error(), "MPI is finalised already"))
        return 3;
    return 0;
}
