/* The real command, asked over real sockets: who may ask what, and what it says while runs write, die and
 * disappear. */
#define _GNU_SOURCE /* memmem */
#include "logs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { NEWS_TRIES = 300, NEWS_PAUSE_US = 100000 };

static pid_t server;
static int port;
static char token[64], answer[1 << 20];

/* What the process prints until it ends, or until the link is there. */
static bool read_link_of(int fd, char *said, size_t capacity)
{
    size_t used = 0;
    for (;;) {
        ssize_t got = read(fd, said + used, capacity - used - 1);
        if (got <= 0) return false;
        used += (size_t)got;
        said[used] = 0;
        const char *link = strstr(said, "http://127.0.0.1:");
        if (link && strstr(link, "/\n"))
            return sscanf(link, "http://127.0.0.1:%d/%63[0-9a-f]/", &port, token) == 2;
    }
}

/* False, and why, if this build has no page. */
static bool start_server(const char *arguments, char *said, size_t capacity)
{
    int ends[2];
    char command[4096];
    assert_int_equal(pipe(ends), 0);
    snprintf(command, sizeof command, "exec '%s/lockstep' board %s 2>&1", LK_BUILD_DIR, arguments);
    server = fork();
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nothing behind */
        dup2(ends[1], 1);
        close(ends[0]);
        close(ends[1]);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    bool started = read_link_of(ends[0], said, capacity);
    close(ends[0]);
    if (!started) waitpid(server, NULL, 0);
    return started;
}

static void start_or_skip(const char *arguments)
{
    char said[8192] = "";
    if (start_server(arguments, said, sizeof said)) return;
    if (!strstr(said, "install npm") && !strstr(said, "libmicrohttpd")) fail_msg("no link: %s", said);
    print_message("skipped: %s", said);
    skip();
}

static void stop_server(void)
{
    int status;
    assert_int_equal(kill(server, SIGTERM), 0);
    assert_int_equal(waitpid(server, &status, 0), server);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Sends bytes and reads the whole answer into `answer`. Returns its status; 0 if there is none. */
static int send_bytes(const char *bytes, size_t nbytes)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    /* Half a request gets no answer until the server gives up. */
    struct timeval patience = {.tv_sec = memmem(bytes, nbytes, "HTTP/1.1", 8) ? 60 : 1};
    int fd = socket(AF_INET, SOCK_STREAM, 0), status = 0;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    if (send(fd, bytes, nbytes, MSG_NOSIGNAL) < 0) assert_true(errno == EPIPE || errno == ECONNRESET);
    shutdown(fd, SHUT_WR);
    size_t used = 0;
    for (ssize_t got; (got = recv(fd, answer + used, sizeof answer - used - 1, 0)) > 0;) used += (size_t)got;
    answer[used] = 0;
    close(fd);
    sscanf(answer, "HTTP/1.1 %d", &status);
    return status;
}

static int ask(const char *method, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int ask(const char *method, const char *format, ...)
{
    char path[4096], request[8192];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    int length =
        snprintf(request, sizeof request, "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n%s\r\n",
                 method, path, strcmp(method, "POST") ? "" : "Content-Length: 0\r\n");
    return send_bytes(request, (size_t)length);
}

static const char *body(void)
{
    const char *found = strstr(answer, "\r\n\r\n");
    return found ? found + 4 : "";
}

static void make_run(const char *name)
{
    lkt_shell_in(
        root, "mkdir -p '%s/csv_logger' && printf 'step,loss\\n1,0.5\\n2,0.4\\n' > '%s/csv_logger/train.csv'",
        name, name);
}

static void enter_with_server(const char *name)
{
    char arguments[1100];
    enter(name);
    make_run("a");
    snprintf(arguments, sizeof arguments, "'%s'", root);
    start_or_skip(arguments);
}

static void nothing_without_the_token(void **state)
{
    (void)state;
    static const char *const paths[] = {
        "/", "/index.html", "/api/runs", "//", "/favicon.ico", "/../etc/passwd", "/%2e%2e/"};
    enter_with_server("board-token");
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        assert_int_equal(ask("GET", "%s", paths[i]), 403);
        assert_null(strstr(answer, "loss"));
    }
    assert_int_equal(ask("GET", "/%.31s/", token), 403);
    assert_int_equal(ask("GET", "/%.31sx/api/runs", token), 403);
    assert_int_equal(ask("GET", "/%s", token), 403);
    assert_int_equal(ask("GET", "/?token=%s", token), 403);
    assert_int_equal(ask("GET", "/%s/", token), 200);
    lkt_contains(answer, "Content-Security-Policy: default-src 'none'; script-src 'self';");
    lkt_contains(answer, "X-Content-Type-Options: nosniff");
    lkt_contains(answer, "<title>Lockstep board</title>");
    assert_int_equal(ask("GET", "/%s/main.js", token), 200);
    lkt_contains(answer, "text/javascript");
    assert_int_equal(ask("GET", "/%s/api/runs", token), 200);
    lkt_contains(body(), "\"metric\":\"loss\"");
    stop_server();
}

