/* The version of these headers, and of the library that a program runs with.
 *
 * The three numbers below are the only place that says the version: CMake, pkg-config, the
 * library's file name and `lockstep --version` take it from here. docs/compatibility.md says what
 * each number promises. */
#ifndef LOCKSTEP_VERSION_H
#define LOCKSTEP_VERSION_H

#ifdef __cplusplus
extern "C" {
#endif

#define LK_VERSION_MAJOR 0
#define LK_VERSION_MINOR 1
#define LK_VERSION_PATCH 0

/* "0.1.0" */
#define LK_VERSION                             LK_VERSION_TEXT_(LK_VERSION_MAJOR, LK_VERSION_MINOR, LK_VERSION_PATCH)
#define LK_VERSION_TEXT_(major, minor, patch)  LK_VERSION_TEXT2_(major, minor, patch)
#define LK_VERSION_TEXT2_(major, minor, patch) #major "." #minor "." #patch

/* The same as one number that can be compared: 100 for 0.1.0, 10203 for 1.2.3. */
#define LK_VERSION_NUMBER (LK_VERSION_MAJOR * 10000 + LK_VERSION_MINOR * 100 + LK_VERSION_PATCH)

/* The version of the library that the program has loaded, which may be later than that of the
 * headers. */
const char *lk_version(void);
int lk_version_number(void);

#ifdef __cplusplus
}
#endif
#endif
