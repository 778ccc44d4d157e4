/* Recorded programs: a step as one CUDA graph, or as one kernel where it is small (small.cuh). */
#include "engine/cuda/core.cuh"

/* One of the two. */
typedef struct program {
    cudaGraphExec_t graph;
    lki_cuda_small *small;
} program;

lk_status lki_cuda_record_begin(lk_engine *engine)
{
    lki_cuda *cuda = lki_cuda_enter(engine);
    LKI_TRY(lki_cuda_join(cuda));
    LKI_CUDA(cudaStreamBeginCapture(cuda->compute, cudaStreamCaptureModeThreadLocal));
    cuda->notes = (lki_cuda_notes *)lki_host->alloc(sizeof *cuda->notes, "notes of a recording");
    cuda->recording = true; /* without notes it becomes a graph */
    return LK_OK;
}

static lk_status instantiate(lki_cuda *cuda, cudaGraph_t graph, cudaGraphExec_t *out)
{
    cudaError_t error = cudaGraphInstantiate(out, graph, 0);
    if (error != cudaSuccess) return lki_cuda_error(error, "a CUDA graph of the step");
    error = cudaGraphUpload(*out, cuda->compute);
    if (error == cudaSuccess) return LK_OK;
    cudaGraphExecDestroy(*out);
    return lki_cuda_error(error, "a CUDA graph of the step on the GPU");
}

static lk_status make_program(lki_cuda *cuda, cudaGraph_t graph, void **out)
{
    program *made = (program *)lki_host->alloc(sizeof *made, "a recorded program");
    if (!made) return LK_ERR_NOMEM;
    lk_status status = lki_cuda_small_create(cuda, graph, &made->small);
    if (status == LK_OK && !made->small && cuda->only_small)
        status = lki_cuda_fail(LK_ERR_UNSUPPORTED, "the step is not one kernel: %d ops have a place in one",
                               cuda->notes ? cuda->notes->count : 0);
    if (status == LK_OK && !made->small) status = instantiate(cuda, graph, &made->graph);
    if (status == LK_OK) cuda->paths[made->small ? LKI_CUDA_PATH_ONE_KERNEL : LKI_CUDA_PATH_GRAPH].entered++;
    if (status == LK_OK)
        *out = made;
    else
        lki_host->free(made);
    return status;
}

lk_status lki_cuda_record_end(lk_engine *engine, void **out)
{
    lki_cuda *cuda = lki_cuda_enter(engine);
    *out = NULL;
    lk_status status = lki_cuda_join(cuda);
    cudaGraph_t graph = NULL;
    cuda->recording = false;
    cudaError_t error = cudaStreamEndCapture(cuda->compute, &graph);
    if (status == LK_OK && error != cudaSuccess) status = lki_cuda_error(error, "recording the step");
    if (status == LK_OK) status = make_program(cuda, graph, out);
    if (graph) cudaGraphDestroy(graph);
    lki_host->free(cuda->notes);
    cuda->notes = NULL;
    return status;
}

lk_status lki_cuda_replay(lk_engine *engine, void *recorded, lk_generator *generator)
{
    lki_cuda *cuda = lki_cuda_enter(engine);
    const program *p = (const program *)recorded;
    if (p->small) return lki_cuda_small_replay(cuda, p->small, generator);
    LKI_TRY(lki_cuda_begin_step(engine, generator));
    LKI_CUDA(cudaGraphLaunch(p->graph, cuda->compute));
    return LK_OK;
}

void lki_cuda_program_free(lk_engine *engine, void *recorded)
{
    program *p = (program *)recorded;
    if (!p) return;
    cudaStreamSynchronize(lki_cuda_enter(engine)->compute);
    if (p->graph) cudaGraphExecDestroy(p->graph);
    lki_cuda_small_free(p->small);
    lki_host->free(p);
}
