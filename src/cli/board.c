/* The live page: serves the runs below some folders on loopback until it is interrupted. */
#include "board/http.h"
#include "board/routes.h"
#include "cli/commands.h"
#include "cli/embedded.h"

#include "base/log.h"
#include "base/status.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

typedef struct board_options {
    lki_texts folders;
    lki_option_int port;
} board_options;

enum { MAX_PORT = 65535 };

static const lki_option table[] = {
    {"port", 'p', LKI_OPTION_INT, offsetof(board_options, port), "N", NULL,
     "the port on 127.0.0.1; default: any that is free", 0},
    {0},
};

static const char *find_asset(const char *name)
{
    static const char folder[] = "board/";
    for (const lki_embedded_file *file = lki_embedded; file->name; file++)
        if (!strncmp(file->name, folder, sizeof folder - 1) && !strcmp(file->name + sizeof folder - 1, name))
            return file->text;
    return NULL;
}

static lk_status check(const board_options *options)
{
    if (options->port.given && options->port.value > MAX_PORT)
        return lki_fail(LK_ERR_INVALID, "--port: expected at most %d, found %lld", MAX_PORT,
                        options->port.value);
    if (!find_asset("uplot.js"))
        return lki_fail(LK_ERR_UNSUPPORTED, "board: this build has no charts: install npm (Debian's package "
                                            "npm) and build again with a network");
    return LK_OK;
}

/* Before the server's thread starts, which then does not take them either. */
static void block_signals(sigset_t *signals)
{
    sigemptyset(signals);
    sigaddset(signals, SIGINT);
    sigaddset(signals, SIGTERM);
    sigaddset(signals, SIGHUP);
    sigprocmask(SIG_BLOCK, signals, NULL);
}

static lk_status serve(lki_board_site *site, int port)
{
    lki_http_server *server;
    sigset_t signals;
    int bound, came;
    const lki_http_functions *http = lki_plugin_open(&lki_http);
    if (!http) return lki_last_status();
    LKI_TRY(lki_board_make_token(site->token));
    LKI_TRY(lki_board_refresh(site->board, 0));
    for (int i = 0; i < site->board->root_count; i++)
        if (!site->board->roots[i].is_there)
            lki_log(LKI_LOG_WARNING, "%s is not there yet: the page shows its runs when they come",
                    site->board->roots[i].given);
    int run_count = site->board->run_count; /* from the start on, the board belongs to the server's thread */
    block_signals(&signals);
    LKI_TRY(http->start(&server, port, &bound, lki_board_answer, site));
    printf("%d run%s. Open this link in a browser on this machine; end with Ctrl-C:\n\n"
           "    http://127.0.0.1:%d/%s/\n\n",
           run_count, run_count == 1 ? "" : "s", bound, site->token);
    if (fflush(stdout) == 0) sigwait(&signals, &came);
    http->stop(server);
    return LK_OK;
}

static int run(const void *pointer)
{
    const board_options *options = pointer;
    lki_board_site site = {.asset = find_asset};
    if (check(options) || lki_board_open(&site.board, options->folders.items, options->folders.count))
        return lki_report(LKI_EXIT_WRONG);
    lk_status status = serve(&site, (int)options->port.value);
    lki_board_close(site.board);
    return status ? lki_report(LKI_EXIT_FAILED) : LKI_EXIT_DONE;
}

const lki_command lki_command_board = {
    .name = "board",
    .usage = "LOGDIR ... [--port N]",
    .summary = "Shows runs in the browser while they train.",
    .options = table,
    .options_nbytes = sizeof(board_options),
    .positional = "the logdir of a run, or a folder of logdirs",
    .positional_offset = offsetof(board_options, folders),
    .positional_minimum = 1,
    .notes = "The page is on this machine alone, and its link holds a token: only who has the link sees it.\n"
             "From another machine: ssh -L PORT:127.0.0.1:PORT HOST, and open the same link there.",
    .run = run,
};
