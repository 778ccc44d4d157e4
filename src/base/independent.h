/* A promise to the compiler about the loop behind it: no iteration reads what another one writes, so it may
 * compute several of them at once without checking for overlap. */
#ifndef LKI_BASE_INDEPENDENT_H
#define LKI_BASE_INDEPENDENT_H

#if defined(__clang__)
#define LKI_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define LKI_INDEPENDENT _Pragma("GCC ivdep")
#endif

#endif
