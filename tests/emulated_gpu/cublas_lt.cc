/* cuBLASLt: products of column-major matrices with their epilogues, by plain loops.
 *
 * As the library does, it has no epilogue for every product: sums of rows and columns only of short floats
 * whose addresses are aligned to 16 bytes, and a bias only of the result's type, so that callers go both
 * ways. A description that was told of another bias is refused even if the epilogue does not add it. */
#include "gpu.h"
#include "numbers.h"

#include <cublasLt.h>

#include <string.h>

#include <vector>

using namespace lkt_gpu;

namespace
{

constexpr size_t WORKSPACE_NBYTES = 5000;

struct layout {
    number type;
    int64_t rows, columns, leading, step;
    int32_t batch;
};

struct product {
    bool turn_a, turn_b;
    cublasLtEpilogue_t epilogue;
    void *vector;
    number vector_type;
    bool has_vector_type;
};

struct preference {
    size_t workspace_nbytes;
    uint32_t alignment;
};

number number_of(cudaDataType_t type)
{
    switch (type) {
    case CUDA_R_64F: return F64;
    case CUDA_R_16BF: return BF16;
    case CUDA_R_16F: return F16;
    case CUDA_R_32F: return F32;
    default: refuse("cuBLASLt of data type %d is not emulated", (int)type);
    }
}

/* One matrix, turned where that is asked for, row by row. */
std::vector<double> matrix(const layout &l, const void *data, int64_t batch, bool turned)
{
    int64_t rows = turned ? l.columns : l.rows, columns = turned ? l.rows : l.columns;
    std::vector<double> out((size_t)(rows * columns));
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            out[(size_t)(i * columns + j)] =
                load(data, l.type, batch * l.step + (turned ? j + i * l.leading : i + j * l.leading));
    return out;
}

/* What is multiplied, kept from the call. */
struct task {
    product p;
    layout a, b, d;
    const void *a_data, *b_data;
    void *d_data;
    double alpha;
};

void finish(const task &t, int64_t batch, int64_t i, int64_t j, double value)
{
    cublasLtEpilogue_t e = t.p.epilogue;
    if (e == CUBLASLT_EPILOGUE_BIAS || e == CUBLASLT_EPILOGUE_RELU_BIAS)
        value += load(t.p.vector, t.p.vector_type, i);
    if ((e == CUBLASLT_EPILOGUE_RELU || e == CUBLASLT_EPILOGUE_RELU_BIAS) && value < 0) value = 0;
    store(t.d_data, t.d.type, batch * t.d.step + i + j * t.d.leading, value);
}

void multiply(const task &t, int64_t batch)
{
    std::vector<double> a = matrix(t.a, t.a_data, batch, t.p.turn_a);
    std::vector<double> b = matrix(t.b, t.b_data, batch, t.p.turn_b);
    size_t m = (size_t)t.d.rows, n = (size_t)t.d.columns, k = a.size() / (m ? m : 1);
    std::vector<double> line(n);
    for (size_t i = 0; i < m; i++) {
        line.assign(n, 0);
        for (size_t l = 0; l < k; l++)
            for (size_t j = 0; j < n; j++) line[j] += a[i * k + l] * b[l * n + j];
        for (size_t j = 0; j < n; j++) finish(t, batch, (int64_t)i, (int64_t)j, t.alpha * line[j]);
    }
    if (t.p.epilogue != CUBLASLT_EPILOGUE_BGRADB) return;
    for (size_t j = 0; j < n; j++) {
        double sum = 0;
        for (size_t l = 0; l < k; l++) sum += b[l * n + j];
        store(t.p.vector, t.p.vector_type, (int64_t)j, sum);
    }
}

bool is_aligned(const void *data, uintptr_t nbytes)
{
    return (uintptr_t)data % nbytes == 0;
}

} // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    void *memory;
    if (cudaMalloc(&memory, 1 << 20) != cudaSuccess) return CUBLAS_STATUS_ALLOC_FAILED;
    *handle = (cublasLtHandle_t)memory;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    cudaFree((void *)handle);
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    return 1;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "a failure of the emulated cuBLASLt";
}

