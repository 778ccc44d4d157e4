/* Looking after forked ranks: their last words, their end, and the end of the others when one fails. */
#define _GNU_SOURCE
#include "launch/ranks_internal.h"

#include "base/clock.h"
#include "base/status.h"
#include "comm/comm.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TURN_MS = 50, KILL_AFTER_TERM_MS = 1000, MAX_POLLED = 1100 };

static void keep_line(lki_child *child)
{
    char out[LKI_RANK_LINE_NBYTES + 32];
    child->partial[child->partial_length] = '\0';
    memcpy(child->lines[child->line_count++ % LKI_RANK_LINES], child->partial, child->partial_length + 1);
    int length = snprintf(out, sizeof out, "[rank %d] %s\n", child->rank, child->partial);
    ssize_t ignored =
        write(STDERR_FILENO, out, (size_t)length < sizeof out ? (size_t)length : sizeof out - 1);
    (void)ignored;
    child->partial_length = 0;
}

static void keep_text(lki_child *child, const char *text, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++) {
        if (text[i] == '\n' || child->partial_length == LKI_RANK_LINE_NBYTES - 1) keep_line(child);
        if (text[i] != '\n') child->partial[child->partial_length++] = text[i];
    }
}

/* Reads what is there; the pipe does not block. */
static void drain(lki_child *child)
{
    char text[4096];
    while (child->pipe >= 0) {
        ssize_t nbytes = read(child->pipe, text, sizeof text);
        if (nbytes > 0) {
            keep_text(child, text, (size_t)nbytes);
        } else if (nbytes == 0 || (errno != EAGAIN && errno != EINTR)) {
            close(child->pipe);
            child->pipe = -1;
        } else {
            return;
        }
    }
}

static bool ended_well(const lki_ranks *ranks, const lki_child *child)
{
    const lki_rank_report *report = &ranks->reports[child->rank - ranks->rank];
    return WIFEXITED(child->wait_status) && WEXITSTATUS(child->wait_status) == 0 &&
           atomic_load(&report->done);
}

/* Where the program ignores SIGCHLD or waits for all its children itself, nobody tells how this one ended:
 * what it has reported counts. */
static bool has_ended(const lki_ranks *ranks, lki_child *child)
{
    const lki_rank_report *report = &ranks->reports[child->rank - ranks->rank];
    pid_t ended = waitpid(child->pid, &child->wait_status, WNOHANG);
    if (ended >= 0 || errno != ECHILD) return ended == child->pid;
    int exit_code = !atomic_load(&report->done) || report->status == LK_OK ? 0
                    : report->status == LK_ERR_PEER                        ? LKI_EXIT_PEER
                                                                           : EXIT_FAILURE;
    child->wait_status = W_EXITCODE(exit_code, 0);
    return true;
}

void lki_ranks_mark_ended(const lki_ranks *ranks, int index)
{
    if (ranks->shm_fd >= 0) lki_shm_memory_mark_ended(ranks->shm_fd, ranks->count, index);
}

static void reap(lki_ranks *ranks, lki_child *child)
{
    if (child->reaped || !has_ended(ranks, child)) return;
    drain(child);
    if (child->partial_length > 0) keep_line(child);
    if (child->pipe >= 0) close(child->pipe); /* a process of its own may still hold the other end */
    child->pipe = -1;
    child->reaped = true;
    child->end_ns = lki_now_ns();
    lki_ranks_mark_ended(ranks, child->rank - ranks->rank);
    if (!ended_well(ranks, child) && !atomic_load(&ranks->failed)) {
        ranks->fail_ns = child->end_ns;
        atomic_store(&ranks->failed, true);
    }
}

static void tell_all(lki_ranks *ranks, int signal)
{
    for (int i = 0; i < ranks->count - 1; i++) {
        lki_child *child = &ranks->children[i];
        if (child->reaped || !child->pid) continue;
        child->told = true;
        if (kill(-child->pid, signal) != 0) kill(child->pid, signal);
    }
}

/* Returns the number of children that are still there. */
static int look_around(lki_ranks *ranks, int timeout_ms)
{
    struct pollfd polled[MAX_POLLED];
    nfds_t count = 0;
    int alive = 0;
    polled[count++] = (struct pollfd){.fd = ranks->wakeup, .events = POLLIN};
    for (int i = 0; i < ranks->count - 1 && count < MAX_POLLED; i++)
        if (ranks->children[i].pipe >= 0)
            polled[count++] = (struct pollfd){.fd = ranks->children[i].pipe, .events = POLLIN};
    poll(polled, count, timeout_ms);
    uint64_t rung;
    ssize_t ignored = read(ranks->wakeup, &rung, sizeof rung);
    (void)ignored;
    for (int i = 0; i < ranks->count - 1; i++) {
        drain(&ranks->children[i]);
        reap(ranks, &ranks->children[i]);
        alive += !ranks->children[i].reaped;
    }
    return alive;
}

void *lki_supervise(void *argument)
{
    lki_ranks *ranks = argument;
    bool termed = false;
    while (look_around(ranks, TURN_MS) > 0) {
        if (atomic_load(&ranks->caller) == 2 && !atomic_load(&ranks->failed)) {
            ranks->fail_ns = lki_now_ns();
            atomic_store(&ranks->failed, true);
        }
        if (!atomic_load(&ranks->failed)) continue;
        int64_t since_ms = (lki_now_ns() - ranks->fail_ns) / 1000000;
        if (since_ms >= ranks->grace_ms + KILL_AFTER_TERM_MS) {
            tell_all(ranks, SIGKILL);
        } else if (since_ms >= ranks->grace_ms && !termed) {
            tell_all(ranks, SIGTERM);
            termed = true;
        }
    }
    return NULL;
}

static size_t describe_lines(const lki_child *child, char *text, size_t capacity)
{
    int first = child->line_count > LKI_RANK_LINES ? child->line_count - LKI_RANK_LINES : 0;
    size_t length = 0;
    for (int i = first; i < child->line_count && length < capacity; i++)
        length += (size_t)snprintf(text + length, capacity - length, "%s%s",
                                   i == first ? "; last lines: " : " | ", child->lines[i % LKI_RANK_LINES]);
    return length;
}

bool lki_describe_end(const lki_ranks *ranks, const lki_child *child, char *text, size_t capacity,
                      bool *primary)
{
    const lki_rank_report *report = &ranks->reports[child->rank - ranks->rank];
    int length = 0;
    *primary = !child->told;
    if (ended_well(ranks, child)) return false;
    int prefix = snprintf(text, capacity, "rank %d on %s ", child->rank, ranks->host);
    char *rest = text + prefix;
    capacity -= (size_t)prefix;
    if (atomic_load(&report->done)) {
        *primary =
            *primary && WIFEXITED(child->wait_status) && WEXITSTATUS(child->wait_status) != LKI_EXIT_PEER;
        length = snprintf(rest, capacity, "failed: %s", report->text);
    } else if (WIFSIGNALED(child->wait_status)) {
        length = snprintf(rest, capacity, "(process %d) was killed by signal %d (%s)", (int)child->pid,
                          WTERMSIG(child->wait_status), strsignal(WTERMSIG(child->wait_status)));
    } else if (WEXITSTATUS(child->wait_status) != 0) {
        length = snprintf(rest, capacity, "(process %d) exited with status %d", (int)child->pid,
                          WEXITSTATUS(child->wait_status));
    } else {
        length = snprintf(rest, capacity, "(process %d) ended before its work was done", (int)child->pid);
    }
    if (length > 0 && (size_t)length < capacity)
        describe_lines(child, rest + length, capacity - (size_t)length);
    return true;
}
