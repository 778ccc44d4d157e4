/* Slurm's way to write many host names in few characters: "rack[1-2]n[3-4],login", "n[001-003,007]". */
#ifndef LKI_LAUNCH_HOSTLIST_H
#define LKI_LAUNCH_HOSTLIST_H

#include <lockstep/status.h>

typedef struct lki_hostlist {
    char **names;
    int count;
} lki_hostlist;

/* In the order of `scontrol show hostnames`. LK_ERR_FORMAT quotes the list and says what is wrong with it. */
lk_status lki_hostlist_expand(lki_hostlist *out, const char *text);
void lki_hostlist_fini(lki_hostlist *list);

/* Slurm's tasks per node, "2(x3),1": how many tasks the node of this index runs. */
lk_status lki_tasks_of_node(int *out, const char *text, int node);

#endif
