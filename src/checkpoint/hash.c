#include <lockstep/checkpoint.h>

#include "base/memory.h"
#include "base/status.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct named {
    const char *name;
    const lk_tensor *tensor;
} named;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const named *)a)->name, ((const named *)b)->name);
}

/* Each tensor gives "name\0dtype\0rank,dim,dim,\0" and its bytes, so no two lists of tensors look alike. */
static lk_status add_tensor(EVP_MD_CTX *context, const named *item)
{
    char text[256];
    lk_tensor *dense = NULL;
    const lk_tensor *tensor = item->tensor;
    if (!lk_tensor_is_contiguous(tensor) && !(tensor = dense = lk_tensor_clone(tensor)))
        return lki_last_status();
    const char *dtype = lk_dtype_name(tensor->dtype);
    size_t used = (size_t)snprintf(text, sizeof text, "%d,", tensor->shape.rank);
    for (int i = 0; i < tensor->shape.rank; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%lld,", (long long)tensor->shape.dim[i]);
    int fine = EVP_DigestUpdate(context, item->name, strlen(item->name) + 1) &&
               EVP_DigestUpdate(context, dtype, strlen(dtype) + 1) &&
               EVP_DigestUpdate(context, text, used + 1) &&
               EVP_DigestUpdate(context, tensor->data, lk_tensor_nbytes(tensor));
    lk_tensor_free(dense);
    return fine ? LK_OK : lki_fail(LK_ERR_UNSUPPORTED, "hash: libcrypto could not compute SHA-256");
}

/* A runner checkpoint's weights have the names that a file of weights gives them: "model.<path>" is <path>,
 * "model:<key>.<path>" of a further model is <key>.<path>. NULL: not a weight. */
static const char *weight_name(const char *name, bool whole)
{
    if (!whole) return name;
    bool is_weight = strncmp(name, "model.", 6) == 0 || strncmp(name, "model:", 6) == 0;
    return is_weight ? name + 6 : NULL;
}

lk_status lk_weights_hash(const lk_state_dict *dict, char hash[LK_HASH_LENGTH + 1])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    int64_t count = 0;
    bool whole = lk_state_dict_has(dict, "runner.format");
    EVP_MD_CTX *context = NULL;
    lk_status status = LK_OK;
    LKI_SCOPED named *items = LKI_NEW_ARRAY(named, lk_state_dict_count(dict));
    if (!items) return LK_ERR_NOMEM;
    for (int64_t i = 0; i < lk_state_dict_count(dict); i++) {
        const char *name = weight_name(lk_state_dict_name(dict, i), whole);
        if (name) items[count++] = (named){name, lk_state_dict_tensor(dict, i)};
    }
    qsort(items, (size_t)count, sizeof *items, by_name);
    context = EVP_MD_CTX_new();
    if (!context || !EVP_DigestInit_ex(context, EVP_sha256(), NULL)) {
        status = lki_fail(LK_ERR_UNSUPPORTED, "hash: libcrypto has no SHA-256");
        goto out;
    }
    for (int64_t i = 0; i < count; i++) LKI_TRY_OUT(add_tensor(context, &items[i]));
    if (!EVP_DigestFinal_ex(context, digest, NULL)) {
        status = lki_fail(LK_ERR_UNSUPPORTED, "hash: libcrypto could not compute SHA-256");
        goto out;
    }
    for (int i = 0; i < LK_HASH_LENGTH / 2; i++) snprintf(hash + 2 * i, 3, "%02x", digest[i]);
out:
    EVP_MD_CTX_free(context);
    return status;
}
