#include "data/curl/curl_plugin.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/plugin.h"
#include "base/status.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { CONNECT_TIMEOUT_S = 20, STALL_S = 30, STALL_BYTES_PER_S = 100, PERCENT_STEP = 10 };

typedef struct progress {
    const char *url;
    curl_off_t resumed_from;
    int next_percent;
} progress;

static int report(void *context, curl_off_t total, curl_off_t now, curl_off_t up_total, curl_off_t up_now)
{
    (void)up_total, (void)up_now;
    progress *self = context;
    if (total <= 0) return 0;
    int percent = (int)((now + self->resumed_from) * 100 / (total + self->resumed_from));
    if (percent < self->next_percent) return 0;
    char amount[32];
    self->next_percent = percent / PERCENT_STEP * PERCENT_STEP + PERCENT_STEP;
    lki_log(LKI_LOG_INFO, "%s: %d%% of %s", self->url, percent,
            lki_format_nbytes(amount, sizeof amount, (uint64_t)(total + self->resumed_from)));
    return 0;
}

static void start_curl(void)
{
    curl_global_init(CURL_GLOBAL_DEFAULT);
}

static CURLcode transfer(CURL *curl, const char *url, FILE *file, progress *state)
{
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, file);
    curl_easy_setopt(curl, CURLOPT_RESUME_FROM_LARGE, state->resumed_from);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 5L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)STALL_S);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, (long)STALL_BYTES_PER_S);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, report);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, state);
    return curl_easy_perform(curl);
}

static lk_status fetch(CURL *curl, const char *url, const char *path, FILE *file)
{
    fseek(file, 0, SEEK_END);
    progress state = {.url = url, .resumed_from = ftell(file)};
    CURLcode code = transfer(curl, url, file, &state);
    if (code == CURLE_RANGE_ERROR || (code == CURLE_HTTP_RETURNED_ERROR && state.resumed_from > 0)) {
        /* The server cannot go on from there, or has another file now: from the beginning. */
        file = freopen(path, "wb", file);
        if (!file) return lki_fail(LK_ERR_IO, "%s: %s", path, strerror(errno));
        state = (progress){.url = url};
        code = transfer(curl, url, file, &state);
    }
    if (code == CURLE_WRITE_ERROR)
        return lki_fail(LK_ERR_IO, "%s: could not write: %s", path, strerror(errno));
    if (code != CURLE_OK) return lki_fail(LK_ERR_IO, "%s: %s", url, curl_easy_strerror(code));
    if (fflush(file) != 0) return lki_fail(LK_ERR_IO, "%s: could not write: %s", path, strerror(errno));
    return LK_OK;
}

static lk_status download(const char *url, const char *path)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_curl);
    CURL *curl = curl_easy_init();
    if (!curl) return lki_fail(LK_ERR_NOMEM, "%s: libcurl could not start", url);
    FILE *file = fopen(path, "ab");
    lk_status status = file ? fetch(curl, url, path, file)
                            : lki_fail(LK_ERR_IO, "%s: could not create: %s", path, strerror(errno));
    if (file) fclose(file);
    curl_easy_cleanup(curl);
    return status;
}

LKI_PLUGIN_EXPORT(curl, lki_curl_functions, char, .download = download);
