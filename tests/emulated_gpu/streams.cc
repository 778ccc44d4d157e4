/* Streams, events, and graphs of captured work. */
#include "devices.h"
#include "gpu.h"

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <vector>

using namespace lkt_gpu;

namespace
{

/* Something in a stream, or in a graph: work, or the wait for an event. In a graph `lane` tells the streams
 * apart that took part in the capture. */
struct item {
    work run;
    CUevent_st *event; /* recorded or waited for; NULL for work */
    bool waits;
    uint64_t number;       /* which recording of the event */
    CUstream_st *recorder; /* where that is to be found */
    size_t position;       /* of the recording, in a graph */
    int lane;              /* of the item, in a graph */
    int recorded_lane;
};

struct capture {
    std::vector<item> items;
    std::vector<CUstream_st *> streams; /* by lane */
    std::vector<size_t> last, joined;   /* by lane: items up to which there are, and were waited for */
};

thread_local int captures; /* that this thread has begun */

} // namespace

struct CUstream_st {
    int device;
    std::deque<item> items;
    std::shared_ptr<capture> captured;
    int lane;
};

struct CUevent_st {
    int device;
    uint64_t asked, done; /* recordings */
    CUstream_st *recorder;
    std::shared_ptr<capture> captured; /* the last recording was a captured one */
    int lane;
    size_t position;
};

struct CUgraph_st {
    std::shared_ptr<capture> captured;
};

struct CUgraphExec_st {
    std::shared_ptr<capture> captured;
    void *memory; /* of the device: it has a copy of the graph */
};

namespace
{

std::set<CUstream_st *> streams;

CUstream_st *stream_of(cudaStream_t stream)
{
    static std::map<int, CUstream_st> standard; /* by device */
    if (stream && !streams.count(stream)) refuse("a stream that is none");
    if (stream) return stream;
    CUstream_st *found = &standard[current_device()];
    found->device = current_device();
    return found;
}

/* Does what is in a stream, up to a recording where `event` is given. */
void drain(CUstream_st *stream, CUevent_st *event = NULL, uint64_t number = 0)
{
    while (!stream->items.empty() && !(event && event->done >= number)) {
        item next = stream->items.front();
        stream->items.pop_front();
        if (next.waits) {
            if (next.event->done < next.number) drain(next.recorder, next.event, next.number);
        } else if (next.event) {
            if (next.event->done < next.number) next.event->done = next.number;
        } else {
            next.run();
        }
    }
}

/* ---- Graphs ---- */

/* A launched graph: how far each of its lanes is. */
struct run_of {
    const capture *graph;
    std::vector<std::vector<size_t>> lanes;
    std::vector<size_t> next;
};

/* One lane, up to and with item `last`. */
void run_lane(run_of *r, int lane, size_t last)
{
    size_t &next = r->next[(size_t)lane];
    const std::vector<size_t> &own = r->lanes[(size_t)lane];
    while (next < own.size() && own[next] <= last) {
        const item &i = r->graph->items[own[next++]];
        if (i.waits)
            run_lane(r, i.recorded_lane, i.position);
        else if (!i.event)
            i.run();
    }
}

void run_graph(const capture *graph)
{
    if (!is_reverse()) {
        for (const item &i : graph->items)
            if (!i.event) i.run();
        return;
    }
    size_t count = graph->streams.size();
    run_of r = {graph, std::vector<std::vector<size_t>>(count), std::vector<size_t>(count, 0)};
    for (size_t i = 0; i < graph->items.size(); i++) r.lanes[(size_t)graph->items[i].lane].push_back(i);
    for (size_t lane = 0; lane < count; lane++) run_lane(&r, (int)lane, SIZE_MAX);
}

size_t append(CUstream_st *stream, item next)
{
    capture *c = stream->captured.get();
    next.lane = stream->lane;
    c->items.push_back(next);
    c->last[(size_t)stream->lane] = c->items.size();
    return c->items.size() - 1;
}

void join_capture(CUstream_st *stream, const std::shared_ptr<capture> &captured)
{
    stream->captured = captured;
    stream->lane = (int)captured->streams.size();
    captured->streams.push_back(stream);
    captured->last.push_back(0);
    captured->joined.push_back(0);
}

cudaError_t wait_captured(CUstream_st *stream, CUevent_st *event)
{
    if (!event->captured || (stream->captured && stream->captured != event->captured))
        return remember(cudaErrorStreamCaptureIsolation);
    if (!stream->captured) join_capture(stream, event->captured);
    item next = {};
    next.event = event;
    next.waits = true;
    next.position = event->position;
    next.recorded_lane = event->lane;
    append(stream, next);
    size_t &joined = stream->captured->joined[(size_t)event->lane];
    if (joined < event->position + 1) joined = event->position + 1;
    return cudaSuccess;
}

} // namespace