static void only_get(void **state)
{
    (void)state;
    static const char *const methods[] = {"POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "BREW"};
    char *large = lki_calloc(1 << 20, "a request");
    enter_with_server("board-methods");
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        assert_int_equal(ask(methods[i], "/%s/api/runs", token), 405);
    /* What is no HTTP, and what is too much of it, ends that connection alone. */
    memset(large, 'A', (1 << 20) - 1);
    assert_int_not_equal(send_bytes(large, (1 << 20) - 1), 200);
    memcpy(large, "GET /", 5);
    assert_int_not_equal(send_bytes(large, (1 << 20) - 1), 200);
    assert_int_not_equal(send_bytes("\0\xff\r\n\r\n", 6), 200);
    assert_int_equal(ask("GET", "/%s/", token), 200);
    lki_free(large);
    stop_server();
}

static void nothing_outside_of_the_logdir(void **state)
{
    (void)state;
    static const char *const paths[] = {
        "../secret.png",
        "pictures/../../secret.png",
        "%2e%2e/secret.png",
        "..%2fsecret.png",
        "link.png",
        "folder/secret.png",
        "/etc/passwd",
        "//secret.png",
        "./a.png",
        "",
        ".",
        "a.png/",
        "secret%00.png",
        "notes.txt",
        "csv_logger/train.csv",
        "fake.png",
        "pipe.png",
    };
    char arguments[2200];
    enter("board-paths");
    make_run("logs/a");
    lkt_shell_in(root, "printf '\\211PNG\\r\\n\\032\\n-secret' > logs/secret.png && printf "
                       "'\\211PNG\\r\\n\\032\\n-picture' > logs/a/a.png && "
                       "echo secret > logs/a/fake.png && echo secret > logs/a/notes.txt && cd logs/a && ln "
                       "-s ../secret.png link.png && "
                       "ln -s .. folder && mkfifo pipe.png");
    snprintf(arguments, sizeof arguments, "'%s/logs/a'", root);
    start_or_skip(arguments);
    assert_int_equal(ask("GET", "/%s/api/picture?run=1&path=a.png", token), 200);
    lkt_contains(answer, "image/png");
    lkt_contains(body(), "-picture");
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        if (ask("GET", "/%s/api/picture?run=1&path=%s", token, paths[i]) != 404)
            fail_msg("%s: %.80s", paths[i], answer);
        assert_int_equal(ask("GET", "/%s/api/confusion?run=1&path=%s", token, paths[i]), 404);
        assert_null(strstr(answer, "secret"));
    }
    assert_int_equal(ask("GET", "/%s/../secret.png", token), 404);
    assert_int_equal(ask("GET", "/%s/api/picture?run=2&path=a.png", token), 404);
    assert_int_equal(ask("GET", "/%s/api/picture?run=x", token), 404);
    assert_int_equal(ask("GET", "/%s/api/config", token), 404);
    assert_int_equal(ask("GET", "/%s/api/curves?runs=1", token), 404);
    assert_int_equal(ask("GET", "/%s/api/log?run=1", token), 200);
    assert_string_equal(body(), "");
    assert_int_equal(ask("GET", "/%s/api/histograms?run=1", token), 200);
    assert_int_equal(ask("GET", "/%s/api/histograms?run=2", token), 404);
    static const char *const models[] = {"", "[1]", "{\"layers\":", "{\"layers\":[],\"nodes\":[]}"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        write_text("logs/a/model.json", models[i]);
        assert_int_equal(ask("GET", "/%s/api/model?run=1", token), 200);
        assert_string_equal(body(), i < 3 ? "null" : models[i]);
    }
    assert_int_equal(ask("GET", "/%s/api/model?run=2", token), 404);
    assert_int_equal(ask("GET", "/%s/api/files?run=1", token), 200);
    assert_string_equal(body(), "{\"files\":[\"a.png\",\"fake.png\"]}");
    stop_server();
}

static void names_are_text(void **state)
{
    (void)state;
    enter_with_server("board-names");
    make_run("<script>alert(1)<");
    make_run("quote\"back\\slash\nline\xff");
    usleep(600000); /* it looks again after half a second */
    assert_int_equal(ask("GET", "/%s/api/runs", token), 200);
    lkt_contains(answer, "application/json");
    assert_null(strchr(body(), '<'));
    json_t *news = json_loads(body(), 0, NULL);
    assert_non_null(news);
    assert_int_equal(json_array_size(json_object_get(news, "runs")), 3);
    json_decref(news);
    lkt_contains(body(), "\\u003cscript\\u003ealert(1)\\u003c");
    lkt_contains(body(), "quote\\\"back\\\\slash\\u000aline\\ufffd");
    stop_server();
}

