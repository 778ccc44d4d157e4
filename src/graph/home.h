/* Numbers that live in other memory than the host's.
 *
 * An engine with memory of its own keeps parameters there, and what plans read and write. How it does so is
 * not the graph's business: host code asks the home of a number through these pointers, and src/step/device/
 * answers. On the host there is no home: the pointer to it is NULL, and nothing is asked. One thread. */
#ifndef LKI_GRAPH_HOME_H
#define LKI_GRAPH_HOME_H

#include <lockstep/graph.h>
#include <lockstep/sys/engine.h>

typedef struct lki_home lki_home;
typedef struct lki_plan_home lki_plan_home; /* what a home holds for one plan */
typedef struct lki_plan lki_plan;

typedef struct lki_home_ops {
    /* For a parameter that lives there (lk_param.home). pull: brings the host's copy of its value up to date.
     * changed: the host's copy is the newer one from now on. remove: the parameter lives on the host again.
     */
    lk_status (*pull_param)(lki_home *home, const lk_param *param);
    void (*param_changed)(lki_home *home, const lk_param *param);
    lk_status (*remove_param)(lki_home *home, lk_param *param);
    /* Grows with each change of a parameter that lives there; never 0. */
    uint64_t (*version)(const lki_home *home);

    /* Memory for activations and scratch, which alloc zeroes. `what` is for the error. */
    void *(*alloc)(lki_home *home, size_t nbytes, const char *what);
    void (*release)(lki_home *home, void *data);
    lk_status (*download)(lki_home *home, void *host, const void *data, size_t nbytes);
    size_t aside_nbytes; /* so much of it may be spent on calls that run beside others */

    /* A plan's inputs, constants and outputs. open_plan is called before kernels are chosen, close_plan when
     * the plan is freed. */
    lk_status (*open_plan)(lki_home *home, lki_plan *plan, lk_graph *graph, lki_plan_home **out);
    void (*close_plan)(lki_plan_home *held);
    /* Where the engine finds the value or the gradient of a parameter, or a constant. */
    void *(*param_address)(const lki_plan_home *held, const lk_param *param, const lk_tensor *tensor);
    void *(*constant_address)(const lki_plan_home *held, const lk_tensor *constant);
    /* Copies the values of an input there and says where (lki_plan_set_input). */
    lk_status (*bind)(lki_plan_home *held, int index, const void *host);
    void (*begin_calls)(lki_plan_home *held); /* calls of the plan follow */
    /* The host's copy of an output that lies at `there`: waits for it if need be. NULL with a sentence. */
    const lk_tensor *(*output)(lki_plan_home *held, int index, const lk_tensor *there);
} lki_home_ops;

/* The first member of what implements it. */
struct lki_home {
    const lki_home_ops *ops;
    lk_engine *engine;
};

/* Host code that meets a parameter calls pull before it reads the value or writes a part of it, and push
 * after it has written. The device takes the new values over when it next needs them. */
static inline lk_status lki_param_pull(const lk_param *param)
{
    return param->home ? param->home->ops->pull_param(param->home, param) : LK_OK;
}

static inline void lki_param_push(const lk_param *param)
{
    if (param->home) param->home->ops->param_changed(param->home, param);
}

/* Back to the host alone, with its newest value. */
static inline lk_status lki_param_leave(lk_param *param)
{
    return param->home ? param->home->ops->remove_param(param->home, param) : LK_OK;
}

#endif
