#include "board/http.h"

lki_plugin lki_http = {
    .name = "http",
    .library = "libmicrohttpd",
    .package = "libmicrohttpd-dev",
    .functions_nbytes = sizeof(lki_http_functions),
};
