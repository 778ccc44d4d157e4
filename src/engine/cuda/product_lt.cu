/* Products by cuBLASLt. It counts columns first, so our c (m, n) is its (n, m), and the factors change
 * places: its a is our b. The algorithm is the first that its heuristic names, never a measured one: the same
 * shapes then give the same bits in every process. */
#include "engine/cuda/product.cuh"

/* Workspace that an algorithm may ask for, and how scratch memory must be aligned. */
static const size_t WORKSPACE_NBYTES = (size_t)32 << 20, SCRATCH_ALIGNMENT = 256;

static cudaDataType_t type_of(lk_dtype dtype)
{
    switch (dtype) {
    case LK_F64: return CUDA_R_64F;
    case LK_BF16: return CUDA_R_16BF;
    case LK_F16: return CUDA_R_16F;
    default: return CUDA_R_32F;
    }
}

static cudaDataType_t wide_type_of(lk_dtype dtype)
{
    return dtype == LK_F64 ? CUDA_R_64F : CUDA_R_32F;
}

/* The trailing leading axes that one stride serves go into one call; *count is their product. */
static int strided_axes(const lki_cuda_shape *s, int64_t *count, int64_t *a_step, int64_t *b_step)
{
    int i = s->axes - 1;
    *count = 1;
    *a_step = *b_step = 0;
    if (i < 0) return 0;
    *count = s->dim[i];
    *a_step = s->a_step[i];
    *b_step = s->b_step[i];
    while (--i >= 0) {
        if (s->a_step[i] != *a_step * *count || s->b_step[i] != *b_step * *count) break;
        *count *= s->dim[i];
    }
    return s->axes - 1 - i;
}

static lk_status layout(cublasLtMatrixLayout_t *out, cudaDataType_t type, int64_t rows, int64_t columns,
                        int64_t batch, int64_t step)
{
    int32_t count = (int32_t)batch;
    LKI_CUBLAS(cublasLtMatrixLayoutCreate(out, type, (uint64_t)rows, (uint64_t)columns, rows));
    LKI_CUBLAS(
        cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
    LKI_CUBLAS(cublasLtMatrixLayoutSetAttribute(*out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step,
                                                sizeof step));
    return LK_OK;
}

static lk_status layouts(lki_cuda_product *p, const lki_cuda_factors *f)
{
    const lki_cuda_shape *s = &p->shape;
    int64_t count, a_step, b_step;
    p->lt.strided = strided_axes(s, &count, &a_step, &b_step);
    p->lt.outer_axes = s->axes - p->lt.strided;
    p->lt.outer_count = count > 0 ? s->batch / count : 0;
    cudaDataType_t type = type_of(p->dtype);
    bool a_turned = s->a_column != 1, b_turned = s->b_row == 1;
    LKI_TRY(layout(&p->lt.a, type, b_turned ? s->k : s->n, b_turned ? s->n : s->k, count, b_step));
    LKI_TRY(layout(&p->lt.b, type, a_turned ? s->m : s->k, a_turned ? s->k : s->m, count, a_step));
    return layout(&p->lt.c, f->wide_c ? wide_type_of(p->dtype) : type, s->n, s->m, count, s->m * s->n);
}

static lk_status describe(const lki_cuda *cuda, lki_cuda_product *p)
{
    cublasComputeType_t compute = p->dtype == LK_F64                 ? CUBLAS_COMPUTE_64F
                                  : p->dtype == LK_F32 && cuda->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                     : CUBLAS_COMPUTE_32F;
    cublasOperation_t a = p->shape.b_row == 1 ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t b = p->shape.a_column != 1 ? CUBLAS_OP_T : CUBLAS_OP_N;
    LKI_CUBLAS(cublasLtMatmulDescCreate(&p->lt.desc, compute, wide_type_of(p->dtype)));
    LKI_CUBLAS(cublasLtMatmulDescSetAttribute(p->lt.desc, CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a));
    LKI_CUBLAS(cublasLtMatmulDescSetAttribute(p->lt.desc, CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b));
    return LK_OK;
}

/* The bias of a forward product, or the bias gradient of a backward one. */
static lk_status set_vector(cublasLtMatmulDesc_t desc, const void *vector, cudaDataType_t type)
{
    LKI_CUBLAS(
        cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector, sizeof vector));
    LKI_CUBLAS(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type));
    return LK_OK;
}

/* The type of the epilogue's vector. */
static cudaDataType_t vector_type_of(const lki_cuda_product *p, const lki_cuda_factors *f)
{
    bool wide = p->lt.has_sums ? f->wide_sums : f->wide_bias && !p->lt.narrows_bias;
    return wide ? wide_type_of(p->dtype) : type_of(p->dtype);
}

