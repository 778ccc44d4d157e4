/* How much processor time the control groups of this process allow it: containers of clusters have a quota
 * rather than fewer cores. */
#ifndef LKI_BASE_CGROUP_H
#define LKI_BASE_CGROUP_H

/* Whole cores, rounded up; 0: no limit that can be found. Of version 2 (cpu.max) and version 1
 * (cpu.cfs_quota_us); the least of the group and those above it. `membership` is /proc/self/cgroup and `root`
 * /sys/fs/cgroup, but for tests. */
int lki_cgroup_cores(const char *membership, const char *root);

#endif
