/* Gloo behind the comm's ops.
 *
 * Gloo's collectives block, so a worker thread runs them one after the other, in the order they were started.
 * A caller that waits for the only one outstanding runs it on its own thread: nothing is handed over where
 * there is nothing to overlap. */
#include "comm/comm.h"
#include "comm/comm_own.h"

#include "base/clock.h"
extern "C" {
#include "base/memory.h"
#include "base/status.h"
}
#include "comm/all_reduce_choice.h"
#include "comm/gloo/gloo_device.h"
#include "comm/reduction.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include <arpa/inet.h>
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>

namespace
{

constexpr int64_t default_join_timeout_ms = 60000;
constexpr int default_name_wait_ms = 3000;

/* Gloo's own deadlines count the time in which the process is stopped: they are out of reach, and the comm's
 * worker looks after those who wait. */
constexpr std::chrono::milliseconds gloo_patience = std::chrono::hours(24 * 365);

/* Gloo's rendezvous over our store; a failure is an exception, as Gloo expects. */
class RendezvousStore : public gloo::rendezvous::Store
{
  public:
    RendezvousStore(lki_store_client *store, const char *prefix, int64_t timeout_ms, WatchedDevice &device)
        : store_(store), prefix_(prefix ? prefix : ""), timeout_ms_(timeout_ms), device_(device)
    {
    }

    /* Gloo publishes the host's name before it makes its pairs, and their addresses afterwards. */
    void set(const std::string &key, const std::vector<char> &data) override
    {
        if (key.compare(0, 5, "rank_") == 0)
            device_.check();
        else
            device_.pairs_are_made();
        check(lki_store_set(store_, (prefix_ + key).c_str(), data.data(), data.size()));
    }

    std::vector<char> get(const std::string &key) override
    {
        device_.check();
        char *value = nullptr;
        size_t nbytes = 0;
        check(lki_store_wait(store_, (prefix_ + key).c_str(), timeout_ms_, &value, &nbytes));
        std::vector<char> data(value, value + nbytes);
        lki_free(value);
        return data;
    }

    void wait(const std::vector<std::string> &keys) override
    {
        for (const auto &key : keys) get(key);
    }

    void wait(const std::vector<std::string> &keys, const std::chrono::milliseconds &) override
    {
        wait(keys);
    }

  private:
    static void check(lk_status status)
    {
        if (status != LK_OK) throw std::runtime_error(lk_error());
    }

    lki_store_client *store_;
    std::string prefix_;
    int64_t timeout_ms_;
    WatchedDevice &device_;
};

/* The job has failed, in the monitor's words. */
class JobFailed : public std::runtime_error
{
  public:
    using std::runtime_error::runtime_error;
};

/* Keeps signals from this thread and from those it starts meanwhile: they are the program's. Gloo writes to
 * connections that may be gone, which would be the end of the process: that signal is taken out again. */
class SignalsOff
{
  public:
    explicit SignalsOff(bool all)
    {
        sigset_t set;
        sigemptyset(&set);
        if (all) sigfillset(&set);
        sigaddset(&set, SIGPIPE);
        pthread_sigmask(SIG_BLOCK, &set, &before_);
    }
    ~SignalsOff()
    {
        sigset_t broken;
        struct timespec at_once = {};
        sigemptyset(&broken);
        sigaddset(&broken, SIGPIPE);
        if (!sigismember(&before_, SIGPIPE))
            while (sigtimedwait(&broken, nullptr, &at_once) > 0) continue;
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }

  private:
    sigset_t before_;
};

/* An open TCP connection of this process. */
struct connection {
    int fd;
    struct sockaddr_storage local, remote;

