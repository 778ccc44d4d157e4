#include "step/replicas.h"

#include "base/memory.h"
#include "base/status.h"
#include "tensor/half.h"

#include <math.h>
#include <string.h>

lk_status lki_params_share(lk_comm *comm, const lk_param_list *params, bool buffers_only)
{
    for (int i = 0; i < params->count; i++) {
        lk_param *param = params->items[i].param;
        if (buffers_only && !param->is_buffer) continue;
        LKI_TRY(lki_param_pull(param));
        LKI_TRY(
            lk_comm_broadcast(comm, param->value->data, (int64_t)lk_tensor_nbytes(param->value), LK_U8, 0));
        lki_param_push(param);
    }
    return LK_OK;
}

lk_status lki_replicas_share_buffers(lki_replicas *replicas)
{
    return replicas->comm ? lki_params_share(replicas->comm, replicas->params, true) : LK_OK;
}

/* ---- Buckets ---- */

static void close_bucket(lki_replicas *replicas, int first, int last, int used)
{
    const lki_flat *flat = replicas->flat;
    lki_bucket *bucket = &replicas->ddp.buckets[replicas->ddp.bucket_count++];
    int64_t begin = flat->slices[first].offset, end = flat->slices[last].offset + flat->slices[last].count;
    *bucket =
        (lki_bucket){.comm = replicas->comm,
                     .dtype = flat->dtype,
                     .data = (char *)lki_backend_address(replicas->backend, lki_buffer_data(flat->grads)) +
                             begin * (int64_t)lk_dtype_nbytes(flat->dtype),
                     .count = end - begin,
                     .window = flat->window,
                     .params = replicas->bucket_params + used,
                     .param_count = last - first + 1};
    for (int i = first; i <= last; i++) bucket->params[i - first] = flat->slices[i].param;
}

/* From the last parameter to the first: the order in which the backward half finishes them. */
static lk_status make_buckets(lki_replicas *replicas)
{
    const lki_flat *flat = replicas->flat;
    int64_t element = (int64_t)lk_dtype_nbytes(flat->dtype), nbytes = 0;
    replicas->ddp.buckets = LKI_NEW_ARRAY(lki_bucket, flat->slice_count);
    replicas->bucket_params = LKI_NEW_ARRAY(lk_param *, flat->slice_count);
    if (!replicas->ddp.buckets || !replicas->bucket_params) return LK_ERR_NOMEM;
    for (int i = flat->slice_count - 1, last = i, used = 0; i >= 0; i--) {
        int64_t room = lki_bucket_room(replicas->ddp.bucket_count, replicas->options.bucket_nbytes);
        nbytes += flat->slices[i].count * element;
        if (nbytes < room && i > 0) continue;
        close_bucket(replicas, i, last, used);
        used += last - i + 1;
        last = i - 1;
        nbytes = 0;
    }
    return LK_OK;
}

static lk_status prepare_compression(lki_replicas *replicas)
{
    if (!replicas->options.compress) return LK_OK;
    if (replicas->flat->dtype != LK_F32)
        return lki_fail(LK_ERR_DTYPE, "only f32 gradients can be compressed");
    replicas->packed = LKI_NEW_ARRAY(uint16_t, replicas->flat->count);
    replicas->residual = LKI_NEW_ARRAY(float, replicas->flat->count);
    return replicas->packed && replicas->residual ? LK_OK : LK_ERR_NOMEM;
}

lk_status lki_replicas_init(lki_replicas *replicas, lk_comm *comm, lki_backend *backend, lki_flat *flat,
                            const lk_param_list *params, lki_replicas_options options)
{
    *replicas =
        (lki_replicas){.comm = comm, .backend = backend, .flat = flat, .params = params, .options = options};
    LKI_TRY(lki_params_share(comm, params, false));
    LKI_TRY(make_buckets(replicas));
    return prepare_compression(replicas);
}

