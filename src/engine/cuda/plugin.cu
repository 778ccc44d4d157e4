/* The table that liblockstep finds in the plugin. */
#include "engine/cuda/cuda.cuh"

#include <stdio.h>

/* Those before the first that is too old, so that numbers stay CUDA's, which lists the newest first. */
static lk_status keep_usable(int *count)
{
    for (int i = 0; i < *count; i++) {
        cudaDeviceProp properties;
        LKI_CUDA(cudaGetDeviceProperties(&properties, i));
        lk_status status = lki_cuda_check_capability(i, &properties);
        if (status == LK_OK) continue;
        *count = i;
        return i > 0 ? LK_OK : status;
    }
    return LK_OK;
}

static lk_status device_count(int *count)
{
    int driver = 0;
    *count = 0;
    cudaError_t error = cudaGetDeviceCount(count);
    if (error == cudaSuccess && *count > 0) return keep_usable(count);
    *count = 0;
    cudaGetLastError();
    if (error == cudaSuccess || error == cudaErrorNoDevice)
        return lki_cuda_fail(LK_ERR_DEVICE, "no GPU is visible to this process");
    if (error != cudaErrorInsufficientDriver) return lki_cuda_error(error, "looking for GPUs");
    cudaDriverGetVersion(&driver);
    if (!driver) return lki_cuda_fail(LK_ERR_DEVICE, "there is no NVIDIA driver here");
    return lki_cuda_fail(LK_ERR_DEVICE, "the NVIDIA driver is one for CUDA %d.%d, too old for CUDA %d.%d",
                         driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                         CUDART_VERSION % 1000 / 10);
}

static lk_status describe(int device, lki_cuda_device *out)
{
    cudaDeviceProp properties;
    LKI_CUDA(cudaGetDeviceProperties(&properties, device));
    snprintf(out->name, sizeof out->name, "%.127s", properties.name);
    out->major = properties.major;
    out->minor = properties.minor;
    out->processor_count = properties.multiProcessorCount;
    out->memory_nbytes = properties.totalGlobalMem;
    LKI_CUDA(cudaDeviceGetPCIBusId(out->bus, sizeof out->bus, device));
    int before = 0;
    size_t total = 0;
    LKI_CUDA(cudaGetDevice(&before));
    LKI_CUDA(cudaSetDevice(device));
    cudaError_t error = cudaMemGetInfo(&out->free_nbytes, &total);
    LKI_CUDA(cudaSetDevice(before));
    return error == cudaSuccess ? LK_OK : lki_cuda_error(error, "a look at a GPU's memory");
}

static void versions(lki_cuda_versions *out)
{
    *out = (lki_cuda_versions){0, 0, 0, 0, 0};
    cudaDriverGetVersion(&out->driver);
    cudaRuntimeGetVersion(&out->runtime);
    out->cublas = (int)cublasLtGetVersion();
    out->cudnn = (int)cudnnGetVersion();
    out->nccl = lki_nccl_version();
}

extern "C" const lki_cuda_plugin *lki_cuda_plugin_open(const lki_cuda_host *host)
{
    static lki_cuda_plugin plugin;
    lki_host = host;
    plugin.version = LKI_CUDA_PLUGIN_VERSION;
    plugin.engine_ops = &lki_cuda_ops;
    plugin.device_count = device_count;
    plugin.describe = describe;
    plugin.versions = versions;
    plugin.nccl_id = lki_nccl_id;
    plugin.nccl_create = lki_nccl_create;
    plugin.nccl_fail = lki_nccl_fail;
    return &plugin;
}