static void it_listens_on_loopback_alone(void **state)
{
    (void)state;
    char line[512], wanted[32], anywhere[32];
    bool found = false;
    enter_with_server("board-loopback");
    FILE *file = fopen("/proc/net/tcp", "r");
    if (!file) {
        stop_server();
        skip();
    }
    snprintf(wanted, sizeof wanted, " 0100007F:%04X 00000000:0000 0A", port);
    snprintf(anywhere, sizeof anywhere, " 00000000:%04X ", port);
    while (fgets(line, sizeof line, file)) {
        if (strstr(line, wanted)) found = true;
        assert_null(strstr(line, anywhere));
    }
    fclose(file);
    assert_true(found);
    /* A second board cannot have the same port, and says so in one line. */
    char arguments[2200], said[4096] = "";
    pid_t first = server;
    snprintf(arguments, sizeof arguments, "'%s' --port %d", root, port);
    assert_false(start_server(arguments, said, sizeof said));
    lkt_contains(said, "choose another with --port");
    server = first;
    stop_server();
}

/* Asks until the answer has the fragment; the server looks anew twice a second. */
static void until_runs_say(const char *fragment)
{
    for (int i = 0; i < NEWS_TRIES; i++) {
        assert_int_equal(ask("GET", "/%s/api/runs", token), 200);
        if (strstr(body(), fragment)) return;
        usleep(NEWS_PAUSE_US);
    }
    fail_msg("never said %s: %.2000s", fragment, body());
}

static pid_t start_run(const char *options)
{
    char command[4096];
    snprintf(command, sizeof command,
             "exec '%s/lockstep' run -C '%s/examples/mnist.yml' --device cpu --logdir '%s/live' %s > "
             "'%s/out' 2>&1",
             LK_BUILD_DIR, LK_SOURCE_DIR, root, options, root);
    pid_t run = fork();
    if (run == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    return run;
}

/* A run on two ranks, seen from its first epoch on; then it is killed, resumed, and ends. */
static void a_live_run_grows_dies_and_ends(void **state)
{
    (void)state;
    char arguments[2200];
    enter("board-live");
    snprintf(arguments, sizeof arguments, "'%s/live' '%s/never'", root, root);
    start_or_skip(arguments);
    until_runs_say("/never is not there");
    pid_t run = start_run("--nproc 2 -e 100000");
    until_runs_say("\"state\":\"running\"");
    until_runs_say("\"axis\":\"epoch\",\"loader\":\"valid\",\"metric\":\"loss\",\"n\":");
    json_t *news = json_loads(body(), 0, NULL);
    json_int_t before = json_integer_value(
                   json_object_get(json_array_get(json_object_get(news, "runs"), 0), "epochs")),
               now = before;
    json_decref(news);
    for (int i = 0; i < NEWS_TRIES && now == before; i++) {
        assert_int_equal(ask("GET", "/%s/api/runs", token), 200);
        news = json_loads(body(), 0, NULL);
        assert_non_null(news);
        now = json_integer_value(json_object_get(json_array_get(json_object_get(news, "runs"), 0), "epochs"));
        json_decref(news);
        usleep(NEWS_PAUSE_US);
    }
    assert_true(now > before);
    assert_int_equal(kill(run, SIGKILL), 0);
    assert_int_equal(waitpid(run, NULL, 0), run);
    until_runs_say("\"state\":\"died\"");
    lkt_contains(body(), "\"notes\":[]");
    run = start_run("--overwrite -e 2");
    until_runs_say("\"state\":\"finished\"");
    assert_int_equal(waitpid(run, NULL, 0), run);
    lkt_shell_in(root, "rm -r live");
    until_runs_say("\"runs\":[]");
    stop_server();
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    char said[8192] = "";
    assert_false(start_server("", said, sizeof said));
    lkt_contains(said, "lockstep: ");
    assert_false(start_server("/etc/passwd", said, sizeof said));
    assert_false(start_server(". --port 70000", said, sizeof said));
    lkt_contains(said, "--port: expected at most 65535");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_without_the_token),     cmocka_unit_test(only_get),
        cmocka_unit_test(nothing_outside_of_the_logdir), cmocka_unit_test(names_are_text),
        cmocka_unit_test(it_listens_on_loopback_alone),  cmocka_unit_test(a_live_run_grows_dies_and_ends),
        cmocka_unit_test(wrong_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