    bool operator==(const connection &other) const
    {
        return fd == other.fd && memcmp(&local, &other.local, sizeof local) == 0 &&
               memcmp(&remote, &other.remote, sizeof remote) == 0;
    }
};

bool read_connection(int fd, connection *out)
{
    socklen_t local_nbytes = sizeof out->local, remote_nbytes = sizeof out->remote;
    memset(out, 0, sizeof *out);
    out->fd = fd;
    return getsockname(fd, (struct sockaddr *)&out->local, &local_nbytes) == 0 &&
           getpeername(fd, (struct sockaddr *)&out->remote, &remote_nbytes) == 0 &&
           (out->local.ss_family == AF_INET || out->local.ss_family == AF_INET6);
}

int port_of(const struct sockaddr_storage &address)
{
    return ntohs(reinterpret_cast<const struct sockaddr_in *>(&address)
                     ->sin_port); /* at the same place in both families */
}

/* All connections of this process, but for those to or of the store. */
std::vector<connection> list_connections(int store_port)
{
    std::vector<connection> found;
    DIR *folder = opendir("/proc/self/fd");
    if (!folder) return found;
    while (struct dirent *entry = readdir(folder)) {
        connection one;
        if (entry->d_name[0] == '.' || !read_connection(atoi(entry->d_name), &one)) continue;
        if (port_of(one.local) != store_port && port_of(one.remote) != store_port) found.push_back(one);
    }
    closedir(folder);
    return found;
}

/* The buffers that Gloo's collectives wait for, so that their waits can be ended. A connection that closes
 * while a message is being sent does not always end Gloo's wait for that message. */
class Waits
{
  public:
    void add(gloo::transport::UnboundBuffer *buffer)
    {
        std::lock_guard<std::mutex> hold(lock_);
        buffers_.push_back(buffer);
    }
    void remove(gloo::transport::UnboundBuffer *buffer)
    {
        std::lock_guard<std::mutex> hold(lock_);
        buffers_.erase(std::find(buffers_.begin(), buffers_.end(), buffer));
    }
    /* Those under way, and all that come later. */
    void end()
    {
        std::lock_guard<std::mutex> hold(lock_);
        ended_ = true;
        for (auto *buffer : buffers_) {
            buffer->abortWaitSend();
            buffer->abortWaitRecv();
        }
    }
    /* Gloo's collectives take a wait that was ended for one that succeeded. */
    void check(bool succeeded) const
    {
        if (!succeeded || ended_) throw std::runtime_error("the wait was ended");
    }

  private:
    std::mutex lock_;
    std::atomic<bool> ended_{false};
    std::vector<gloo::transport::UnboundBuffer *> buffers_;
};

/* A buffer of Gloo's whose waits can be ended. */
class WatchedBuffer : public gloo::transport::UnboundBuffer
{
  public:
    WatchedBuffer(std::unique_ptr<gloo::transport::UnboundBuffer> inner, std::shared_ptr<Waits> waits)
        : UnboundBuffer(inner->ptr, inner->size), inner_(std::move(inner)), waits_(std::move(waits))
    {
        waits_->add(inner_.get());
    }
    ~WatchedBuffer() override
    {
        waits_->remove(inner_.get());
    }
    bool waitRecv(int *rank, std::chrono::milliseconds timeout) override
    {
        waits_->check(true);
        waits_->check(inner_->waitRecv(rank, timeout));
        return true;
    }
    bool waitSend(int *rank, std::chrono::milliseconds timeout) override
    {
        waits_->check(true);
        waits_->check(inner_->waitSend(rank, timeout));
        return true;
    }
    void abortWaitRecv() override
    {
        inner_->abortWaitRecv();
    }
    void abortWaitSend() override
    {
        inner_->abortWaitSend();
    }
    void send(int rank, uint64_t slot, size_t offset, size_t nbytes) override
    {
        inner_->send(rank, slot, offset, nbytes);
    }
    void recv(int rank, uint64_t slot, size_t offset, size_t nbytes) override
    {
        inner_->recv(rank, slot, offset, nbytes);
    }
    void recv(std::vector<int> ranks, uint64_t slot, size_t offset, size_t nbytes) override
    {
        inner_->recv(std::move(ranks), slot, offset, nbytes);
    }

  private:
    std::unique_ptr<gloo::transport::UnboundBuffer> inner_;
    std::shared_ptr<Waits> waits_;
};

/* Gloo's connections, with buffers whose waits can be ended. */
class WatchedTransport : public gloo::transport::Context
{
  public:
    WatchedTransport(std::shared_ptr<gloo::transport::Context> inner, std::shared_ptr<Waits> waits)
        : Context(inner->rank, inner->size), inner_(std::move(inner)), waits_(std::move(waits))
    {
        setTimeout(inner_->getTimeout());
    }
    std::unique_ptr<gloo::transport::Pair> &getPair(int rank) override
    {
        return inner_->getPair(rank);
    }
    std::unique_ptr<gloo::transport::Pair> &createPair(int rank) override
    {
        return inner_->createPair(rank);
    }
    std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void *ptr, size_t size) override
    {
        return std::unique_ptr<gloo::transport::UnboundBuffer>(
            new WatchedBuffer(inner_->createUnboundBuffer(ptr, size), waits_));
    }
    void set_wait_timeout(std::chrono::milliseconds timeout)
    {
        inner_->setTimeout(timeout);
    }