bool lkt_gpu::is_capturing(void)
{
    return captures > 0;
}

int lkt_gpu::device_of(cudaStream_t stream)
{
    return stream_of(stream)->device;
}

void lkt_gpu::finish_all(void)
{
    for (CUstream_st *stream : streams) drain(stream);
}

cudaError_t lkt_gpu::enqueue(cudaStream_t handle, const work &run)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    CUstream_st *stream = stream_of(handle);
    if (stream->device != current_device()) return remember(cudaErrorInvalidResourceHandle);
    item next = {};
    next.run = run;
    if (stream->captured) {
        append(stream, next);
        return cudaSuccess;
    }
    stream->items.push_back(next);
    if (!is_reverse() || !handle) drain(stream);
    return cudaSuccess;
}

/* ---- Streams ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (flags != cudaStreamNonBlocking) refuse("streams that wait for the default stream are not emulated");
    *stream = new CUstream_st();
    (*stream)->device = current_device();
    streams.insert(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    CUstream_st *stream = stream_of(handle);
    if (stream->captured) return remember(cudaErrorStreamCaptureUnsupported);
    drain(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return cudaStreamSynchronize(stream);
}

cudaError_t cudaDeviceSynchronize(void)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    finish_all();
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    drain(stream_of(stream));
    streams.erase(stream);
    delete stream;
    return cudaSuccess;
}

/* ---- Events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    *event = new CUevent_st();
    (*event)->device = current_device();
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    finish_all(); /* somebody may still wait for it */
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    CUstream_st *stream = stream_of(handle);
    if (event->device != stream->device) return remember(cudaErrorInvalidResourceHandle);
    item next = {};
    next.event = event;
    event->captured = stream->captured;
    if (stream->captured) {
        event->position = append(stream, next);
        event->lane = stream->lane;
        return cudaSuccess;
    }
    next.number = ++event->asked;
    event->recorder = stream;
    stream->items.push_back(next);
    if (!is_reverse()) drain(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    CUstream_st *stream = stream_of(handle);
    if (stream->captured || event->captured) return wait_captured(stream, event);
    if (!event->asked) return cudaSuccess;
    item next = {};
    next.event = event;
    next.waits = true;
    next.number = event->asked;
    next.recorder = event->recorder;
    stream->items.push_back(next);
    if (!is_reverse()) drain(stream);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    if (event->captured) return remember(cudaErrorCapturedEvent);
    if (event->done < event->asked) drain(event->recorder, event, event->asked);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return cudaEventSynchronize(event);
}

/* ---- Capture ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    CUstream_st *stream = stream_of(handle);
    if (stream->captured || !handle) return remember(cudaErrorStreamCaptureUnsupported);
    join_capture(stream, std::make_shared<capture>());
    captures++;
    return cudaSuccess;
}

/* Every stream that took part must have been waited for, at its end. */
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph)
{
    std::lock_guard<std::recursive_mutex> guard(lock);
    CUstream_st *stream = stream_of(handle);
    std::shared_ptr<capture> c = stream->captured;
    *graph = NULL;
    if (!c || stream->lane != 0) return remember(cudaErrorStreamCaptureUnmatched);
    bool joined = true;
    for (size_t lane = 0; lane < c->streams.size(); lane++) {
        joined = joined && (lane == 0 || c->joined[lane] >= c->last[lane]);
        c->streams[lane]->captured.reset();
    }
    captures--;
    if (!joined) return remember(cudaErrorStreamCaptureUnjoined);
    *graph = new CUgraph_st{c};
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *executable, cudaGraph_t graph, unsigned long long)
{
    void *memory;
    cudaError_t error = cudaMalloc(&memory, 64 << 10);
    if (error == cudaSuccess) *executable = new CUgraphExec_st{graph->captured, memory};
    return error;
}

/* Work alone is a node; events are edges. */
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    if (nodes) refuse("the nodes of a graph can be counted, not had");
    *count = 0;
    for (const item &i : graph->captured->items) *count += !i.event;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t)
{
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream)
{
    std::shared_ptr<capture> graph = executable->captured;
    return enqueue(stream, [graph] { run_graph(graph.get()); });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable)
{
    cudaFree(executable->memory);
    delete executable;
    return cudaSuccess;
}