/* cuBLASLt adds a bias of the result's type alone. A bias in f32 beside results in 16 bits is therefore
 * rounded to 16 bits first, as PyTorch's autocast does. */
static lk_status set_epilogue(lki_cuda_product *p, const lki_cuda_factors *f)
{
    lki_cuda_lt *lt = &p->lt;
    lt->has_bias = f->bias;
    lt->has_relu = f->relu;
    lt->has_sums = f->sums;
    lt->narrows_bias = f->bias && f->wide_bias && !f->wide_c;
    cublasLtEpilogue_t epilogue = lt->has_sums                   ? CUBLASLT_EPILOGUE_BGRADB
                                  : lt->has_bias && lt->has_relu ? CUBLASLT_EPILOGUE_RELU_BIAS
                                  : lt->has_bias                 ? CUBLASLT_EPILOGUE_BIAS
                                                                 : CUBLASLT_EPILOGUE_RELU;
    LKI_CUBLAS(
        cublasLtMatmulDescSetAttribute(lt->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    if (!lt->has_bias && !lt->has_sums) return LK_OK;
    return set_vector(lt->desc, lt->has_sums ? f->sums : f->bias, vector_type_of(p, f));
}

/* The plain product, with what the epilogue would have done left to lki_cuda_finish_product. The description
 * is a new one: one that was told of a vector is refused for the vector's type, even if the epilogue does not
 * use the vector. */
static lk_status forget_epilogue(const lki_cuda *cuda, lki_cuda_product *p)
{
    LKI_CUBLAS(cublasLtMatmulDescDestroy(p->lt.desc));
    p->lt.desc = NULL;
    p->lt.has_bias = p->lt.has_relu = p->lt.has_sums = p->lt.narrows_bias = false;
    return describe(cuda, p);
}

/* The alignment that every operand has, and every matrix of a batch. */
static uint32_t alignment_of(const lki_cuda_product *p, const lki_cuda_factors *f)
{
    uint64_t all = (uintptr_t)f->a | (uintptr_t)f->b | (uintptr_t)f->c | 256;
    uint64_t nbytes = lki_cuda_dtype_nbytes(p->dtype);
    for (int i = 0; i < p->lt.outer_axes; i++)
        all |= (uint64_t)p->shape.a_step[i] * nbytes | (uint64_t)p->shape.b_step[i] * nbytes |
               (uint64_t)(p->shape.m * p->shape.n) * nbytes;
    return (uint32_t)(all & (~all + 1));
}

static lk_status set_preference(cublasLtMatmulPreference_t preference, uint32_t alignment)
{
    /* Partial sums are added in a step of their own, in order. */
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    static const cublasLtMatmulPreferenceAttributes_t operands[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    LKI_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                    &WORKSPACE_NBYTES, sizeof WORKSPACE_NBYTES));
    LKI_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                    &schemes, sizeof schemes));
    for (int i = 0; i < 4; i++)
        LKI_CUBLAS(
            cublasLtMatmulPreferenceSetAttribute(preference, operands[i], &alignment, sizeof alignment));
    return LK_OK;
}

