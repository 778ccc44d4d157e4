/* The ranges that tests/oracle/tune_densities.py knows by name. */
#ifndef TESTS_TUNE_RANGES_H
#define TESTS_TUNE_RANGES_H

#include "lktest.h"

#include "tune/range.h"

static const struct {
    const char *name;
    lki_range range;
} ranges[] = {
    {"uniform", {LKI_RANGE_FLOAT, -2, 3, false, 0, 0}}, {"log", {LKI_RANGE_FLOAT, 1e-5, 10, true, 0, 0}},
    {"int", {LKI_RANGE_INT, 3, 9, false, 1, 0}},        {"int_step", {LKI_RANGE_INT, 8, 40, false, 8, 0}},
    {"int_log", {LKI_RANGE_INT, 1, 64, true, 1, 0}},    {"step", {LKI_RANGE_FLOAT, 0, 1, false, 0.1, 0}},
    {"points", {LKI_RANGE_FLOAT, 1e-4, 1, true, 0, 5}}, {"choice", {LKI_RANGE_CHOICE, 0, 2, false, 1, 0}}};
enum { RANGE_COUNT = sizeof ranges / sizeof *ranges };

static inline const lki_range *range_named(const char *name)
{
    for (int i = 0; i < RANGE_COUNT; i++)
        if (!strcmp(ranges[i].name, name)) return &ranges[i].range;
    fail_msg("no range is called %s", name);
    return NULL;
}

#define GOLDEN(file) LK_SOURCE_DIR "/tests/golden/tune/" file

#endif
