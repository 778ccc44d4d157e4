/* The device, its memory, copies, errors, and kernels that were compiled at run time.
 *
 * Device memory is memory of the host, freshly full of ones, each piece by itself: a sanitizer sees what lies
 * outside. */
#include "devices.h"
#include "gpu.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

using namespace lkt_gpu;

namespace
{

constexpr size_t ALIGNMENT = 256;
constexpr int MOST_DEVICES = 8, HOST = -1;

struct piece {
    size_t nbytes;
    int device; /* or HOST */
};

std::map<uintptr_t, piece> pieces;
thread_local cudaError_t last_error;
thread_local int current;

long number_of(const char *variable, long otherwise)
{
    const char *text = getenv(variable);
    return text ? atol(text) : otherwise;
}

int device_count(void)
{
    long count = number_of("LOCKSTEP_EMULATED_DEVICES", 1);
    return count > MOST_DEVICES ? MOST_DEVICES : (int)count;
}

/* Of a device; as much of the host's can be pinned. */
size_t memory_nbytes(void)
{
    return (size_t)number_of("LOCKSTEP_EMULATED_MEMORY", 4096) << 20;
}

size_t &used(int device)
{
    static size_t nbytes[1 + MOST_DEVICES];
    return nbytes[1 + device];
}

/* The piece that all of these bytes lie in, or NULL. */
const piece *find(const void *data, size_t nbytes)
{
    uintptr_t address = (uintptr_t)data;
    auto after = pieces.upper_bound(address);
    if (after == pieces.begin()) return NULL;
    auto found = std::prev(after);
    return address + nbytes <= found->first + found->second.nbytes ? &found->second : NULL;
}

bool is_device(const void *data, size_t nbytes)
{
    const piece *found = find(data, nbytes);
    return found && found->device != HOST;
}

/* CUDA takes memory of any device, but it is slow where that is another one than the stream's. */
bool is_elsewhere(const void *data, size_t nbytes, cudaStream_t stream)
{
    const piece *found = find(data, nbytes);
    return found && found->device != HOST && found->device != device_of(stream);
}

cudaError_t allocate(void **out, size_t nbytes, int device)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    *out = NULL;
    if (is_capturing()) return remember(cudaErrorStreamCaptureUnsupported);
    if (nbytes > memory_nbytes() - used(device)) return remember(cudaErrorMemoryAllocation);
    if (posix_memalign(out, ALIGNMENT, nbytes ? nbytes : 1)) return remember(cudaErrorMemoryAllocation);
    memset(*out, 0xff, nbytes);
    pieces[(uintptr_t)*out] = {nbytes, device};
    used(device) += nbytes;
    return cudaSuccess;
}

cudaError_t release(void *data, bool on_device)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (!data) return cudaSuccess;
    if (is_capturing()) return remember(cudaErrorStreamCaptureUnsupported);
    auto found = pieces.find((uintptr_t)data);
    if (found == pieces.end() || (found->second.device != HOST) != on_device)
        return remember(cudaErrorInvalidValue);
    finish_all();
    used(found->second.device) -= found->second.nbytes;
    pieces.erase(found);
    free(data);
    return cudaSuccess;
}

bool fits(const void *to, const void *from, size_t nbytes, cudaMemcpyKind kind)
{
    bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    return is_device(to, nbytes) == to_device && is_device(from, nbytes) == from_device;
}

float half_to_float(unsigned short bits)
{
    __half_raw raw;
    raw.x = bits;
    return __half2float(__half(raw));
}

unsigned short float_to_half(float value)
{
    return __half_raw(__float2half_rn(value)).x;
}

unsigned short float_to_bfloat16(float value)
{
    return __nv_bfloat16_raw(__float2bfloat16_rn(value)).x;
}

} // namespace

cudaError_t lkt_gpu::remember(cudaError_t error)
{
    if (error != cudaSuccess) last_error = error;
    return error;
}

int lkt_gpu::current_device(void)
{
    return current;
}

/* ---- Errors ---- */

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureUnjoined: return "capturing stream has unjoined work";
    default: return "an error of the emulated GPU";
    }
}

/* ---- The device ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = device_count();
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= device_count()) return remember(cudaErrorInvalidDevice);
    current = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel, int threads,
                                                          size_t shared_nbytes)
{
    (void)kernel;
    *blocks = threads <= 1024 && shared_nbytes <= (227 << 10) ? 1 : 0;
    return cudaSuccess;
}

/* One of compute capability 9.0, or as LOCKSTEP_EMULATED_CAPABILITY says (75). A block that waits for others
 * keeps all its stacks: few processors. */
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device)
{
    if (device < 0 || device >= device_count()) return remember(cudaErrorInvalidDevice);
    memset(properties, 0, sizeof *properties);
    snprintf(properties->name, sizeof properties->name, "emulated GPU");
    int capability = (int)number_of("LOCKSTEP_EMULATED_CAPABILITY", 90);
    properties->major = capability / 10;
    properties->minor = capability % 10;
    properties->multiProcessorCount = (int)number_of("LOCKSTEP_EMULATED_PROCESSORS", 6);
    properties->cooperativeLaunch = 1;
    properties->totalGlobalMem = memory_nbytes();
    properties->sharedMemPerBlock = 48 << 10;
    properties->sharedMemPerBlockOptin = 227 << 10;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int capacity, int device)
{
    snprintf(text, (size_t)capacity, "0000:00:%02d.0", device);
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* ---- Memory ---- */

cudaError_t cudaMemGetInfo(size_t *free_nbytes, size_t *total)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    *total = memory_nbytes();
    *free_nbytes = memory_nbytes() - used(current);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **data, size_t nbytes)
{
    return allocate(data, nbytes, current);
}