static lk_status ask(lki_cuda *cuda, lki_cuda_product *p, bool *found)
{
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t best;
    int count = 0;
    LKI_CUBLAS(cublasLtMatmulPreferenceCreate(&preference));
    lk_status status = set_preference(preference, p->lt.alignment);
    cublasStatus_t answer = CUBLAS_STATUS_NOT_SUPPORTED;
    if (status == LK_OK)
        answer = cublasLtMatmulAlgoGetHeuristic(cuda->cublas, p->lt.desc, p->lt.a, p->lt.b, p->lt.c, p->lt.c,
                                                preference, 1, &best, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    LKI_TRY(status);
    *found = answer == CUBLAS_STATUS_SUCCESS && count > 0 && best.state == CUBLAS_STATUS_SUCCESS;
    if (!*found) return LK_OK;
    p->lt.algo = best.algo;
    p->lt.workspace_nbytes = best.workspaceSize;
    return LK_OK;
}

lk_status lki_cuda_plan_lt(lki_cuda *cuda, lki_cuda_product *p, const lki_cuda_factors *f, bool *found)
{
    cublasLtHandle_t handle; /* opened here, so that run finds it in cuda->cublas */
    *found = false;
    LKI_TRY(lki_cuda_cublas(cuda, &handle));
    LKI_TRY(describe(cuda, p));
    LKI_TRY(layouts(p, f));
    p->lt.alignment = alignment_of(p, f);
    if (f->bias || f->relu || f->sums) {
        LKI_TRY(set_epilogue(p, f));
        LKI_TRY(ask(cuda, p, found));
        if (*found) return LK_OK;
        LKI_TRY(forget_epilogue(cuda, p));
    }
    return ask(cuda, p, found);
}

static size_t aligned(size_t nbytes)
{
    return (nbytes + SCRATCH_ALIGNMENT - 1) / SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;
}

/* The scratch of a run begins with the bias in 16 bits. */
static size_t bias_nbytes(const lki_cuda_product *p)
{
    return p->lt.narrows_bias ? aligned((size_t)p->shape.n * lki_cuda_dtype_nbytes(p->dtype)) : 0;
}

size_t lki_cuda_lt_scratch_nbytes(const lki_cuda_product *p)
{
    size_t nbytes = bias_nbytes(p) + p->lt.workspace_nbytes;
    return nbytes ? nbytes + SCRATCH_ALIGNMENT : 0;
}

bool lki_cuda_lt_fits(const lki_cuda_product *p, const lki_cuda_factors *f)
{
    const lki_cuda_lt *lt = &p->lt;
    if (!f->c || (lt->has_bias && !f->bias) || (lt->has_sums && !f->sums)) return false;
    return alignment_of(p, f) >= lt->alignment;
}

static lk_status multiply(lki_cuda *cuda, lki_cuda_product *p, const void *a, const void *b, void *c,
                          void *workspace)
{
    static const float one = 1, zero = 0;
    static const double one_f64 = 1, zero_f64 = 0;
    bool f64 = p->dtype == LK_F64;
    LKI_CUBLAS(cublasLtMatmul(cuda->cublas, p->lt.desc, f64 ? (const void *)&one_f64 : &one, b, p->lt.a, a,
                              p->lt.b, f64 ? (const void *)&zero_f64 : &zero, c, p->lt.c, c, p->lt.c,
                              &p->lt.algo, workspace, p->lt.workspace_nbytes, cuda->compute));
    return LK_OK;
}

/* Where the outer axes' matrices with this number begin, in elements. */
static void outer_at(const lki_cuda_product *p, int64_t number, int64_t *a, int64_t *b)
{
    *a = *b = 0;
    for (int64_t i = p->lt.outer_axes - 1; i >= 0; i--) {
        int64_t at = number % p->shape.dim[i];
        number /= p->shape.dim[i];
        *a += at * p->shape.a_step[i];
        *b += at * p->shape.b_step[i];
    }
}

lk_status lki_cuda_run_lt(lki_cuda *cuda, lki_cuda_product *p, const lki_cuda_factors *f, void *scratch)
{
    lki_cuda_lt *lt = &p->lt;
    char *narrow = (char *)aligned((uintptr_t)scratch), *workspace = narrow + bias_nbytes(p);
    if (lt->narrows_bias) LKI_TRY(lki_cuda_narrow_bias(cuda, p, f, narrow));
    if (lt->has_bias || lt->has_sums)
        LKI_TRY(set_vector(lt->desc,
                           lt->has_sums       ? f->sums
                           : lt->narrows_bias ? narrow
                                              : f->bias,
                           vector_type_of(p, f)));
    size_t nbytes = lki_cuda_dtype_nbytes(p->dtype);
    size_t c_nbytes = f->wide_c && nbytes < sizeof(float) ? sizeof(float) : nbytes;
    int64_t each = p->shape.batch / lt->outer_count * p->shape.m * p->shape.n;
    for (int64_t i = 0; i < lt->outer_count; i++) {
        int64_t a, b;
        outer_at(p, i, &a, &b);
        LKI_TRY(multiply(
            cuda, p, (const char *)f->a + (size_t)a * nbytes, (const char *)f->b + (size_t)b * nbytes,
            (char *)f->c + (size_t)(i * each) * c_nbytes, lt->workspace_nbytes ? workspace : NULL));
    }
    bool rest = (f->bias && !lt->has_bias) || (f->relu && !lt->has_relu), sums = f->sums && !lt->has_sums;
    return rest || sums ? lki_cuda_finish_product(cuda, p, f, rest, sums) : LK_OK;
}

void lki_cuda_free_lt(lki_cuda_lt *lt)
{
    if (lt->desc) cublasLtMatmulDescDestroy(lt->desc);
    if (lt->a) cublasLtMatrixLayoutDestroy(lt->a);
    if (lt->b) cublasLtMatrixLayoutDestroy(lt->b);
    if (lt->c) cublasLtMatrixLayoutDestroy(lt->c);
}
