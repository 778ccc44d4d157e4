/* Failures as sentences, and memory whose lack is one: what was asked for, and what is free. */
#include "engine/cuda/cuda.cuh"

#include <stdarg.h>
#include <stdio.h>

/* A library that cannot be opened while less than this is free most likely lacked memory: they seldom say. */
static const size_t LIBRARY_NBYTES = (size_t)256 << 20;

lk_status lki_cuda_fail(lk_status status, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return lki_host->fail(status, text);
}

/* ---- Memory ---- */

static void format_nbytes(char text[32], size_t nbytes)
{
    if (nbytes >= (size_t)1 << 30)
        snprintf(text, 32, "%.1f GiB", (double)nbytes / (1 << 30));
    else if (nbytes >= (size_t)1 << 20)
        snprintf(text, 32, "%.1f MiB", (double)nbytes / (1 << 20));
    else
        snprintf(text, 32, "%.1f KiB", (double)nbytes / (1 << 10));
}

static lk_status no_memory(size_t nbytes, const char *what)
{
    int device = 0;
    size_t free_nbytes = 0, total = 0;
    char asked[32], left[32], whole[32];
    cudaGetLastError(); /* a failed call is remembered until somebody asks */
    cudaGetDevice(&device);
    cudaMemGetInfo(&free_nbytes, &total);
    format_nbytes(asked, nbytes);
    format_nbytes(left, free_nbytes);
    format_nbytes(whole, total);
    return lki_cuda_fail(LK_ERR_NOMEM, "out of memory on GPU %d%s%s for %.200s, where %s of %s are free",
                         device, nbytes ? ": " : "", nbytes ? asked : "", what, left, whole);
}

lk_status lki_cuda_malloc(void **out, size_t nbytes, const char *what)
{
    *out = NULL;
    cudaError_t error = cudaMalloc(out, nbytes);
    if (error == cudaSuccess) return LK_OK;
    *out = NULL;
    return error == cudaErrorMemoryAllocation ? no_memory(nbytes, what) : lki_cuda_error(error, what);
}

lk_status lki_cuda_malloc_host(void **out, size_t nbytes, unsigned flags, const char *what)
{
    char asked[32];
    *out = NULL;
    cudaError_t error = cudaHostAlloc(out, nbytes, flags);
    if (error == cudaSuccess) return LK_OK;
    *out = NULL;
    if (error != cudaErrorMemoryAllocation) return lki_cuda_error(error, what);
    cudaGetLastError();
    format_nbytes(asked, nbytes);
    return lki_cuda_fail(LK_ERR_NOMEM, "out of pinned host memory: %s for %.200s", asked, what);
}

/* ---- Errors of the libraries ---- */

lk_status lki_cuda_error(cudaError_t error, const char *what)
{
    cudaGetLastError();
    if (error == cudaErrorMemoryAllocation) return no_memory(0, what);
    return lki_cuda_fail(LK_ERR_DEVICE, "CUDA: %s (%.80s)", cudaGetErrorString(error), what);
}

lk_status lki_cublas_error(cublasStatus_t error, const char *what)
{
    if (error == CUBLAS_STATUS_ALLOC_FAILED) return no_memory(0, what);
    return lki_cuda_fail(LK_ERR_DEVICE, "cuBLAS: %s (%.80s)", cublasLtGetStatusString(error), what);
}

static bool is_allocation_failure(cudnnStatus_t error)
{
#if CUDNN_MAJOR >= 9
    return error == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
           error == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
#else
    return error == CUDNN_STATUS_ALLOC_FAILED;
#endif
}

lk_status lki_cudnn_error(cudnnStatus_t error, const char *what)
{
    if (is_allocation_failure(error)) return no_memory(0, what);
    return lki_cuda_fail(LK_ERR_DEVICE, "cuDNN: %s (%.80s)", cudnnGetErrorString(error), what);
}

/* ---- Handles ---- */

static bool is_nearly_full(void)
{
    size_t free_nbytes = 0, total = 0;
    return cudaMemGetInfo(&free_nbytes, &total) == cudaSuccess && free_nbytes < LIBRARY_NBYTES;
}

lk_status lki_cuda_cublas(lki_cuda *cuda, cublasLtHandle_t *out)
{
    if (!cuda->cublas) {
        cublasStatus_t error = cublasLtCreate(&cuda->cublas);
        if (error != CUBLAS_STATUS_SUCCESS) {
            cuda->cublas = NULL;
            return is_nearly_full() ? no_memory(0, "cuBLAS") : lki_cublas_error(error, "opening it");
        }
    }
    *out = cuda->cublas;
    return LK_OK;
}

lk_status lki_cuda_cudnn(lki_cuda *cuda, cudnnHandle_t *out)
{
    if (!cuda->cudnn) {
        cudnnHandle_t made = NULL;
        cudnnStatus_t error = cudnnCreate(&made);
        if (error != CUDNN_STATUS_SUCCESS)
            return is_nearly_full() ? no_memory(0, "cuDNN") : lki_cudnn_error(error, "opening it");
        cuda->cudnn = made;
        LKI_CUDNN(cudnnSetStream(cuda->cudnn, cuda->compute));
    }
    *out = cuda->cudnn;
    return LK_OK;
}
