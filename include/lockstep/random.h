/* Random numbers, bit for bit PyTorch's on the CPU.
 *
 * A generator is a Mersenne twister with PyTorch's seeding and PyTorch's way from its words to numbers, so
 * the same seed gives the same weights, permutations and dropout masks. Layers draw their first weights from
 * the default generator, as PyTorch's do: call lk_manual_seed before you build a model. A generator is not
 * thread-safe, and the default one is the process's: it belongs to the one thread that builds and trains.
 * Runners that train in several threads at a time would draw from it together: loaders (.seed, .generator)
 * and steps (.generator) can have generators of their own, but layers' first weights and a runner's dropout
 * cannot. */
#ifndef LOCKSTEP_RANDOM_H
#define LOCKSTEP_RANDOM_H

#include <lockstep/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Plain data: copy it to save it, assign it to restore it. */
typedef struct lk_generator {
    uint64_t seed;
    uint32_t state[624];
    int32_t left, next; /* words left before the next twist; index of the next word */
    float next_normal_f32;
    double next_normal_f64;
    bool has_next_normal_f32, has_next_normal_f64;
} lk_generator;

void lk_generator_seed(lk_generator *generator, uint64_t seed);
uint32_t lk_generator_u32(lk_generator *generator);
uint64_t lk_generator_u64(lk_generator *generator);

/* The default generator; seeded with PyTorch's own default until lk_manual_seed. */
lk_generator *lk_default_generator(void);
void lk_manual_seed(uint64_t seed);

/* Fill a contiguous f32 or f64 tensor as tensor.uniform_(from, to), .normal_(mean, std), .bernoulli_(p). */
lk_status lk_uniform(lk_tensor *tensor, double from, double to, lk_generator *generator);
lk_status lk_normal(lk_tensor *tensor, double mean, double std, lk_generator *generator);
lk_status lk_bernoulli(lk_tensor *tensor, double p, lk_generator *generator);

/* New f32 tensors from the default generator, as torch.rand, torch.randn. */
lk_tensor *lk_rand(lk_shape shape);
lk_tensor *lk_randn(lk_shape shape);

/* torch.randperm(count): a permutation of 0..count-1 into `out`. */
void lk_randperm(int64_t *out, int64_t count, lk_generator *generator);
/* torch.randint(0, high, ...): one number. */
int64_t lk_randint(int64_t high, lk_generator *generator);
/* One double of torch.rand(dtype=float64), one float of torch.rand. */
double lk_generator_f64(lk_generator *generator);
float lk_generator_f32(lk_generator *generator);

#ifdef __cplusplus
}
#endif
#endif
