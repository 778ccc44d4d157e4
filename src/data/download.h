/* Fetching a file over the network. Off, and says so, where the library was built without libcurl. */
#ifndef LKI_DATA_DOWNLOAD_H
#define LKI_DATA_DOWNLOAD_H

#include <lockstep/status.h>

/* Fetches `url` into `path`, going on from what `path` already holds of it. Progress goes to the log as
 * notes. On failure what has arrived stays, for the next try. */
lk_status lki_download(const char *url, const char *path);

#endif