  private:
    std::shared_ptr<gloo::transport::Context> inner_;
    std::shared_ptr<Waits> waits_;
};

/* Gloo's own, with the timeout of those of its waits that are given none within reach, and an end to them. */
class Context : public gloo::rendezvous::Context
{
  public:
    using gloo::rendezvous::Context::Context;
    /* Once it is connected. */
    void watch()
    {
        watched_ = std::make_shared<WatchedTransport>(transportContext_, waits_);
        transportContext_ = watched_;
    }
    void set_wait_timeout(std::chrono::milliseconds timeout)
    {
        watched_->set_wait_timeout(timeout);
    }
    void end_waits()
    {
        waits_->end();
    }

  private:
    std::shared_ptr<Waits> waits_ = std::make_shared<Waits>();
    std::shared_ptr<WatchedTransport> watched_;
};

/* What a request's scratch[0] says. INLINE waits for its caller, who will run it. */
enum work_state : uint64_t { QUEUED, INLINE, RUNNING, FINISHED };

struct gloo_comm {
    lk_comm base; /* first: a lk_comm * is a gloo_comm * */
    lki_comm own;
    std::shared_ptr<Context> context;
    lki_monitor *monitor;
    int name_wait_ms; /* for the store to say who has died */
    std::thread worker;
    std::mutex lock;
    std::condition_variable wanted;  /* the worker waits for something to do */
    std::condition_variable settled; /* a caller waits for its collective */
    lk_comm_request *queue[LK_COMM_MAX_REQUESTS];
    uint64_t queue_begin, queue_end; /* counted through the comm's life */
    bool busy;                       /* somebody runs a collective */
    bool stopping;
    bool failed;
    bool timed_out;       /* failed because a caller was in Gloo as long as the comm's timeout */
    uint64_t looked_at;   /* the collective that the worker saw a caller in, */
    int64_t looks;        /* and how often, once per second */
    std::string sentence; /* of what failed */
    std::vector<char> staging;
    std::vector<connection> connections; /* Gloo's */
    std::atomic<uint64_t> started, finished;
    std::atomic<int> kind;
    std::atomic<int64_t> count;
};

gloo_comm *self_of(lk_comm *comm)
{
    return reinterpret_cast<gloo_comm *>(comm);
}

gloo::AllreduceOptions::Func reduction(const lk_comm_op &op)
{
    lk_dtype dtype = op.dtype;
    lk_reduce reduce = op.reduce == LK_REDUCE_AVG ? LK_REDUCE_SUM : op.reduce;
    return [dtype, reduce](void *out, const void *a, const void *b, size_t count) {
        const void *in[] = {a, b};
        lki_reduce(out, in, 2, (int64_t)count, dtype, reduce, 1);
    };
}

/* Gloo's options are templates over the element; only its size matters to them. */
template <typename T>
void set_buffers(gloo::AllreduceOptions &options, const void *in, void *out, size_t count)
{
    if (in != out) options.setInput(const_cast<T *>(static_cast<const T *>(in)), count);
    options.setOutput(static_cast<T *>(out), count);
}

/* The ring's 2 (size - 1) messages a rank, one after the other, are worth their latencies only where each of
 * them is large; the cube has 2 log2(size) and moves as many bytes. The waits
 * of Gloo's cube are given no timeout. */
void choose_algorithm(gloo_comm *self, gloo::AllreduceOptions &options, size_t nbytes)
{
    if (!lki_gloo_takes_cube(self->base.size, (double)nbytes)) return;
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::BCUBE);
    self->context->set_wait_timeout(gloo_patience);
}

/* Messages meet by their tags. Gloo ends the process when one is longer than the buffer that waits for it; by
 * a tag that also says what the collective is, those of ranks that disagree never meet, and the monitor finds
 * out why nothing moves. */
uint32_t tag_of(const lk_comm_op &op, uint64_t seq)
{
    const uint64_t parts[] = {(uint64_t)op.kind,  (uint64_t)op.reduce, (uint64_t)op.dtype,
                              (uint64_t)op.count, (uint64_t)op.root,   seq};
    uint64_t hash = 14695981039346656037u;
    for (uint64_t part : parts) hash = (hash ^ part) * 1099511628211u;
    return (uint32_t)(seq << 16) | (uint32_t)(hash >> 48);
}

