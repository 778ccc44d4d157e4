#include "comm/mpi/mpi_rollcall.h"
#include "comm/comm_own.h"

#include "base/clock.h"
#include "base/memory.h"

/* Of the messages. A rank speaks when it has waited this long, or a quarter of its patience where that is
 * less. */
enum { TAG = 7411, SPEAK_AFTER_MS = 1000, TURN_MS = 5 };

/* What the words are. */
enum { WORD_STARTED, WORD_FINISHED, WORD_KIND, WORD_COUNT };

lk_status lki_rollcall_init(lki_rollcall *call, MPI_Comm comm, int size)
{
    *call = (lki_rollcall){.comm = comm};
    call->heard = LKI_NEW_ARRAY(int64_t, size * LKI_ROLLCALL_WORDS);
    call->sends = LKI_NEW_ARRAY(MPI_Request, size);
    if (!call->heard || !call->sends) return LK_ERR_NOMEM;
    for (int r = 0; r < size; r++) call->sends[r] = MPI_REQUEST_NULL;
    return LK_OK;
}

static void listen(lki_rollcall *call)
{
    for (;;) {
        int there = 0;
        MPI_Status from;
        int64_t words[LKI_ROLLCALL_WORDS];
        if (MPI_Iprobe(MPI_ANY_SOURCE, TAG, call->comm, &there, &from) != MPI_SUCCESS || !there) return;
        if (MPI_Recv(words, LKI_ROLLCALL_WORDS, MPI_INT64_T, from.MPI_SOURCE, TAG, call->comm,
                     MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return;
        int64_t *kept = call->heard + (int64_t)from.MPI_SOURCE * LKI_ROLLCALL_WORDS;
        for (int i = 0; i < LKI_ROLLCALL_WORDS; i++) kept[i] = words[i];
    }
}

/* Whether another rank waits at this collective, or beyond: then it wants to know. */
static bool is_asked(const lki_rollcall *call, const lk_comm *comm, uint64_t seq)
{
    for (int r = 0; r < comm->size; r++)
        if ((uint64_t)call->heard[(int64_t)r * LKI_ROLLCALL_WORDS + WORD_STARTED] >= seq) return true;
    return false;
}

static void speak(lki_rollcall *call, const lk_comm *comm, const lk_comm_request *request)
{
    int sent = 0;
    /* What was said before must have gone: its words are overwritten. */
    if (MPI_Testall(comm->size, call->sends, &sent, MPI_STATUSES_IGNORE) != MPI_SUCCESS || !sent) return;
    call->said_at = request->seq;
    call->said[WORD_STARTED] = (int64_t)comm->own->last_seq;
    call->said[WORD_FINISHED] = (int64_t)comm->own->finished_seq;
    call->said[WORD_KIND] = request->op.kind;
    call->said[WORD_COUNT] = request->op.count;
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank)
            MPI_Isend(call->said, LKI_ROLLCALL_WORDS, MPI_INT64_T, r, TAG, call->comm, &call->sends[r]);
}

void lki_rollcall_turn(lki_rollcall *call, const lk_comm *comm, const lk_comm_request *request)
{
    int64_t patience_ms = comm->timeout_ms / 4 < SPEAK_AFTER_MS ? comm->timeout_ms / 4 : SPEAK_AFTER_MS;
    int64_t now_ns = lki_now_ns();
    if (call->waits_for != request->seq) call->since_ns = call->turned_ns = now_ns;
    call->waits_for = request->seq;
    if (now_ns - call->turned_ns < TURN_MS * 1000000LL) return;
    call->turned_ns = now_ns;
    bool is_late = now_ns - call->since_ns > patience_ms * 1000000;
    listen(call);
    if (call->said_at < request->seq && (is_late || is_asked(call, comm, request->seq)))
        speak(call, comm, request);
}

void lki_rollcall_progress(lki_rollcall *call, int rank, lk_comm_progress *out)
{
    const int64_t *words = call->heard + (int64_t)rank * LKI_ROLLCALL_WORDS;
    *out = (lk_comm_progress){0};
    if (call->said_at < call->waits_for) return; /* nobody was asked yet */
    listen(call);
    *out = (lk_comm_progress){.started = (uint64_t)words[WORD_STARTED],
                              .finished = (uint64_t)words[WORD_FINISHED],
                              .kind = (lk_comm_kind)words[WORD_KIND],
                              .count = words[WORD_COUNT],
                              .known = true,
                              .silent = (uint64_t)words[WORD_STARTED] < call->waits_for};
}

void lki_rollcall_fini(lki_rollcall *call, bool clean)
{
    if (clean && call->heard) listen(call);
    lki_free(call->heard);
    if (clean) lki_free(call->sends); /* with a broken peer MPI may still look at them */
    call->heard = NULL;
    call->sends = NULL;
}
