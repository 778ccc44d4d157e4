/* Catalyst's example "DQN": a cart learns to keep a pole upright. Actions are chosen by the network that learns, what
 * they are worth is told by one that follows it slowly, and both see random parts of what has happened so far. */
#include <lockstep/lockstep.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STATE = 4, ACTIONS = 2, MEMORY = 20000, BATCH = 64, EPISODES = 400, LONGEST = 200, WANTED = 120 };
static const double GAMMA = 0.99, TAU = 0.01;

/* ---- The cart and its pole: the equations of the usual CartPole ---- */

static void push(float state[STATE], int action, bool *fallen)
{
    double x = state[0], v = state[1], angle = state[2], turning = state[3], dt = 0.02;
    double force = action ? 10 : -10, sine = sin(angle), cosine = cos(angle);
    double part = (force + 0.05 * turning * turning * sine) / 1.1;
    double bend = (9.8 * sine - cosine * part) / (0.5 * (4.0 / 3 - 0.1 * cosine * cosine / 1.1));
    state[0] = (float)(x + dt * v);
    state[1] = (float)(v + dt * (part - 0.05 * bend * cosine / 1.1));
    state[2] = (float)(angle + dt * turning);
    state[3] = (float)(turning + dt * bend);
    *fallen = fabs(state[0]) > 2.4 || fabs(state[2]) > 0.2094;
}

/* ---- What has happened ---- */

typedef struct memory {
    float before[MEMORY][STATE], after[MEMORY][STATE], reward[MEMORY], goes_on[MEMORY];
    int64_t action[MEMORY], count;
} memory;

static double uniform(void)
{
    return lk_generator_f64(lk_default_generator());
}

/* ---- Learning ---- */

typedef struct networks {
    lk_module *origin, *target;
} networks;

/* (Q(s)[a] - (r + gamma max Q'(s')))^2, where the target Q' learns nothing; inputs as in learn(). */
static lk_value *loss_of(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count, void *context)
{
    const networks *own = context;
    (void)graph, (void)names, (void)count;
    lk_value *all = lk_module_forward(own->origin, inputs[0]); /* (n, actions) */
    lk_value *chosen = lk_op_squeeze(lk_op_gather(all, 1, lk_op_unsqueeze(inputs[1], 1)), 1);
    lk_value *best = lk_op_detach(lk_op_max(lk_module_forward(own->target, inputs[4]), LK_AXES(1), false));
    lk_value *goal = lk_op_add(inputs[2], lk_op_mul(lk_op_mul_scalar(best, GAMMA), inputs[3]));
    return lk_op_pointwise_loss(chosen, goal, NULL, NULL, LK_LOSS_SMOOTH_L1, 1, LK_REDUCTION_MEAN);
}

static lk_status learn(lk_step *step, const memory *m)
{
    static float before[BATCH][STATE], after[BATCH][STATE], reward[BATCH], goes_on[BATCH];
    static int64_t action[BATCH];
    int64_t count = m->count < MEMORY ? m->count : MEMORY;
    for (int i = 0; i < BATCH; i++) {
        int64_t k = lk_randint(count, lk_default_generator());
        memcpy(before[i], m->before[k], sizeof *before);
        memcpy(after[i], m->after[k], sizeof *after);
        reward[i] = m->reward[k], goes_on[i] = m->goes_on[k], action[i] = m->action[k];
    }
    lk_input fields[] = {{"before", lk_tensor_borrow(LK_F32, LK_SHAPE(BATCH, STATE), before)},
                         {"action", lk_tensor_borrow(LK_I64, LK_SHAPE(BATCH), action)},
                         {"reward", lk_tensor_borrow(LK_F32, LK_SHAPE(BATCH), reward)},
                         {"goes_on", lk_tensor_borrow(LK_F32, LK_SHAPE(BATCH), goes_on)},
                         {"after", lk_tensor_borrow(LK_F32, LK_SHAPE(BATCH, STATE), after)}};
    lk_status status = lk_step_train(step, fields, 5);
    for (int i = 0; i < 5; i++) lk_tensor_free((lk_tensor *)fields[i].tensor);
    return status;
}

