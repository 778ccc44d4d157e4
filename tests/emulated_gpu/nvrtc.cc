/* libnvrtc: compiles a kernel's source with the host's C++ compiler.
 *
 * The sources are those that the engine writes (src/engine/cuda/source.cu): no headers, no barriers, three
 * instructions of the GPU's own, which become calls of the emulator. An image is its length and a shared
 * library. Where LOCKSTEP_EMULATED_CACHE names a folder, images are kept there for other processes. */
#include <nvrtc.h>

#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

struct _nvrtcProgram {
    std::string source, log, image;
};

namespace
{

/* What a kernel of the host finds: place and entry are those of gpu.h. */
const char prelude[] = R"(
typedef __SIZE_TYPE__ size_t;
struct lkt_gpu_place {
    struct { unsigned x, y, z; } thread, block, block_size, grid_size;
    float (*from_f16)(unsigned short bits);
    unsigned short (*to_f16)(float value), (*to_bf16)(float value);
};
extern "C" { lkt_gpu_place *lkt_gpu_here; }
struct lkt_gpu_entry { int count; const size_t *nbytes; void (*call)(void **arguments); };
#define __device__
#define __global__
#define __launch_bounds__(...)
#define threadIdx lkt_gpu_here->thread
#define blockIdx lkt_gpu_here->block
#define blockDim lkt_gpu_here->block_size
#define gridDim lkt_gpu_here->grid_size
extern "C" {
#define ONE(name) double name(double); float name##f(float);
ONE(exp) ONE(log) ONE(sqrt) ONE(sin) ONE(cos) ONE(erf) ONE(tanh) ONE(log1p) ONE(expm1) ONE(fabs) ONE(floor) ONE(ceil) ONE(rint)
double pow(double, double);
float powf(float, float);
}
template <typename To, typename From> static inline To lkt_gpu_bits(From from)
{
    To to;
    __builtin_memcpy(&to, &from, sizeof to);
    return to;
}
#define __uint_as_float lkt_gpu_bits<float, unsigned>
#define __longlong_as_double lkt_gpu_bits<double, long long>
template <int... I> struct lkt_gpu_numbers {};
template <typename F> struct lkt_gpu_call;
template <typename... P> struct lkt_gpu_call<void(P...)> {
    static constexpr int count = sizeof...(P);
    static constexpr size_t nbytes[] = {sizeof(P)...};
    template <void (*KERNEL)(P...), int... I> static void at(void **a, lkt_gpu_numbers<I...>)
    {
        KERNEL(*(P *)a[I]...);
    }
    template <void (*KERNEL)(P...)> static void call(void **a)
    {
        at<KERNEL>(a, lkt_gpu_numbers<__integer_pack((int)sizeof...(P))...>());
    }
};
#define LKT_GPU_ENTRY(kernel) \
    extern "C" { extern const lkt_gpu_entry lkt_gpu_entry_##kernel; const lkt_gpu_entry lkt_gpu_entry_##kernel = { \
        lkt_gpu_call<decltype(kernel)>::count, lkt_gpu_call<decltype(kernel)>::nbytes, \
        lkt_gpu_call<decltype(kernel)>::call<kernel>}; }
#line 1 "lockstep.cu"
)";

const struct {
    const char *instruction, *call;
} instructions[] = {
    {"asm(\"cvt.f32.f16 %0, %1;\" : \"=f\"(y) : \"h\"(x));", "y = lkt_gpu_here->from_f16(x);"},
    {"asm(\"cvt.rn.bf16.f32 %0, %1;\" : \"=h\"(y) : \"f\"(x));", "y = lkt_gpu_here->to_bf16(x);"},
    {"asm(\"cvt.rn.f16.f32 %0, %1;\" : \"=h\"(y) : \"f\"(x));", "y = lkt_gpu_here->to_f16(x);"},
};

/* The source as the host's compiler takes it: `extern "C" __global__ void ... name(` is a kernel. */
std::string host_source(const std::string &source)
{
    std::string text = source, entries;
    for (const auto &each : instructions)
        for (size_t at; (at = text.find(each.instruction)) != std::string::npos;)
            text.replace(at, strlen(each.instruction), each.call);
    const char mark[] = "extern \"C\" __global__ void";
    for (size_t at = 0; (at = text.find(mark, at)) != std::string::npos;) {
        at += strlen(mark);
        size_t bounds = text.find("__launch_bounds__", at), open = text.find('(', at);
        if (bounds < open) open = text.find('(', open + 1);
        size_t begin = open;
        while (isalnum((unsigned char)text[begin - 1]) || text[begin - 1] == '_') begin--;
        entries += "LKT_GPU_ENTRY(" + text.substr(begin, open - begin) + ")\n";
    }
    return prelude + text + entries;
}