void lki_replicas_fini(lki_replicas *replicas)
{
    lki_free(replicas->ddp.buckets);
    lki_free(replicas->bucket_params);
    lki_free(replicas->packed);
    lki_free(replicas->residual);
    *replicas = (lki_replicas){0};
}

/* ---- After the backward half ---- */

/* Sends bf16(g + r), where r is what earlier steps left out, and keeps what this one leaves out. The average
 * is the same on every rank, since all add up the same bf16 numbers. */
static lk_status average_compressed(lki_replicas *replicas, float *gradients)
{
    int64_t count = replicas->flat->count;
    for (int64_t i = 0; i < count; i++) {
        float wanted = gradients[i] + replicas->residual[i];
        replicas->packed[i] = lki_f32_to_bf16(wanted);
        float left_out = wanted - lki_bf16_to_f32(replicas->packed[i]);
        replicas->residual[i] = isfinite(left_out) ? left_out : 0; /* else it would stay so for good */
    }
    LKI_TRY(lk_comm_all_reduce(replicas->comm, replicas->packed, count, LK_BF16, LK_REDUCE_AVG));
    for (int64_t i = 0; i < count; i++) gradients[i] = lki_bf16_to_f32(replicas->packed[i]);
    return LK_OK;
}

/* Through the host: this is the way of those who do not overlap. */
lk_status lki_replicas_average(lki_replicas *replicas, lk_buffer *gradients)
{
    void *data = lki_buffer_data(gradients);
    LKI_TRY(lki_backend_pull_block(replicas->backend, data));
    if (replicas->options.compress)
        LKI_TRY(average_compressed(replicas, data));
    else
        LKI_TRY(lk_comm_all_reduce(replicas->comm, data, replicas->flat->count, replicas->flat->dtype,
                                   LK_REDUCE_AVG));
    return lki_backend_push_block(replicas->backend, data);
}

/* ---- Comparing ---- */

/* FNV-1a over 64-bit words, in four lanes that do not wait for each other: any difference in any bit shows.
 */
static uint64_t hash_bytes(const void *data, size_t nbytes)
{
    enum { LANES = 4 };
    const uint64_t basis = 14695981039346656037u, prime = 1099511628211u;
    uint64_t lanes[LANES] = {basis, basis + 1, basis + 2, basis + 3}, words[LANES], hash = basis;
    const unsigned char *bytes = data;
    size_t i = 0;
    for (; i + sizeof words <= nbytes; i += sizeof words) {
        memcpy(words, bytes + i, sizeof words);
        for (int k = 0; k < LANES; k++) lanes[k] = (lanes[k] ^ words[k]) * prime;
    }
    for (int k = 0; k < LANES; k++) hash = (hash ^ lanes[k]) * prime;
    for (; i < nbytes; i++) hash = (hash ^ bytes[i]) * prime;
    return hash;
}

lk_status lki_replicas_check(lki_replicas *replicas, int64_t step_count)
{
    lk_comm *comm = replicas->comm;
    if (!comm || replicas->options.check_replicas < 0) return LK_OK;
    replicas->checked_at = step_count;
    LKI_TRY(lki_backend_pull(replicas->backend));
    size_t nbytes = (size_t)replicas->flat->count * lk_dtype_nbytes(replicas->flat->dtype);
    int64_t hash = (int64_t)hash_bytes(lki_buffer_data(replicas->flat->values), nbytes);
    LKI_SCOPED int64_t *hashes = LKI_NEW_ARRAY(int64_t, comm->size);
    if (!hashes) return LK_ERR_NOMEM;
    LKI_TRY(lk_comm_all_gather(comm, &hash, hashes, 1, LK_I64));
    for (int rank = 1; rank < comm->size; rank++)
        if (hashes[rank] != hashes[0])
            return lki_fail(
                LK_ERR_PEER,
                "the replicas differ: the weights of rank %d are not those of rank 0 after %lld updates",
                rank, (long long)step_count);
    return LK_OK;
}
