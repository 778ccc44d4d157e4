#include "study.h"

#include "lktest.h"

#include "run/study_link.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

/* A line is in the file before the trial is answered. */
static _Noreturn void listen_to_trial(int line, int file, int prune_after)
{
    lki_study_message message;
    char text[1200];
    for (int epochs = 1; recv(line, &message, sizeof message, 0) == (ssize_t)sizeof message; epochs++) {
        bool is_epoch = message.word == LKI_STUDY_EPOCH;
        int length = is_epoch
                         ? snprintf(text, sizeof text, "%lld %.9g\n", (long long)message.epoch, message.value)
                         : snprintf(text, sizeof text, "failed: %s\n", message.sentence);
        if (write(file, text, (size_t)length) != length) _exit(1);
        unsigned char answer = prune_after && epochs >= prune_after;
        if (is_epoch && send(line, &answer, 1, MSG_NOSIGNAL) != 1) _exit(1);
    }
    _exit(0);
}

int lkt_study_serve(const char *path, int prune_after)
{
    int line[2], file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    assert_true(file >= 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, line), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(line[1]);
        listen_to_trial(line[0], file, prune_after);
    }
    close(line[0]);
    close(file);
    return line[1];
}
