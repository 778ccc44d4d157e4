/* What the library keeps of a comm, behind lk_comm.own: the pool of requests, the flight recorder, and what
 * broke the comm. A backend of the library holds one beside its lk_comm, so that a comm is one block of
 * memory.
 */
#ifndef LKI_COMM_COMM_OWN_H
#define LKI_COMM_COMM_OWN_H

#include <lockstep/sys/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LKI_COMM_RECORD_COUNT = 64 }; /* collectives that the flight recorder remembers */

/* What the flight recorder keeps of a collective. */
typedef struct lki_comm_record {
    uint64_t seq;
    lk_comm_kind kind;
    lk_dtype dtype;
    lk_comm_state state;
    int64_t count;
    uint64_t start_ticks, end_ticks; /* of the processor's counter; end is 0 until it is over */
} lki_comm_record;

typedef struct lki_comm {
    uint64_t last_seq;     /* of the collective started last */
    uint64_t finished_seq; /* all collectives up to this one are over */
    lk_status broken;      /* LK_OK while it works */
    bool is_created;       /* with lk_comm_create: the comm itself is not the backend's to free */
    char broken_text[768]; /* the sentence of what broke it */
    bool is_watched;       /* a monitor looks for stalls */
    int64_t waited_ns;     /* in all, for collectives that were under way when somebody had to have them */
    int64_t origin_ns;     /* the clock and the counter of the records when this comm began: what a tick is */
    uint64_t origin_ticks;
    int free_count; /* requests that are free: their numbers are free_list[0 .. free_count) */
    uint8_t free_list[LK_COMM_MAX_REQUESTS];
    lk_comm_request requests[LK_COMM_MAX_REQUESTS];
    lki_comm_record records[LKI_COMM_RECORD_COUNT]; /* of seq s in records[s % LKI_COMM_RECORD_COUNT] */
} lki_comm;

/* Fills in a zeroed comm, whose timeout_ms may have been set. `own` is zeroed, too, and lives as long. A
 * backend of the library frees both in its ops' free. */
void lki_comm_init(lk_comm *comm, lki_comm *own, const lk_comm_ops *ops, int rank, int size);

#ifdef __cplusplus
}
#endif
#endif
