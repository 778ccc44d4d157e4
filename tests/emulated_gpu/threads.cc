/* Grids: every thread of a block is a function call on a stack of its own, which is left where the thread has
 * to wait for others and taken up again when they have come.
 *
 * Blocks run one after the other; one whose thread looks again and again whether another block has come
 * (LKI_CUDA_SPIN) stands aside until the others have run. A fiber runs one thread after the other too, until
 * one has to wait: a kernel without barriers needs a single stack. */
#include "device.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

/* Saves where the caller is in *from and goes on where `to` was saved. */
extern "C" void lkt_gpu_switch(void **from, void *to);
asm(R"(
.text
.globl lkt_gpu_switch
.hidden lkt_gpu_switch
.type lkt_gpu_switch, @function
lkt_gpu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size lkt_gpu_switch, .-lkt_gpu_switch
)");

namespace lkt_gpu
{

place here;
std::recursive_mutex lock;

void refuse(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("emulated GPU: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    abort();
}

bool is_reverse(void)
{
    static const char *wanted = getenv("LOCKSTEP_EMULATED_ORDER");
    return wanted && !strcmp(wanted, "reverse");
}

namespace
{

enum { MOST_THREADS = 1024, WARP = 32, WARPS = MOST_THREADS / WARP };
constexpr size_t STACK_NBYTES = 1 << 18, GUARD_NBYTES = 4096;

struct fiber {
    void *sp;
    char *stack;
    void *fake; /* the sanitizer's */
    int thread; /* which it runs */
};

/* What runs. */
struct {
    const char *name;
    const work *body;
    int count; /* threads of a block */
    size_t dynamic_nbytes;
} kernel;

/* A block that runs, or stands aside. */
struct block_state {
    uint3 place;
    int started, live;          /* threads */
    fiber *owner[MOST_THREADS]; /* of a thread that waits */
    std::vector<int> spinning;  /* threads that wait for another block */
    int at_barrier, barrier_line;
    int votes, counted; /* for the next barrier, and at the last one */
    int at_exchange[WARPS];
    unsigned char turn[MOST_THREADS]; /* which of the two slots is next */
    unsigned char slots[2][MOST_THREADS][SLOT_NBYTES];
    std::vector<unsigned char> dynamic; /* memory */
    std::vector<unsigned char> shared;  /* what it left in static memory when it stepped aside */
};
block_state *block; /* that runs */

std::vector<block_state *> unused;
std::vector<fiber *> idle; /* fibers that wait for another block */
std::vector<int> ready;    /* threads that may go on */
size_t next_ready;
fiber *current;
void *scheduler_sp;
[[maybe_unused]] void *scheduler_fake;
[[maybe_unused]] const void *scheduler_stack;
[[maybe_unused]] size_t scheduler_nbytes;

int warp_size(int warp)
{
    int rest = kernel.count - warp * WARP;
    return rest < WARP ? rest : (int)WARP;
}

/* Thread number `i` of those that run in this order. */
int in_order(int i, int count)
{
    return is_reverse() ? count - 1 - i : i;
}

void set_thread(int thread)
{
    unsigned t = (unsigned)thread, x = here.block_size.x, y = here.block_size.y;
    here.thread = {t % x, t / x % y, t / x / y};
}

void leave(void)
{
    fiber *own = current;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&own->fake, scheduler_stack, scheduler_nbytes);
#endif
    lkt_gpu_switch(&own->sp, scheduler_sp);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(own->fake, &scheduler_stack, &scheduler_nbytes);
#endif
}

void enter(fiber *f)
{
    current = f;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&scheduler_fake, f->stack, STACK_NBYTES);
#endif
    lkt_gpu_switch(&scheduler_sp, f->sp);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(scheduler_fake, NULL, NULL);
#endif
}

void run_threads(void)
{
    while (block->started < kernel.count) {
        current->thread = in_order(block->started++, kernel.count);
        set_thread(current->thread);
        (*kernel.body)();
        block->live--;
    }
}

/* A fiber never ends: between blocks it waits among the idle ones. */
void fiber_main(void)
{
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(NULL, &scheduler_stack, &scheduler_nbytes);
#endif
    for (;;) {
        run_threads();
        idle.push_back(current);
        leave();
    }
}

fiber *new_fiber(void)
{
    char *memory = (char *)mmap(NULL, GUARD_NBYTES + STACK_NBYTES, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, GUARD_NBYTES, PROT_NONE) != 0)
        refuse("no memory for stacks");
    char *end = memory + GUARD_NBYTES + STACK_NBYTES;
    fiber *f = (fiber *)(end - 64); /* it lies behind its own stack */
    f->stack = memory + GUARD_NBYTES;
    void **sp = (void **)f;
    *--sp = NULL; /* where fiber_main would return to; keeps the stack aligned as after a call */
    *--sp = (void *)fiber_main;
    for (int i = 0; i < 6; i++) *--sp = NULL;
    f->sp = sp;
    return f;
}

