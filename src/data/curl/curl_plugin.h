/* liblockstep_curl.so: base/plugin.h. */
#ifndef LKI_DATA_CURL_CURL_PLUGIN_H
#define LKI_DATA_CURL_CURL_PLUGIN_H

#include "base/plugin.h"
#include "data/download.h"

typedef struct lki_curl_functions {
    __typeof__(&lki_download) download;
} lki_curl_functions;

extern lki_plugin lki_curl; /* the library's side */

#endif
