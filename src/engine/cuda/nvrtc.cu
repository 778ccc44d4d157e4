#include "engine/cuda/nvrtc.cuh"

#include <dlfcn.h>
#include <nvrtc.h>
#include <stdio.h>
#include <string.h>

#include <mutex>

namespace
{

/* The functions of libnvrtc that are used here. */
#define NVRTC_LIST(X)                                                                                        \
    X(nvrtcCreateProgram)                                                                                    \
    X(nvrtcCompileProgram)                                                                                   \
    X(nvrtcDestroyProgram)                                                                                   \
    X(nvrtcGetProgramLogSize)                                                                                \
    X(nvrtcGetProgramLog)                                                                                    \
    X(nvrtcGetCUBINSize)                                                                                     \
    X(nvrtcGetCUBIN)                                                                                         \
    X(nvrtcGetPTXSize)                                                                                       \
    X(nvrtcGetPTX)                                                                                           \
    X(nvrtcGetErrorString)

struct nvrtc_library {
    void *handle;
#define X(name) decltype(&::name) name;
    NVRTC_LIST(X)
#undef X
};

/* One compiled source. */
struct entry {
    entry *next;
    int major, minor;
    cudaLibrary_t library;
    lki_cuda_kernels kernels;
    char source[]; /* its key */
};

std::mutex lock; /* over both */
nvrtc_library nvrtc;
entry *entries;

void *open_library(void)
{
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"};
    void *handle = NULL;
    for (int i = 0; i < 3 && !handle; i++) handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return handle;
}

lk_status load(void)
{
    if (nvrtc.handle) return LK_OK;
    nvrtc_library fresh = {};
    fresh.handle = open_library();
    if (!fresh.handle)
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "the cuda engine needs libnvrtc to compile its kernels: %s",
                             dlerror());
#define X(name)                                                                                              \
    fresh.name = (decltype(&::name))dlsym(fresh.handle, #name);                                              \
    if (!fresh.name) {                                                                                       \
        dlclose(fresh.handle);                                                                               \
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "libnvrtc has no function %s", #name);                      \
    }
    NVRTC_LIST(X)
#undef X
    nvrtc = fresh;
    return LK_OK;
}

/* What the compiler had to say, as one line. */
lk_status compile_failed(nvrtcProgram program, nvrtcResult result)
{
    char text[512] = "";
    size_t nbytes = 0;
    if (nvrtc.nvrtcGetProgramLogSize(program, &nbytes) == NVRTC_SUCCESS && nbytes > 1) {
        char *log = (char *)lki_host->alloc(nbytes, "a compiler's log");
        if (log && nvrtc.nvrtcGetProgramLog(program, log) == NVRTC_SUCCESS)
            snprintf(text, sizeof text, ": %.*s", (int)strcspn(log, "\n"), log);
        lki_host->free(log);
    }
    return lki_cuda_fail(LK_ERR_UNSUPPORTED, "a generated kernel does not compile: %s%s",
                         nvrtc.nvrtcGetErrorString(result), text);
}

/* The machine code, or where the compiler does not know this GPU yet the intermediate code, which the driver
 * finishes. The image is the caller's to free. */
lk_status get_image(nvrtcProgram program, bool is_ptx, char **image)
{
    size_t nbytes = 0;
    nvrtcResult result =
        is_ptx ? nvrtc.nvrtcGetPTXSize(program, &nbytes) : nvrtc.nvrtcGetCUBINSize(program, &nbytes);
    if (result != NVRTC_SUCCESS) return compile_failed(program, result);
    *image = (char *)lki_host->alloc(nbytes + 1, "a compiled kernel");
    if (!*image) return LK_ERR_NOMEM;
    result = is_ptx ? nvrtc.nvrtcGetPTX(program, *image) : nvrtc.nvrtcGetCUBIN(program, *image);
    if (result == NVRTC_SUCCESS) return LK_OK;
    lki_host->free(*image);
    *image = NULL;
    return compile_failed(program, result);
}

lk_status compile(const lki_cuda *cuda, const char *source, char **image)
{
    nvrtcProgram program = NULL;
    nvrtcResult result = nvrtc.nvrtcCreateProgram(&program, source, "lockstep.cu", 0, NULL, NULL);
    if (result != NVRTC_SUCCESS)
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "libnvrtc: %s", nvrtc.nvrtcGetErrorString(result));
    char exact[40];
    snprintf(exact, sizeof exact, "--gpu-architecture=sm_%d%d", cuda->major, cuda->minor);
    const char *options[] = {exact, "--std=c++17", "--disable-warnings"}; /* not every kernel uses it all */
    bool is_ptx = false;
    result = nvrtc.nvrtcCompileProgram(program, 3, options);
    if (result == NVRTC_ERROR_INVALID_OPTION) {
        is_ptx = true;
        options[0] = "--gpu-architecture=compute_80";
        result = nvrtc.nvrtcCompileProgram(program, 3, options);
    }
    lk_status status =
        result == NVRTC_SUCCESS ? get_image(program, is_ptx, image) : compile_failed(program, result);
    nvrtc.nvrtcDestroyProgram(&program);
    return status;
}

lk_status get_kernel(cudaLibrary_t library, const char *name, const void **out)
{
    cudaKernel_t kernel;
    LKI_CUDA(cudaLibraryGetKernel(&kernel, library, name));
    *out = (const void *)kernel;
    return LK_OK;
}

/* Asking for the attributes loads a kernel to the current GPU now rather than inside a recording. */
lk_status load_kernels(const lki_cuda_kernels *kernels)
{
    struct cudaFuncAttributes attributes;
    LKI_CUDA(cudaFuncGetAttributes(&attributes, kernels->plain));
    if (kernels->vector) LKI_CUDA(cudaFuncGetAttributes(&attributes, kernels->vector));
    return LK_OK;
}

lk_status load_image(entry *made, const char *image, bool has_vector)
{
    LKI_CUDA(cudaLibraryLoadData(&made->library, image, NULL, NULL, 0, NULL, NULL, 0));
    LKI_TRY(get_kernel(made->library, "plain", &made->kernels.plain));
    if (has_vector) LKI_TRY(get_kernel(made->library, "vector", &made->kernels.vector));
    return load_kernels(&made->kernels);
}

lk_status add(const lki_cuda *cuda, const char *source, bool has_vector, lki_cuda_kernels *out)
{
    char *image = NULL;
    LKI_TRY(load());
    LKI_TRY(compile(cuda, source, &image));
    entry *made = (entry *)lki_host->alloc(sizeof *made + strlen(source) + 1, "a compiled kernel");
    lk_status status = made ? load_image(made, image, has_vector) : LK_ERR_NOMEM;
    lki_host->free(image);
    if (status != LK_OK) {
        if (made && made->library) cudaLibraryUnload(made->library);
        lki_host->free(made);
        return status;
    }
    made->major = cuda->major;
    made->minor = cuda->minor;
    strcpy(made->source, source);
    made->next = entries;
    entries = made;
    *out = made->kernels;
    return LK_OK;
}

} // namespace

lk_status lki_cuda_compile(lki_cuda *cuda, const char *source, bool has_vector, lki_cuda_kernels *out)
{
    std::lock_guard<std::mutex> guard(lock);
    for (const entry *e = entries; e; e = e->next)
        if (e->major == cuda->major && e->minor == cuda->minor && !strcmp(e->source, source)) {
            *out = e->kernels;
            return load_kernels(out); /* it may have been made for another GPU of the kind */
        }
    return add(cuda, source, has_vector, out);
}