fiber *take_fiber(void)
{
    if (idle.empty()) return new_fiber();
    fiber *f = idle.back();
    idle.pop_back();
    return f;
}

void wait_for_others(void)
{
    int own = current->thread;
    block->owner[own] = current;
    leave();
    set_thread(own);
}

void make_ready(int first, int count)
{
    for (int i = 0; i < count; i++) {
        int thread = first + in_order(i, count);
        if (block->owner[thread]) ready.push_back(thread);
    }
}

/* Nobody can go on: all must stand at the one barrier. */
void release_barrier(void)
{
    for (int warp = 0; warp * WARP < kernel.count; warp++)
        if (block->at_exchange[warp])
            refuse("%s: %d of %d lanes of a warp exchange values; the others have left or stand at a barrier",
                   kernel.name, block->at_exchange[warp], warp_size(warp));
    if (block->at_barrier != block->live) refuse("%s: a thread neither runs nor waits", kernel.name);
    block->at_barrier = 0;
    block->counted = block->votes;
    block->votes = 0;
    make_ready(0, kernel.count);
}

/* ---- Blocks ---- */

extern "C" {
/* Where __shared__ lies: the linker knows. */
extern unsigned char __start_lkt_shared[] __attribute__((visibility("hidden")));
extern unsigned char __stop_lkt_shared[] __attribute__((visibility("hidden")));
}

size_t shared_nbytes(void)
{
    return (size_t)(__stop_lkt_shared - __start_lkt_shared);
}

/* With what lies between variables, which a sanitizer forbids to touch. */
__attribute__((no_sanitize("address"))) void copy_all(unsigned char *to, const unsigned char *from)
{
#ifdef __SANITIZE_ADDRESS__
    volatile unsigned char *target = to; /* the compiler would call memcpy, which is watched */
    for (size_t i = 0, nbytes = shared_nbytes(); i < nbytes; i++) target[i] = from[i];
#else
    memcpy(to, from, shared_nbytes());
#endif
}

/* A fresh one, as the block that runs. */
void take_block(uint3 place)
{
    if (unused.empty()) unused.push_back(new block_state());
    block = unused.back();
    unused.pop_back();
    here.block = block->place = place;
    block->started = 0;
    block->live = kernel.count;
    block->dynamic.assign(kernel.dynamic_nbytes + 128, 0xff);
    memset(block->owner, 0, sizeof *block->owner * (size_t)kernel.count);
    memset(block->turn, 0, sizeof block->turn);
}

void step_aside(void)
{
    block->shared.resize(shared_nbytes());
    copy_all(block->shared.data(), __start_lkt_shared);
}

void step_back(block_state *b)
{
    block = b;
    here.block = b->place;
    copy_all(__start_lkt_shared, b->shared.data());
    ready.swap(b->spinning);
    b->spinning.clear();
}

