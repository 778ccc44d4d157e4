/* Downloads. What makes them is a plug-in. */
#include "data/download.h"

#include "base/plugin.h"
#include "base/status.h"
#include "data/curl/curl_plugin.h"

lki_plugin lki_curl = {
    .name = "curl",
    .library = "curl",
    .package = "libcurl4-openssl-dev",
    .functions_nbytes = sizeof(lki_curl_functions),
};

lk_status lki_download(const char *url, const char *path)
{
    const lki_curl_functions *curl = lki_plugin_open(&lki_curl);
    return curl ? curl->download(url, path) : lki_fail_prefix(LK_ERR_UNSUPPORTED, "%s", url);
}
