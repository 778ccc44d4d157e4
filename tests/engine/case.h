/* One call of one op, with its operands: built, run on an engine, compared.
 *
 * A case owns its tensors. Running it never changes them: a run works on copies, cast and placed as the
 * variant says, and gives back what came out, in-place changes included. */
#ifndef LKT_ENGINE_CASE_H
#define LKT_ENGINE_CASE_H

#include <lockstep/sys/engine.h>

enum { LKT_MAX_INPUTS = 10 };

typedef struct lkt_case {
    char name[112];
    lk_op op;
    lk_attr attr; /* fused and hyper point into the case when it runs */
    lk_fused fused;
    lk_hyper hyper;
    int input_count, output_count;
    lk_tensor *in[LKT_MAX_INPUTS];  /* NULL where absent */
    lk_tensor *out[LK_MAX_OUTPUTS]; /* dtype and shape; NULL where unwanted */
    bool unwanted[LK_MAX_OUTPUTS];  /* the output has a shape, but no memory */
    bool keeps_f32[LKT_MAX_INPUTS]; /* an operand that stays f32 where the others become bf16 (a bias) */
    double tolerance;               /* of f32 against f64; 0 for the usual 1e-5 */
    double low_tolerance;           /* of bf16 and f16 against f64; 0 for the usual 2e-2 */
    bool is_empty;                  /* of cases_empty.c: every number of a result is `outcome` */
    double outcome;
} lkt_case;

/* How a case is run. Zero is: as it is, aligned, out of place. */
typedef struct lkt_variant {
    bool cast; /* float operands become `dtype`, float results `out_dtype` */
    lk_dtype dtype, out_dtype;
    bool keeps; /* only result 0 becomes `out_dtype`: the others are statistics and weights' gradients */
    int offset_nbytes;  /* data pointers lie this far past a 64-byte boundary, or one element */
    int alias;          /* 1 + the input that output 0 lies over */
    bool moves;         /* prepared at one set of addresses, run at another */
    int hidden_output;  /* 1 + an output that nobody wants */
    bool channels_last; /* operands (n, c, s...) lie so in memory; those of a result are row-major again */
} lkt_variant;

typedef struct lkt_result {
    lk_tensor *in[LKT_MAX_INPUTS]; /* after the run */
    lk_tensor *out[LK_MAX_OUTPUTS];
    lk_hyper hyper;
} lkt_result;

/* Cases in a list that grows; the list owns them. */
typedef struct lkt_case_list {
    lkt_case **items;
    int count, capacity;
} lkt_case_list;

lkt_case *lkt_case_add(lkt_case_list *list, lk_op op, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void lkt_case_list_free(lkt_case_list *list);
lkt_case *lkt_case_create(lk_op op);
void lkt_case_free(lkt_case *c);

/* How an operand is filled, from a generator that depends on the case's name and the operand's place alone.
 */
typedef enum lkt_fill {
    LKT_NORMAL,   /* N(0, 1) */
    LKT_POSITIVE, /* 0.1 to 2 */
    LKT_UNIT,     /* 0.01 to 0.99 */
    LKT_COARSE,   /* multiples of 1/2 from -2 to 2: many equal ones */
    LKT_ZERO,
    LKT_ONE,
    LKT_MASK, /* 0 or 1 */
} lkt_fill;

/* Adds an operand; the next one is absent; an i64 operand with numbers from 0 to below `high`. */
lk_tensor *lkt_in(lkt_case *c, lk_dtype dtype, lk_shape shape, lkt_fill fill);
lk_tensor *lkt_in_f32(lkt_case *c, lk_shape shape, lkt_fill fill);
lk_tensor *lkt_in_index(lkt_case *c, lk_shape shape, int64_t high);
void lkt_in_absent(lkt_case *c);
/* Declares a result; the first one is also what attributes say of a result's shape (and dtype). */
void lkt_out(lkt_case *c, lk_dtype dtype, lk_shape shape);
void lkt_out_f32(lkt_case *c, lk_shape shape);

/* Adds what another case's output `output` is on the reference engine: gradients want real results as
 * operands. */
lk_tensor *lkt_in_result(lkt_case *c, const lkt_case *of, int output);
/* Adds another case's operand. */
lk_tensor *lkt_in_operand(lkt_case *c, const lkt_case *of, int input);

/* Prepares and runs. The result is the caller's to free, also where the run failed. */
lk_status lkt_run(lk_engine *engine, const lkt_case *c, lkt_variant variant, lkt_result *result);
void lkt_result_free(lkt_result *result);

/* Whether the results of a case can be compared with another engine's: attention that drops is not where the
 * engine draws on its own (tests/nn/test_dropout.c looks at what it drops). */
bool lkt_case_is_compared(const lk_engine *engine, const lkt_case *c);
/* What the engine says to the case's call (lk_engine_ops.preference). */
lk_preference lkt_preference(lk_engine *engine, const lkt_case *c, lkt_variant variant);
/* Why the engine leaves the case's call to `ref`; NULL if it does not, or if it refuses it. */
const char *lkt_fallback(lk_engine *engine, const lkt_case *c, lkt_variant variant);

/* NULL where every element is within tolerance * max(1, |expected|) (NaN equals NaN), else a sentence in
 * static memory. */
const char *lkt_difference(const lk_tensor *actual, const lk_tensor *expected, double tolerance);

/* The op's name and flags, from the list in op.h. */
const char *lkt_op_name(lk_op op);
unsigned lkt_op_flags(lk_op op);

/* The cases of the conformance suite, one file a family. */
void lkt_cases_elementwise(lkt_case_list *list);
void lkt_cases_reduce(lkt_case_list *list);
void lkt_cases_movement(lkt_case_list *list);
void lkt_cases_scan(lkt_case_list *list);
void lkt_cases_product(lkt_case_list *list);
void lkt_cases_conv(lkt_case_list *list);
void lkt_cases_pool(lkt_case_list *list);
void lkt_cases_norm(lkt_case_list *list);
void lkt_cases_recurrent(lkt_case_list *list);
void lkt_cases_attention(lkt_case_list *list);
void lkt_cases_loss(lkt_case_list *list);
void lkt_cases_update(lkt_case_list *list);
void lkt_cases_empty(lkt_case_list *list);
/* On both sides of the thresholds of fast paths; only test_fast_paths.c runs these. */
void lkt_cases_fast(lkt_case_list *list);

#endif