/* Until it is done, or false: it waits for another block. */
bool run_block(void)
{
    while (block->started < kernel.count) enter(take_fiber());
    while (block->live) {
        if (next_ready == ready.size()) {
            ready.clear();
            next_ready = 0;
            if (!block->spinning.empty()) return false;
            release_barrier();
        }
        int thread = ready[next_ready++];
        fiber *f = block->owner[thread];
        block->owner[thread] = NULL;
        enter(f);
    }
    ready.clear();
    next_ready = 0;
    unused.push_back(block);
    return true;
}

/* Blocks that wait for one another, in turns. */
void run_waiting(std::vector<block_state *> waiting)
{
    enum { MOST_TURNS = 1000 };
    for (int turn = 0; !waiting.empty(); turn++) {
        std::vector<block_state *> still;
        if (turn == MOST_TURNS) refuse("%s: blocks wait for one another in vain", kernel.name);
        for (block_state *each : waiting) {
            step_back(each);
            if (run_block()) continue;
            step_aside();
            still.push_back(each);
        }
        waiting.swap(still);
    }
}

} // namespace

void *dynamic_shared(void)
{
    return (void *)(((uintptr_t)block->dynamic.data() + 127) / 128 * 128);
}

void spin(void)
{
    block->spinning.push_back(current->thread);
    wait_for_others();
}

int wait_for_block(int line, bool truth)
{
    block->votes += truth;
    if (block->at_barrier++ == 0) block->barrier_line = line;
    if (block->barrier_line != line)
        refuse("%s: threads of one block stand at different barriers, in lines %d and %d", kernel.name,
               block->barrier_line, line);
    wait_for_others();
    return block->counted;
}

const unsigned char *exchange(const void *mine, size_t nbytes, unsigned mask, int *lane)
{
    int own = current->thread, warp = own / WARP, turn = block->turn[own];
    if (mask != 0xffffffffu) refuse("%s: only whole warps are emulated", kernel.name);
    if (nbytes > SLOT_NBYTES) refuse("%s: %zu bytes are too long for a lane", kernel.name, nbytes);
    if (warp_size(warp) < WARP) refuse("%s: an exchange in a warp of %d lanes", kernel.name, warp_size(warp));
    memcpy(block->slots[turn][own], mine, nbytes);
    block->turn[own] = (unsigned char)!turn; /* who is quick must not write over what others still read */
    *lane = own % WARP;
    if (++block->at_exchange[warp] == WARP) {
        block->at_exchange[warp] = 0;
        make_ready(warp * WARP, WARP);
        block->owner[own] = current; /* its turn comes in order */
        ready.push_back(own);
        leave();
        set_thread(own);
    } else {
        wait_for_others();
    }
    return block->slots[turn][warp * WARP];
}

void run_grid(const char *name, const config &launch, const work &thread)
{
    std::vector<block_state *> waiting;
    here.grid_size = launch.grid;
    here.block_size = launch.block;
    kernel = {name, &thread, (int)(launch.block.x * launch.block.y * launch.block.z), launch.shared};
    int64_t across = launch.grid.x, plane = across * launch.grid.y, all = plane * launch.grid.z;
    for (int64_t i = 0; i < all; i++) {
        int64_t at = is_reverse() ? all - 1 - i : i;
        take_block(
            {(unsigned)(at % across), (unsigned)(at / across % launch.grid.y), (unsigned)(at / plane)});
        if (run_block()) continue;
        step_aside();
        waiting.push_back(block);
    }
    run_waiting(waiting);
}

void enqueue_grid(const char *name, const config &launch, const work &thread)
{
    const dim3 &g = launch.grid, &b = launch.block;
    bool fits = g.x && g.y && g.z && b.x && b.y && b.z && b.x * b.y * b.z <= MOST_THREADS && b.z <= 64;
    if (!fits || g.x > INT32_MAX || g.y > UINT16_MAX || g.z > UINT16_MAX) {
        remember(cudaErrorInvalidConfiguration);
        return;
    }
    if (launch.shared > 48 << 10) {
        remember(cudaErrorInvalidValue);
        return;
    }
    enqueue(launch.stream, [name, launch, thread] { run_grid(name, launch, thread); });
}

} // namespace lkt_gpu