void all_reduce(gloo_comm *self, const lk_comm_op &op, uint64_t seq, const void *in, void *out, int64_t count)
{
    gloo::AllreduceOptions options(self->context);
    switch (lk_dtype_nbytes(op.dtype)) {
    case 1: set_buffers<uint8_t>(options, in, out, (size_t)count); break;
    case 2: set_buffers<uint16_t>(options, in, out, (size_t)count); break;
    case 4: set_buffers<uint32_t>(options, in, out, (size_t)count); break;
    default: set_buffers<uint64_t>(options, in, out, (size_t)count); break;
    }
    options.setReduceFunction(reduction(op));
    options.setTag(tag_of(op, seq));
    options.setTimeout(gloo_patience);
    choose_algorithm(self, options, (size_t)count * lk_dtype_nbytes(op.dtype));
    gloo::allreduce(options);
    if (op.reduce == LK_REDUCE_AVG) lki_scale(out, count, op.dtype, self->base.size);
}

/* This Gloo has no reduce-scatter of any count: reduce all of it aside and keep the own piece. */
void reduce_scatter(gloo_comm *self, const lk_comm_op &op, uint64_t seq)
{
    size_t piece = (size_t)op.count * lk_dtype_nbytes(op.dtype);
    if (self->staging.size() < piece * (size_t)self->base.size)
        self->staging.resize(piece * (size_t)self->base.size);
    all_reduce(self, op, seq, op.send, self->staging.data(), op.count * self->base.size);
    memcpy(op.recv, self->staging.data() + piece * (size_t)self->base.rank, piece);
}

void run_collective(gloo_comm *self, const lk_comm_request *request)
{
    const lk_comm_op &op = request->op;
    size_t nbytes = (size_t)op.count * lk_dtype_nbytes(op.dtype);
    if (op.kind == LK_COMM_BARRIER) {
        gloo::BarrierOptions options(self->context);
        options.setTag(tag_of(op, request->seq));
        options.setTimeout(gloo_patience);
        gloo::barrier(options);
    } else if (op.count == 0) {
        return;
    } else if (op.kind == LK_COMM_ALL_REDUCE) {
        all_reduce(self, op, request->seq, op.send, op.recv, op.count);
    } else if (op.kind == LK_COMM_REDUCE_SCATTER) {
        reduce_scatter(self, op, request->seq);
    } else if (op.kind == LK_COMM_BROADCAST) {
        gloo::BroadcastOptions options(self->context);
        options.setOutput(static_cast<char *>(op.recv), nbytes);
        options.setRoot(op.root);
        options.setTag(tag_of(op, request->seq));
        options.setTimeout(gloo_patience);
        gloo::broadcast(options);
    } else {
        gloo::AllgatherOptions options(self->context);
        char *mine = static_cast<char *>(op.recv) + nbytes * (size_t)self->base.rank;
        if (op.send != mine) memmove(mine, op.send, nbytes); /* Gloo's in-place form, whatever the caller's */
        options.setInput(mine, nbytes);
        options.setOutput(static_cast<char *>(op.recv), nbytes * (size_t)self->base.size);
        options.setTag(tag_of(op, request->seq));
        options.setTimeout(gloo_patience);
        gloo::allgather(options);
    }
}

/* Called with the lock held, and gives it up while the collective runs. */
void run_next(gloo_comm *self, std::unique_lock<std::mutex> &hold)
{
    lk_comm_request *request = self->queue[self->queue_begin % LK_COMM_MAX_REQUESTS];
    std::string sentence;
    self->busy = true;
    request->scratch[0] = RUNNING;
    hold.unlock();
    try {
        SignalsOff quiet(false);
        run_collective(self, request);
    } catch (const std::exception &error) {
        sentence = error.what();
        if (sentence.empty()) sentence = "unknown error";
    } catch (...) {
        sentence = "unknown error";
    }
    hold.lock();
    if (!sentence.empty() && !self->failed) {
        self->failed = true;
        self->sentence = sentence;
    }
    if (!self->failed) self->finished.store(request->seq);
    request->scratch[0] = FINISHED;
    self->queue_begin++;
    self->busy = false;
    self->settled.notify_all();
    if (self->queue_begin < self->queue_end) self->wanted.notify_all(); /* else let the worker sleep */
}