/* ---- Descriptions ---- */

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading)
{
    *out =
        (cublasLtMatrixLayout_t) new layout{number_of(type), (int64_t)rows, (int64_t)columns, leading, 0, 1};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t attribute, const void *value,
                                                size_t nbytes)
{
    layout *l = (layout *)handle;
    if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && nbytes == sizeof l->batch)
        memcpy(&l->batch, value, nbytes);
    else if (attribute == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && nbytes == sizeof l->step)
        memcpy(&l->step, value, nbytes);
    else
        refuse("attribute %d of a layout is not emulated", (int)attribute);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t handle)
{
    delete (layout *)handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t, cudaDataType_t)
{
    *out = (cublasLtMatmulDesc_t) new product{false, false, CUBLASLT_EPILOGUE_DEFAULT, NULL, F32, false};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t attribute, const void *value,
                                              size_t nbytes)
{
    product *p = (product *)handle;
    int number = 0;
    if (nbytes == sizeof number) memcpy(&number, value, nbytes);
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: p->turn_a = number != CUBLAS_OP_N; break;
    case CUBLASLT_MATMUL_DESC_TRANSB: p->turn_b = number != CUBLAS_OP_N; break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE: p->epilogue = (cublasLtEpilogue_t)number; break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: memcpy(&p->vector, value, sizeof p->vector); break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        p->vector_type = number_of((cudaDataType_t)number);
        p->has_vector_type = true;
        break;
    default: refuse("attribute %d of a product is not emulated", (int)attribute);
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t handle)
{
    delete (product *)handle;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = (cublasLtMatmulPreference_t) new preference{0, 256};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t nbytes)
{
    preference *p = (preference *)handle;
    uint32_t number = 0;
    if (nbytes == sizeof number) memcpy(&number, value, nbytes);
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: memcpy(&p->workspace_nbytes, value, nbytes); break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        if (number < p->alignment) p->alignment = number;
        break;
    default: break; /* how sums are cut up */
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t handle)
{
    delete (preference *)handle;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- Products ---- */

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wanted, int,
                                              cublasLtMatmulHeuristicResult_t *out, int *count)
{
    const product *p = (const product *)desc;
    const layout *l = (const layout *)a;
    const preference *w = (const preference *)wanted;
    bool is_short = l->type == BF16 || l->type == F16;
    *count = 0;
    if (p->epilogue == CUBLASLT_EPILOGUE_BGRADB && (!is_short || w->alignment < 16))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (p->epilogue != CUBLASLT_EPILOGUE_DEFAULT && l->type == F64) return CUBLAS_STATUS_NOT_SUPPORTED;
    bool sums = p->epilogue == CUBLASLT_EPILOGUE_BGRADB;
    if (p->has_vector_type && !sums && p->vector_type != ((const layout *)d)->type)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memset(out, 0, sizeof *out);
    out->algo.data[0] = w->alignment;
    out->workspaceSize = WORKSPACE_NBYTES <= w->workspace_nbytes ? WORKSPACE_NBYTES : 0;
    out->state = CUBLAS_STATUS_SUCCESS;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a_data, cublasLtMatrixLayout_t a, const void *b_data,
                              cublasLtMatrixLayout_t b, const void *beta, const void *,
                              cublasLtMatrixLayout_t, void *d_data, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_nbytes,
                              cudaStream_t stream)
{
    task t = {*(const product *)desc,
              *(const layout *)a,
              *(const layout *)b,
              *(const layout *)d,
              a_data,
              b_data,
              d_data,
              0};
    number scale = t.a.type == F64 ? F64 : F32;
    t.alpha = load(alpha, scale, 0);
    if (load(beta, scale, 0) != 0) refuse("cuBLASLt with a beta is not emulated");
    uintptr_t alignment = (uintptr_t)algo->data[0];
    if (!is_aligned(a_data, alignment) || !is_aligned(b_data, alignment) || !is_aligned(d_data, alignment))
        refuse("cuBLASLt: an operand is not aligned to the %d bytes that were promised", (int)alignment);
    if (workspace_nbytes && !is_aligned(workspace, 16)) refuse("cuBLASLt: a workspace that is not aligned");
    enqueue(stream, [t, workspace, workspace_nbytes] {
        if (workspace_nbytes) memset(workspace, 0xff, workspace_nbytes);
        for (int64_t i = 0; i < t.d.batch; i++) multiply(t, i);
    });
    return CUBLAS_STATUS_SUCCESS;
}
