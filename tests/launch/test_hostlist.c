/* Host lists of every shape that Slurm writes, and what is no host list. */
#include "lktest.h"

#include "base/memory.h"
#include "launch/hostlist.h"

static void check(const char *text, const char *expected)
{
    lki_hostlist list;
    char joined[4096] = "";
    lkt_ok(lki_hostlist_expand(&list, text));
    for (int i = 0; i < list.count; i++) {
        strcat(joined, i ? " " : "");
        strcat(joined, list.names[i]);
    }
    lki_hostlist_fini(&list);
    if (strcmp(joined, expected) != 0) fail_msg("%s gave \"%s\", expected \"%s\"", text, joined, expected);
}

static void shapes(void **state)
{
    (void)state;
    check("node1", "node1");
    check("node1,node2", "node1 node2");
    check("n[1-3]", "n1 n2 n3");
    check("n[001-003,007]", "n001 n002 n003 n007");
    check("n[8-11]", "n8 n9 n10 n11");
    check("n[08-11]", "n08 n09 n10 n11");
    check("n[098-101]", "n098 n099 n100 n101");
    check("rack[1-2]n[3-4]", "rack1n3 rack1n4 rack2n3 rack2n4");
    check("rack[1-2]n[3-4].cluster.local",
          "rack1n3.cluster.local rack1n4.cluster.local rack2n3.cluster.local rack2n4.cluster.local");
    check("a[1,3],b,c[2-3]x,d", "a1 a3 b c2x c3x d");
    check("[1-2]a", "1a 2a");
    check("gpu-[5]", "gpu-5");
    check("c[0-1]-[0-1]b[00-01]", "c0-0b00 c0-0b01 c0-1b00 c0-1b01 c1-0b00 c1-0b01 c1-1b00 c1-1b01");
}

static void nonsense(void **state)
{
    (void)state;
    static const char *const lists[] = {"",
                                        ",",
                                        "a,",
                                        ",a",
                                        "a,,b",
                                        "n[",
                                        "n[1-3",
                                        "n]",
                                        "n[]",
                                        "n[a]",
                                        "n[3-1]",
                                        "n[1-]",
                                        "n[-1]",
                                        "n[1,]",
                                        "n[,1]",
                                        "n[1;2]",
                                        "n[0-999999999]",
                                        "n[1-9999999999]",
                                        "n[[1]]",
                                        "a b",
                                        "n[1-300]m[1-300]"};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        lki_hostlist list;
        lk_status status = lki_hostlist_expand(&list, lists[i]);
        if (status != LK_ERR_FORMAT) fail_msg("\"%s\" was taken for a host list", lists[i]);
        lkt_contains(lk_error(), "host list \"");
        assert_int_equal(list.count, 0);
    }
}

static void a_long_name_is_refused(void **state)
{
    (void)state;
    char text[600];
    lki_hostlist list;
    memset(text, 'a', sizeof text);
    strcpy(text + 300, "[1-2]");
    lkt_fails(lki_hostlist_expand(&list, text), LK_ERR_FORMAT, "more than 255");
    strcpy(text + 250, "[0000000-0000001]");
    lkt_fails(lki_hostlist_expand(&list, text), LK_ERR_FORMAT, "more than 255");
}

static void tasks_per_node(void **state)
{
    (void)state;
    static const int expected[] = {2, 2, 2, 1};
    int tasks = 0;
    for (int node = 0; node < 4; node++) {
        lkt_ok(lki_tasks_of_node(&tasks, "2(x3),1", node));
        assert_int_equal(tasks, expected[node]);
    }
    lkt_ok(lki_tasks_of_node(&tasks, "4", 0));
    assert_int_equal(tasks, 4);
    lkt_fails(lki_tasks_of_node(&tasks, "2(x3),1", 4), LK_ERR_FORMAT, "2(x3),1");
    lkt_fails(lki_tasks_of_node(&tasks, "two", 0), LK_ERR_FORMAT, "two");
    lkt_fails(lki_tasks_of_node(&tasks, "2(3)", 1), LK_ERR_FORMAT, "2(3)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes),
        cmocka_unit_test(nonsense),
        cmocka_unit_test(a_long_name_is_refused),
        cmocka_unit_test(tasks_per_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
