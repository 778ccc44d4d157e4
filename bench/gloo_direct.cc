#include "gloo_direct.h"

#ifdef LOCKSTEP_HAVE_GLOO
#include <gloo/allreduce.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

struct direct {
    std::shared_ptr<gloo::rendezvous::Context> context;
    uint32_t tag = 0;
};

void *gloo_direct_connect(int rank, int size, const char *folder)
{
    gloo::transport::tcp::attr attributes;
    attributes.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(attributes);
    gloo::rendezvous::FileStore store(folder);
    auto *self = new direct;
    self->context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    self->context->connectFullMesh(store, device);
    return self;
}

int gloo_direct_reduce(void *context, float *data, int64_t count)
{
    direct *self = static_cast<direct *>(context);
    gloo::AllreduceOptions options(self->context);
    options.setOutput(data, (size_t)count);
    options.setTag(self->tag++);
    options.setReduceFunction(
        [](void *out, const void *a, const void *b, size_t n) { gloo::sum<float>(out, a, b, n); });
    gloo::allreduce(options);
    return 0;
}
#else
void *gloo_direct_connect(int, int, const char *)
{
    return nullptr;
}

int gloo_direct_reduce(void *, float *, int64_t)
{
    return 1;
}
#endif