/* target = (1 - tau) target + tau origin */
static void follow(const networks *own)
{
    lk_param_list from = {0}, to = {0};
    if (lk_module_params(own->origin, &from) == LK_OK && lk_module_params(own->target, &to) == LK_OK)
        for (int i = 0; i < to.count; i++) {
            float *t = to.items[i].param->value->data;
            const float *o = from.items[i].param->value->data;
            for (int64_t k = 0; k < lk_tensor_count(to.items[i].param->value); k++) t[k] += (float)TAU * (o[k] - t[k]);
            lk_param_changed(to.items[i].param);
        }
    lk_param_list_free(&from);
    lk_param_list_free(&to);
}

/* ---- Acting ---- */

static lk_status choose(lk_step *actor, const float state[STATE], int *action)
{
    lk_tensor *tensor = lk_tensor_from(LK_F32, LK_SHAPE(1, STATE), state);
    lk_status status = lk_step_evaluate(actor, (lk_input[]){{"features", tensor}}, 1);
    const lk_tensor *worth = status ? NULL : lk_step_output(actor, "logits");
    if (worth) *action = lk_tensor_get(worth, 1) > lk_tensor_get(worth, 0);
    lk_tensor_free(tensor);
    return worth ? LK_OK : lk_error_status();
}

/* One episode; *length is how long the pole stayed up. */
static lk_status play(lk_step *actor, lk_step *step, const networks *own, memory *m, double curiosity, int *length)
{
    float state[STATE];
    bool fallen = false;
    for (int k = 0; k < STATE; k++) state[k] = (float)(0.1 * uniform() - 0.05);
    for (*length = 0; *length < LONGEST && !fallen; ++*length) {
        int64_t place = m->count++ % MEMORY;
        int action = (int)lk_randint(ACTIONS, lk_default_generator());
        if (uniform() >= curiosity) {
            lk_status status = choose(actor, state, &action);
            if (status) return status;
        }
        memcpy(m->before[place], state, sizeof state);
        push(state, action, &fallen);
        memcpy(m->after[place], state, sizeof state);
        m->action[place] = action, m->reward[place] = 1, m->goes_on[place] = !fallen;
        if (m->count < 10 * BATCH) continue;
        lk_status status = learn(step, m);
        if (status) return status;
        follow(own);
    }
    return LK_OK;
}

static lk_module *network(void)
{
    lk_module *first = lk_linear(STATE, 64), *second = lk_linear(64, ACTIONS);
    return lk_sequential(first, lk_relu(), second);
}

int main(void)
{
    static memory m;
    lk_manual_seed(42);
    networks own = {network(), NULL};
    lk_manual_seed(42);
    own.target = network();
    lk_engine *engine = lk_engine_open("cpu", LK_OPTIONS(lk_engine_options, .thread_count = 1));
    lk_optimizer *optimizer = lk_adam(.lr = 1e-3);
    lk_step *actor = lk_step(.model = own.origin, .engine = engine);
    lk_step *step = lk_step(.model = own.origin, .optimizer = optimizer, .engine = engine, .function = loss_of, .context = &own);
    lk_status status = actor && step ? LK_OK : lk_error_status();
    double mean = 0;
    for (int i = 1; i <= EPISODES && !status && mean < WANTED; i++) {
        int length;
        status = play(actor, step, &own, &m, i < 100 ? 1 - 0.0095 * i : 0.05, &length);
        mean += (length - mean) * 0.1;
        if (i % 20 == 0) printf("episode %d: the pole stays up for %.0f steps\n", i, mean);
    }
    if (status) fprintf(stderr, "%s\n", lk_error());
    printf("%.0f steps, at least %d are wanted\n", mean, WANTED);
    lk_step_free(step);
    lk_step_free(actor);
    lk_optimizer_free(optimizer);
    lk_engine_close(engine);
    lk_module_free(own.origin);
    lk_module_free(own.target);
    return status || mean < WANTED;
}
