#include "train/replicas.h"

#include "base/memory.h"
#include "base/status.h"
#include "tensor/half.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The same model everywhere ---- */

/* One line a parameter: "0.weight f32 (10, 784)". */
static char *describe(const lk_param_list *params, size_t *nbytes)
{
    char *text = NULL, shape[160];
    FILE *stream = open_memstream(&text, nbytes);
    if (!stream) return lki_fail_null(LK_ERR_NOMEM, "out of memory for the description of the model");
    for (int i = 0; i < params->count; i++) {
        const lk_tensor *value = params->items[i].param->value;
        fprintf(stream, "%s %s %s\n", params->items[i].path, lk_dtype_name(value->dtype),
                lk_shape_format(shape, sizeof shape, value->shape));
    }
    fclose(stream);
    return text;
}

static size_t line_length(const char *text)
{
    return strcspn(text, "\n");
}

/* The first line in which two descriptions differ, as a sentence. */
static lk_status first_difference(const char *ours, const char *theirs, int rank)
{
    while (*ours && *theirs) {
        size_t our_length = line_length(ours), their_length = line_length(theirs);
        if (our_length != their_length || memcmp(ours, theirs, our_length) != 0) break;
        ours += our_length + (ours[our_length] == '\n');
        theirs += their_length + (theirs[their_length] == '\n');
    }
    return lki_fail(LK_ERR_PEER, "the ranks hold different models: rank %d has %.*s where rank 0 has %.*s",
                    rank, *ours ? (int)line_length(ours) : 7, *ours ? ours : "nothing",
                    *theirs ? (int)line_length(theirs) : 7, *theirs ? theirs : "nothing");
}

/* Every rank compares itself with rank 0; then all hear of the verdicts, so that all stop together. */
static lk_status check_same_model(lki_replicas *replicas)
{
    lk_comm *comm = replicas->comm;
    size_t nbytes = 0;
    char *ours = describe(replicas->params, &nbytes);
    if (!ours) return LK_ERR_NOMEM;
    int64_t length = (int64_t)nbytes, different = 0;
    char *theirs = NULL;
    lk_status status;
    LKI_TRY_OUT(lk_comm_broadcast(comm, &length, 1, LK_I64, 0));
    theirs = lki_calloc((size_t)length + 1, "the description of the model");
    status = LK_ERR_NOMEM;
    if (!theirs) goto out;
    if (comm->rank == 0) memcpy(theirs, ours, (size_t)length);
    LKI_TRY_OUT(lk_comm_broadcast(comm, theirs, length, LK_U8, 0));
    different = strcmp(ours, theirs) != 0 ? comm->rank + 1 : 0;
    int64_t last_different = different;
    LKI_TRY_OUT(lk_comm_all_reduce(comm, &last_different, 1, LK_I64, LK_REDUCE_MAX));
    if (different)
        status = first_difference(ours, theirs, comm->rank);
    else if (last_different)
        status = lki_fail(LK_ERR_PEER, "the ranks hold different models: rank %lld's is not rank 0's",
                          (long long)last_different - 1);
out:
    free(ours);
    lki_free(theirs);
    return status;
}

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
                     .data = (char *)lki_mirror_address(replicas->mirror, lki_buffer_data(flat->grads)) +
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

lk_status lki_replicas_init(lki_replicas *replicas, lk_comm *comm, lki_flat *flat, lki_mirror *mirror,
                            const lk_param_list *params, lki_replicas_options options)
{
    *replicas =
        (lki_replicas){.comm = comm, .flat = flat, .mirror = mirror, .params = params, .options = options};
    LKI_TRY(check_same_model(replicas));
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
        replicas->residual[i] = wanted - lki_bf16_to_f32(replicas->packed[i]);
    }
    LKI_TRY(lk_comm_all_reduce(replicas->comm, replicas->packed, count, LK_BF16, LK_REDUCE_AVG));
    for (int64_t i = 0; i < count; i++) gradients[i] = lki_bf16_to_f32(replicas->packed[i]);
    return LK_OK;
}

/* Through the host: this is the way of those who do not overlap. */
lk_status lki_replicas_average(lki_replicas *replicas, lk_buffer *gradients)
{
    void *data = lki_buffer_data(gradients);
    LKI_TRY(lki_mirror_pull_block(replicas->mirror, data));
    if (replicas->options.compress)
        LKI_TRY(average_compressed(replicas, data));
    else
        LKI_TRY(lk_comm_all_reduce(replicas->comm, data, replicas->flat->count, replicas->flat->dtype,
                                   LK_REDUCE_AVG));
    return lki_mirror_push_block(replicas->mirror, data);
}

/* ---- Comparing ---- */

/* FNV-1a over 64-bit words: any difference in any bit shows. */
static uint64_t hash_bytes(const void *data, size_t nbytes)
{
    uint64_t hash = 14695981039346656037u, word;
    const char *bytes = data;
    for (size_t i = 0; i + sizeof word <= nbytes; i += sizeof word) {
        memcpy(&word, bytes + i, sizeof word);
        hash = (hash ^ word) * 1099511628211u;
    }
    return hash;
}

lk_status lki_replicas_check(lki_replicas *replicas)
{
    lk_comm *comm = replicas->comm;
    LKI_TRY(lki_mirror_pull(replicas->mirror));
    size_t nbytes = (size_t)replicas->flat->count * lk_dtype_nbytes(replicas->flat->dtype);
    int64_t hash = (int64_t)hash_bytes(lki_buffer_data(replicas->flat->values), nbytes);
    LKI_SCOPED int64_t *hashes = LKI_NEW_ARRAY(int64_t, comm->size);
    if (!hashes) return LK_ERR_NOMEM;
    LKI_TRY(lk_comm_all_gather(comm, &hash, hashes, 1, LK_I64));
    for (int rank = 1; rank < comm->size; rank++)
        if (hashes[rank] != hashes[0])
            return lki_fail(LK_ERR_PEER, "the replicas have come apart: rank %d's weights are not rank 0's",
                            rank);
    return LK_OK;
}

lk_status lki_replicas_check_if_due(lki_replicas *replicas, int64_t step_count)
{
    int every = replicas->options.check_every;
    return replicas->comm && every > 0 && step_count % every == 0 ? lki_replicas_check(replicas) : LK_OK;
}
