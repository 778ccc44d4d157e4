/* The quota of processor time: trees as kernels lay them out, in a scratch folder. */
#include "lktest.h"

#include "base/cgroup.h"
#include "base/threads.h"

#include <sys/stat.h>

static char root[1024], membership[1100];

static void put(const char *path, const char *text)
{
    char full[2200];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0755);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void start(const char *lines)
{
    snprintf(root, sizeof root, "%s", lkt_scratch_folder("cgroup"));
    snprintf(membership, sizeof membership, "%s/membership", root);
    put("membership", lines);
}

static void version_2(void **state)
{
    (void)state;
    start("0::/kube/pod/box\n");
    assert_int_equal(lki_cgroup_cores(membership, root), 0);
    put("kube/pod/box/cpu.max", "max 100000\n");
    assert_int_equal(lki_cgroup_cores(membership, root), 0);
    put("kube/pod/cpu.max", "250000 100000\n");
    assert_int_equal(lki_cgroup_cores(membership, root), 3);
    put("kube/pod/box/cpu.max", "50000 100000\n");
    assert_int_equal(lki_cgroup_cores(membership, root), 1);
    start("0::/\n"); /* inside a container with a namespace of its own */
    put("cpu.max", "400000 100000\n");
    assert_int_equal(lki_cgroup_cores(membership, root), 4);
}

static void version_1(void **state)
{
    (void)state;
    start("9:name=systemd:/\n4:cpuset:/a\n3:cpu,cpuacct:/docker/box\n0::/\n");
    put("cpu,cpuacct/docker/box/cpu.cfs_quota_us", "-1\n");
    put("cpu,cpuacct/docker/box/cpu.cfs_period_us", "100000\n");
    assert_int_equal(lki_cgroup_cores(membership, root), 0);
    put("cpu,cpuacct/cpu.cfs_quota_us", "200000\n"); /* a container that sees its own group as the root */
    put("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    assert_int_equal(lki_cgroup_cores(membership, root), 2);
}

static void damaged(void **state)
{
    (void)state;
    start("nonsense\n0:\n:::\n0::\n");
    put("cpu.max", "many\n");
    assert_int_equal(lki_cgroup_cores(membership, root), 0);
    assert_int_equal(lki_cgroup_cores("/nowhere", root), 0);
}

/* Ranks of one host share what its quota allows. */
static void cores_are_shared(void **state)
{
    (void)state;
    int cores = lki_core_count();
    assert_true(cores >= 1 && cores <= lki_affinity_count());
    lki_share_cores(1000000);
    assert_true(lki_core_count() >= 1 && lki_core_count() <= cores);
    lki_share_cores(1);
    assert_int_equal(lki_core_count(), cores);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_2),
        cmocka_unit_test(version_1),
        cmocka_unit_test(damaged),
        cmocka_unit_test(cores_are_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
