#include "run/study_link.h"

#include "base/memory.h"
#include "base/status.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

static int study = -1;
static lki_study_metric watched;

void lki_study_join(int fd, lki_study_metric metric)
{
    study = fd;
    watched = metric;
}

const lki_study_metric *lki_study_joined(void)
{
    return study >= 0 ? &watched : NULL;
}

bool lki_study_watches(const char *logdir)
{
    return study >= 0 && (!watched.logdir || lki_same_text(logdir, watched.logdir));
}

static lk_status fail_gone(void)
{
    return lki_fail(LK_ERR_PEER, "the study of this trial has ended");
}

static lk_status tell(const lki_study_message *message)
{
    ssize_t sent;
    do {
        sent = send(study, message, sizeof *message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)sizeof *message ? LK_OK : fail_gone();
}

lk_status lki_study_tell_epoch(int64_t epoch, double value, bool *prune)
{
    unsigned char answer = 0;
    ssize_t received;
    LKI_TRY(tell(&(lki_study_message){.word = LKI_STUDY_EPOCH, .epoch = epoch, .value = value}));
    do {
        received = recv(study, &answer, 1, 0);
    } while (received < 0 && errno == EINTR);
    if (received != 1) return fail_gone();
    *prune = answer == 1;
    return LK_OK;
}

lk_status lki_study_tell_failure(const char *sentence)
{
    lki_study_message message = {.word = LKI_STUDY_FAILED};
    snprintf(message.sentence, sizeof message.sentence, "%s", sentence);
    return tell(&message);
}