/* A caller that runs a collective on its own thread cannot look at the clock. The worker, which has nothing
 * to do meanwhile, counts its own turns: a process that is stopped has none. */
void look_after_caller(gloo_comm *self)
{
    if (!self->busy || self->looked_at != self->queue_begin + 1) self->looks = 0;
    self->looked_at = self->busy ? self->queue_begin + 1 : 0;
    if (!self->busy || self->failed) return;
    if (++self->looks * 1000 <= __atomic_load_n(&self->base.timeout_ms, __ATOMIC_RELAXED)) return;
    self->timed_out = true;
    self->context->end_waits();
}

void work(gloo_comm *self)
{
    std::unique_lock<std::mutex> hold(self->lock);
    auto has_work = [self] {
        return self->stopping ||
               (!self->busy && !self->failed && self->queue_begin < self->queue_end &&
                self->queue[self->queue_begin % LK_COMM_MAX_REQUESTS]->scratch[0] != INLINE);
    };
    for (;;) {
        bool wanted = self->wanted.wait_for(hold, std::chrono::seconds(1), has_work);
        if (self->stopping) return;
        if (wanted)
            run_next(self, hold);
        else
            look_after_caller(self);
    }
}

/* Names the rank that failed where the monitor knows it; Gloo itself knows only addresses. */
lk_status failure(gloo_comm *self)
{
    char text[512];
    if (self->monitor && lki_monitor_failure(self->monitor, self->name_wait_ms, text, sizeof text))
        return lki_fail(LK_ERR_PEER, "%s", text);
    return lki_fail(LK_ERR_PEER, "gloo: %s", self->sentence.c_str());
}

lk_status gloo_start(lk_comm *comm, lk_comm_request *request)
{
    gloo_comm *self = self_of(comm);
    std::unique_lock<std::mutex> hold(self->lock);
    if (self->failed) {
        hold.unlock();
        return failure(self);
    }
    self->kind.store((int)request->op.kind);
    self->count.store(request->op.count);
    self->started.store(request->seq);
    bool first = self->queue_begin == self->queue_end;
    request->scratch[0] = request->op.blocking && first ? INLINE : QUEUED;
    self->queue[self->queue_end++ % LK_COMM_MAX_REQUESTS] = request;
    if (request->scratch[0] == QUEUED) self->wanted.notify_all();
    return LK_OK;
}

lk_status gloo_test(lk_comm *comm, lk_comm_request *request, bool *done)
{
    gloo_comm *self = self_of(comm);
    std::unique_lock<std::mutex> hold(self->lock);
    *done = request->scratch[0] == FINISHED;
    if (*done && !self->failed) return LK_OK;
    *done = false;
    if (!self->failed || self->timed_out)
        return LK_OK; /* the comm's own deadline has come too: its report says more */
    hold.unlock();
    return failure(self);
}

lk_status gloo_pause(lk_comm *comm, lk_comm_request *request, int64_t deadline_ns)
{
    gloo_comm *self = self_of(comm);
    std::unique_lock<std::mutex> hold(self->lock);
    auto settled = [self, request] {
        return (self->failed && !self->timed_out) || (request->scratch[0] == FINISHED && !self->timed_out);
    };
    if (request->scratch[0] == INLINE) {
        run_next(self, hold);
        return LK_OK;
    }
    int64_t left_ns = deadline_ns - lki_now_ns();
    if (left_ns <= 0) return LK_OK;
    self->settled.wait_for(hold, std::chrono::nanoseconds(left_ns), settled);
    return LK_OK;
}

void gloo_progress(lk_comm *comm, int rank, lk_comm_progress *out)
{
    gloo_comm *self = self_of(comm);
    if (self->monitor) lki_monitor_progress(self->monitor, rank, out);
}

/* Closing Gloo's connections from this side does not wake its waiters. To it, a connection that is shut down
 * looks as if the peer had died: the peers then stop at once, and nearly all waits of this side; the rest of
 * them are ended. */
void shut_down(gloo_comm *self)
{
    for (const connection &known : self->connections) {
        connection now;
        if (read_connection(known.fd, &now) && now == known)
            shutdown(known.fd, SHUT_RDWR); /* the number may be another's by now */
    }
    if (self->context) self->context->end_waits();
}

void give_up(gloo_comm *self, const char *reason)
{
    {
        std::unique_lock<std::mutex> hold(self->lock);
        if (self->failed) return;
        self->failed = true;
        self->sentence = reason;
        self->settled.notify_all();
    }
    shut_down(self);
}

