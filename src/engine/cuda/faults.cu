/* Wrong indices: which calls look for them, and what is said when one was found. */
#include "engine/cuda/core.cuh"

#include <string.h>

/* A call that checks, by its number; next: of the numbers that nobody has. */
struct lki_cuda_checked {
    const lk_call *call;
    lki_cuda_check check;
    int next;
};

enum { FIRST_CAPACITY = 64, MOST_NUMBERS = 1 << (64 - LKI_CUDA_POSITION_BITS) };

static lk_status grow(lki_cuda *cuda)
{
    int capacity = cuda->checked_capacity ? 2 * cuda->checked_capacity : FIRST_CAPACITY;
    if (capacity > MOST_NUMBERS)
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "a GPU can check the indices of at most %d calls",
                             MOST_NUMBERS - 1);
    lki_cuda_checked *grown =
        (lki_cuda_checked *)lki_host->alloc(sizeof *grown * (size_t)capacity, "calls that check indices");
    if (!grown) return LK_ERR_NOMEM;
    if (cuda->checked) memcpy(grown, cuda->checked, sizeof *grown * (size_t)cuda->checked_count);
    lki_host->free(cuda->checked);
    cuda->checked = grown;
    cuda->checked_capacity = capacity;
    return LK_OK;
}

lk_status lki_cuda_check_init(lki_cuda *cuda, lk_call *call, int operand, int64_t limit, lki_cuda_check *out)
{
    int number = cuda->vacant_check;
    if (number) {
        cuda->vacant_check = cuda->checked[number].next;
    } else {
        if (!cuda->checked_count) cuda->checked_count = 1; /* number 0 is nobody's */
        if (cuda->checked_count >= cuda->checked_capacity) LKI_TRY(grow(cuda));
        number = cuda->checked_count++;
    }
    *out = (lki_cuda_check){number, operand, limit};
    cuda->checked[number] = (lki_cuda_checked){call, *out, 0};
    return LK_OK;
}

void lki_cuda_check_fini(lki_cuda *cuda, const lki_cuda_check *check)
{
    if (!check->number) return;
    cuda->checked[check->number].call = NULL;
    cuda->checked[check->number].next = cuda->vacant_check;
    cuda->vacant_check = check->number;
}

/* What binary cross entropy checks are no indices: its number, from the bits of an element. */
static bool is_probability(lk_dtype dtype, int64_t bits, double *out)
{
    float single;
    memcpy(&single, &bits, sizeof single);
    if (dtype == LK_F64) memcpy(out, &bits, sizeof *out);
    if (dtype == LK_F32) *out = single;
    return dtype == LK_F64 || dtype == LK_F32;
}

static lk_status explain(const lk_call *call, lki_cuda_check check, int64_t position)
{
    int64_t index = 0;
    double probability = 0;
    if (call) {
        const lk_tensor *indices = &call->in[check.operand];
        size_t size = lki_cuda_dtype_nbytes(indices->dtype);
        LKI_CUDA(cudaMemcpy(&index, (const char *)indices->data + (size_t)position * size, size,
                            cudaMemcpyDeviceToHost));
        if (indices->dtype == LK_I32) index = (int32_t)index;
        if (is_probability(indices->dtype, index, &probability))
            return lki_cuda_fail(LK_ERR_RANGE, "probability %g at position %lld is outside of 0..1",
                                 probability, (long long)position);
    }
    return lki_cuda_fail(LK_ERR_RANGE, "%lld at position %lld is outside of 0..%lld", (long long)index,
                         (long long)position, (long long)check.limit - 1);
}

lk_status lki_cuda_take_fault(lki_cuda *cuda, const lk_call **failed)
{
    unsigned long long first = 0, none = ~0ull;
    if (!*cuda->fault.found) return LK_OK;
    LKI_CUDA(cudaMemcpy(&first, cuda->fault.first, sizeof first, cudaMemcpyDeviceToHost));
    LKI_CUDA(cudaMemcpy(cuda->fault.first, &none, sizeof none, cudaMemcpyHostToDevice));
    *cuda->fault.found = 0;
    int64_t position = (int64_t)(first & ((1ull << LKI_CUDA_POSITION_BITS) - 1));
    const lki_cuda_checked *checked = &cuda->checked[first >> LKI_CUDA_POSITION_BITS];
    if (failed) *failed = checked->call;
    return explain(checked->call, checked->check, position);
}