cudaError_t cudaFree(void *data)
{
    return release(data, true);
}

cudaError_t cudaHostAlloc(void **data, size_t nbytes, unsigned)
{
    return allocate(data, nbytes, HOST);
}

cudaError_t cudaFreeHost(void *data)
{
    return release(data, false);
}

cudaError_t cudaHostGetDevicePointer(void **out, void *data, unsigned)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    const piece *found = find(data, 1);
    *out = data;
    return remember(found && found->device == HOST ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *data)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    const piece *found = find(data, 1);
    memset(attributes, 0, sizeof *attributes);
    attributes->type = !found                  ? cudaMemoryTypeUnregistered
                       : found->device == HOST ? cudaMemoryTypeHost
                                               : cudaMemoryTypeDevice;
    attributes->device = found && found->device != HOST ? found->device : current;
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t nbytes, cudaMemcpyKind kind)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (is_capturing()) return remember(cudaErrorStreamCaptureUnsupported);
    if (!fits(to, from, nbytes, kind)) return remember(cudaErrorInvalidValue);
    memcpy(to, from, nbytes);
    return cudaSuccess;
}

/* Pinned memory is read and written when the copy's turn comes; other memory is read at once. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t nbytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    bool elsewhere = is_elsewhere(to, nbytes, stream) || is_elsewhere(from, nbytes, stream);
    if (elsewhere || !fits(to, from, nbytes, kind)) return remember(cudaErrorInvalidValue);
    if (find(from, nbytes) || is_capturing()) return enqueue(stream, [=] { memcpy(to, from, nbytes); });
    auto copy = std::make_shared<std::vector<char>>((const char *)from, (const char *)from + nbytes);
    return enqueue(stream, [=] { memcpy(to, copy->data(), nbytes); });
}

cudaError_t cudaMemset(void *to, int value, size_t nbytes)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (is_capturing()) return remember(cudaErrorStreamCaptureUnsupported);
    if (!find(to, nbytes)) return remember(cudaErrorInvalidValue);
    memset(to, value, nbytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t nbytes, cudaStream_t stream)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (!find(to, nbytes) || is_elsewhere(to, nbytes, stream)) return remember(cudaErrorInvalidValue);
    return enqueue(stream, [=] { memset(to, value, nbytes); });
}

/* ---- Kernels compiled at run time; an image is its length and a shared library (nvrtc.cc) ---- */

struct CUlib_st {
    void *handle;
    std::map<std::string, CUkern_st *> kernels;
};

struct CUkern_st {
    std::string name;
    const entry *found;
};

cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *image, cudaJitOption *, void **, unsigned,
                                cudaLibraryOption *, void **, unsigned)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    size_t nbytes;
    char path[] =
        "/tmp/lockstep-kernels-XXXXXX"; /* of its own: a library of the same name would be that one */
    memcpy(&nbytes, image, sizeof nbytes);
    int file = mkstemp(path);
    bool written = file >= 0 && write(file, (const char *)image + sizeof nbytes, nbytes) == (ssize_t)nbytes;
    if (file >= 0) close(file);
    void *handle = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (file >= 0) unlink(path);
    if (!handle) refuse("a kernel cannot be loaded: %s", dlerror());
    here.from_f16 = half_to_float;
    here.to_f16 = float_to_half;
    here.to_bf16 = float_to_bfloat16;
    place **pointer = (place **)dlsym(handle, "lkt_gpu_here");
    if (!pointer) refuse("a library without kernels");
    *pointer = &here;
    *library = new CUlib_st{handle, {}};
    return cudaSuccess;
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library)
{
    for (auto &each : library->kernels) delete each.second;
    dlclose(library->handle);
    delete library;
    return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    const entry *found =
        (const entry *)dlsym(library->handle, (std::string("lkt_gpu_entry_") + name).c_str());
    if (!found) return remember(cudaErrorSymbolNotFound);
    if (!library->kernels[name]) library->kernels[name] = new CUkern_st{name, found};
    *kernel = library->kernels[name];
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *)
{
    memset(attributes, 0, sizeof *attributes);
    return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments, size_t shared,
                             cudaStream_t stream)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    const CUkern_st *kernel = (const CUkern_st *)function;
    const entry *found = kernel->found;
    auto kept = std::make_shared<std::vector<std::vector<char>>>();
    for (int i = 0; i < found->count; i++)
        kept->emplace_back((const char *)arguments[i], (const char *)arguments[i] + found->nbytes[i]);
    auto pointers = std::make_shared<std::vector<void *>>();
    for (auto &each : *kept) pointers->push_back(each.data());
    enqueue_grid(kernel->name.c_str(), config(grid, block, shared, stream),
                 [found, kept, pointers] { found->call(pointers->data()); });
    return cudaPeekAtLastError();
}