void gloo_abort(lk_comm *comm, const char *reason)
{
    gloo_comm *self = self_of(comm);
    char sentence[512];
    snprintf(sentence, sizeof sentence, "rank %d gave up: %.450s", comm->rank, reason);
    if (self->monitor) lki_monitor_fail(self->monitor, sentence);
    give_up(self, reason);
}

void gloo_free(lk_comm *comm)
{
    gloo_comm *self = self_of(comm);
    bool outstanding;
    {
        std::unique_lock<std::mutex> hold(self->lock);
        outstanding = self->busy;
        self->stopping = true;
        self->failed = true;
        self->wanted.notify_all();
        self->settled.notify_all();
    }
    if (outstanding) shut_down(self);
    if (self->worker.joinable()) self->worker.join();
    self->context.reset();
    delete self;
}

const lk_comm_ops gloo_ops = {
    sizeof(lk_comm_ops), "gloo",    gloo_start, gloo_test, gloo_pause, gloo_progress,
    gloo_abort,          gloo_free, nullptr,    false,     nullptr,    nullptr};

/* While it lives, a failure that the monitor hears of ends what the device connects. */
class FailureEnds
{
  public:
    FailureEnds(lki_monitor *monitor, WatchedDevice &device) : monitor_(monitor)
    {
        if (monitor_) lki_monitor_on_failure(monitor_, end, &device);
    }
    ~FailureEnds()
    {
        if (monitor_) lki_monitor_on_failure(monitor_, nullptr, nullptr);
    }

  private:
    static void end(void *device, const char *)
    {
        static_cast<WatchedDevice *>(device)->end();
    }

    lki_monitor *monitor_;
};

void connect_all(gloo_comm *self, const lki_gloo_options *options)
{
    int64_t timeout_ms = options->join_timeout_ms ? options->join_timeout_ms : default_join_timeout_ms;
    gloo::transport::tcp::attr attributes;
    if (options->interface)
        attributes.iface = options->interface;
    else if (options->host)
        attributes.hostname = options->host;
    auto watched = std::make_shared<WatchedDevice>(gloo::transport::tcp::CreateDevice(attributes));
    std::shared_ptr<gloo::transport::Device> device = watched;
    RendezvousStore store(options->store, options->prefix, timeout_ms, *watched);
    self->context = std::make_shared<Context>(options->rank, options->size);
    self->context->setTimeout(std::chrono::milliseconds(timeout_ms));
    int store_port = lki_store_port(options->store);
    std::vector<connection> before = list_connections(store_port);
    try {
        FailureEnds until_connected(options->monitor, *watched);
        self->context->connectFullMesh(store, device);
        watched->release();
    } catch (const std::exception &) {
        char text[512]; /* who has died says more than a closed connection */
        if (self->monitor && lki_monitor_failure(self->monitor, self->name_wait_ms, text, sizeof text))
            throw JobFailed(text);
        throw;
    }
    self->context->watch();
    for (const connection &one : list_connections(store_port))
        if (std::find(before.begin(), before.end(), one) == before.end()) self->connections.push_back(one);
}

} // namespace

extern "C" lk_status lki_comm_gloo_create(lk_comm **out, const lki_gloo_options *options)
{
    *out = nullptr;
    gloo_comm *self = new (std::nothrow) gloo_comm();
    if (!self) return lki_fail(LK_ERR_NOMEM, "out of memory for a comm");
    self->base.timeout_ms = options->timeout_ms;
    self->monitor = options->monitor;
    self->name_wait_ms = options->name_wait_ms ? options->name_wait_ms : default_name_wait_ms;
    lki_comm_init(&self->base, &self->own, &gloo_ops, options->rank, options->size);
    try {
        SignalsOff quiet(true);
        connect_all(self, options);
        self->worker = std::thread(work, self);
        *out = &self->base;
        return LK_OK;
    } catch (const JobFailed &error) {
        lki_fail(LK_ERR_PEER, "%s", error.what());
    } catch (const std::exception &error) {
        lki_fail(LK_ERR_PEER, "gloo: could not connect rank %d of %d: %s", options->rank, options->size,
                 error.what());
    } catch (...) {
        lki_fail(LK_ERR_PEER, "gloo: could not connect rank %d of %d", options->rank, options->size);
    }
    gloo_free(&self->base);
    return LK_ERR_PEER;
}
