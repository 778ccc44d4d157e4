/* Random numbers, bit for bit those of PyTorch on the CPU.
 *
 * A generator is a Mersenne twister with PyTorch's seeding and PyTorch's conversion of its words
 * to numbers. So the same seed gives the same weights, permutations and dropout masks. Layers
 * draw their initial weights from the default generator, as in PyTorch: call lk_manual_seed
 * before you build a model.
 *
 * Threads: a generator belongs to one thread. The default generator is shared by the process, so
 * it belongs to the one thread that builds and trains. If several threads train at the same time,
 * give their loaders (.seed, .generator) and steps (.generator) generators of their own. Initial
 * weights and the dropout of a runner always use the default one. */
#ifndef LOCKSTEP_RANDOM_H
#define LOCKSTEP_RANDOM_H

#include <lockstep/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Plain data: copy it to save the state, assign it to restore the state. */
typedef struct lk_generator {
    uint64_t seed;
    uint32_t state[624];
    int32_t left, next; /* words left before the next twist; index of the next word */
    float next_normal_f32;
    double next_normal_f64;
    bool has_next_normal_f32, has_next_normal_f64;
} lk_generator;

/* Seeds the generator. */
void lk_generator_seed(lk_generator *generator, uint64_t seed);
/* Return the next 32 or 64 random bits. */
uint32_t lk_generator_u32(lk_generator *generator);
uint64_t lk_generator_u64(lk_generator *generator);

/* Returns the default generator, which has PyTorch's default seed until lk_manual_seed. */
lk_generator *lk_default_generator(void);
/* Seeds the default generator. */
void lk_manual_seed(uint64_t seed);

/* Fill a contiguous f32 or f64 tensor, as tensor.uniform_(from, to), .normal_(mean, std) and
 * .bernoulli_(p) do. */
lk_status lk_uniform(lk_tensor *tensor, double from, double to, lk_generator *generator);
lk_status lk_normal(lk_tensor *tensor, double mean, double std, lk_generator *generator);
lk_status lk_bernoulli(lk_tensor *tensor, double p, lk_generator *generator);

/* Return a new f32 tensor from the default generator, as torch.rand and torch.randn do. The
 * caller frees it. NULL on failure. */
lk_tensor *lk_rand(lk_shape shape);
lk_tensor *lk_randn(lk_shape shape);

/* torch.randperm(count): writes a permutation of 0 ... count - 1 to `out`. */
void lk_randperm(int64_t *out, int64_t count, lk_generator *generator);
/* torch.randint(0, high): returns one number. */
int64_t lk_randint(int64_t high, lk_generator *generator);
/* Return one number of torch.rand, as float64 or float32. */
double lk_generator_f64(lk_generator *generator);
float lk_generator_f32(lk_generator *generator);

#ifdef __cplusplus
}
#endif
#endif