bool read_file(const std::string &path, std::string *out)
{
    FILE *file = fopen(path.c_str(), "rb");
    char buffer[1 << 14];
    out->clear();
    if (!file) return false;
    for (size_t n; (n = fread(buffer, 1, sizeof buffer, file)) > 0;) out->append(buffer, n);
    fclose(file);
    return true;
}

bool write_file(const std::string &path, const std::string &text)
{
    FILE *file = fopen(path.c_str(), "wb");
    if (!file) return false;
    bool written = fwrite(text.data(), 1, text.size(), file) == text.size();
    return fclose(file) == 0 && written;
}

/* Runs the compiler with what it says in `log`. */
bool run_compiler(const std::string &source, const std::string &library, const std::string &log)
{
#ifdef __SANITIZE_ADDRESS__
    const char *check = "-fsanitize=address";
#else
    const char *check = "-fno-sanitize=all";
#endif
    const char *command[] = {LKT_GPU_COMPILER, "-std=gnu++17", "-O1",           "-w", check,
                             "-shared",        "-fPIC",        "-nostdlib",     "-x", "c++",
                             source.c_str(),   "-o",           library.c_str(), NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    pid_t child;
    int status = -1;
    bool started = posix_spawn(&child, command[0], &actions, NULL, (char **)command, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    return started && waitpid(child, &status, 0) == child && status == 0;
}

bool compile(nvrtcProgram program, const std::string &source)
{
    char folder[] = "/tmp/lockstep-kernel-XXXXXX";
    std::string library;
    if (!mkdtemp(folder)) return false;
    std::string base = folder, in = base + "/lockstep.cc", out = base + "/lockstep.so", log = base + "/log";
    bool made = write_file(in, source) && run_compiler(in, out, log) && read_file(out, &library);
    read_file(log, &program->log);
    unlink(in.c_str());
    unlink(out.c_str());
    unlink(log.c_str());
    rmdir(folder);
    size_t nbytes = library.size();
    program->image = std::string((const char *)&nbytes, sizeof nbytes) + library;
    return made;
}

/* ---- Kept images: the source and a zero, then the image ---- */

std::string kept_path(const std::string &source)
{
    const char *folder = getenv("LOCKSTEP_EMULATED_CACHE");
    char name[32];
    if (!folder || !*folder) return "";
    uint64_t hash = 14695981039346656037u;
    for (unsigned char c : source) hash = (hash ^ c) * 1099511628211u;
    snprintf(name, sizeof name, "/%016llx", (unsigned long long)hash);
    mkdir(folder, 0777);
    return std::string(folder) + name;
}

bool find_kept(const std::string &path, const std::string &source, std::string *image)
{
    std::string all;
    if (path.empty() || !read_file(path, &all) || all.size() <= source.size()) return false;
    if (all.compare(0, source.size(), source) != 0 || all[source.size()] != '\0') return false;
    *image = all.substr(source.size() + 1);
    return true;
}

/* Under another name first: another process may read it. */
void keep(const std::string &path, const std::string &source, const std::string &image)
{
    if (path.empty()) return;
    std::string fresh = path + "." + std::to_string(getpid());
    if (!write_file(fresh, source + std::string(1, '\0') + image) || rename(fresh.c_str(), path.c_str()) != 0)
        unlink(fresh.c_str());
}

} // namespace

nvrtcResult nvrtcCreateProgram(nvrtcProgram *program, const char *source, const char *, int,
                               const char *const *, const char *const *)
{
    *program = new _nvrtcProgram{source, "", ""};
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram *program)
{
    delete *program;
    *program = NULL;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int, const char *const *)
{
    std::string source = host_source(program->source), path = kept_path(source);
    if (find_kept(path, source, &program->image)) return NVRTC_SUCCESS;
    if (!compile(program, source)) return NVRTC_ERROR_COMPILATION;
    keep(path, source, program->image);
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, size_t *nbytes)
{
    *nbytes = program->log.size() + 1;
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char *log)
{
    memcpy(log, program->log.c_str(), program->log.size() + 1);
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, size_t *nbytes)
{
    *nbytes = program->image.size();
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char *image)
{
    memcpy(image, program->image.data(), program->image.size());
    return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetPTXSize(nvrtcProgram program, size_t *nbytes)
{
    return nvrtcGetCUBINSize(program, nbytes);
}

nvrtcResult nvrtcGetPTX(nvrtcProgram program, char *image)
{
    return nvrtcGetCUBIN(program, image);
}

const char *nvrtcGetErrorString(nvrtcResult result)
{
    return result == NVRTC_SUCCESS ? "NVRTC_SUCCESS" : "NVRTC_ERROR_COMPILATION";
}
