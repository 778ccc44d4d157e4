#include "comm/store/store_wire.h"

#include "base/memory.h"
#include "base/status.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>

static const uint32_t ABSENT = 0xffffffffu;

lk_status lki_bytes_append(lki_bytes *bytes, const void *data, size_t nbytes)
{
    if (bytes->length + nbytes > bytes->capacity) {
        size_t capacity = bytes->capacity ? bytes->capacity * 2 : 256;
        while (capacity < bytes->length + nbytes) capacity *= 2;
        unsigned char *grown = lki_realloc(bytes->data, capacity, "a message");
        if (!grown) return LK_ERR_NOMEM;
        bytes->data = grown;
        bytes->capacity = capacity;
    }
    if (nbytes) memcpy(bytes->data + bytes->length, data, nbytes);
    bytes->length += nbytes;
    return LK_OK;
}

void lki_bytes_drop_front(lki_bytes *bytes, size_t nbytes)
{
    if (nbytes == 0) return;
    memmove(bytes->data, bytes->data + nbytes, bytes->length - nbytes);
    bytes->length -= nbytes;
}

void lki_bytes_fini(lki_bytes *bytes)
{
    lki_free(bytes->data);
    *bytes = (lki_bytes){0};
}

/* Of message number `number` from one of the sides. */
static void seal(unsigned char mac[LKI_WIRE_MAC], const lki_wire_session *session, bool from_server,
                 uint64_t number, const unsigned char *message, size_t nbytes)
{
    unsigned char text[16 + SHA256_DIGEST_LENGTH] = {0};
    unsigned length = LKI_WIRE_MAC;
    text[0] = from_server ? 's' : 'c';
    number = htole64(number);
    memcpy(text + 8, &number, 8);
    SHA256(message, nbytes, text + 16);
    HMAC(EVP_sha256(), session->key, sizeof session->key, text, sizeof text, mac, &length);
}

void lki_wire_session_start(lki_wire_session *session, const char *token, bool is_server,
                            const lki_wire_hello *hello, const unsigned char *server_nonce)
{
    *session = (lki_wire_session){.is_server = is_server};
    lki_wire_prove(session->key, token, "session", hello, server_nonce);
}

bool lki_wire_is_next(lki_wire_session *session, const unsigned char *message, size_t nbytes)
{
    unsigned char expected[LKI_WIRE_MAC];
    seal(expected, session, !session->is_server, session->received++, message, nbytes);
    return lki_wire_equal(expected, message + nbytes, sizeof expected);
}

static lk_status append_message(lki_bytes *out, uint8_t head, const lki_field *fields, int field_count)
{
    size_t body = 1;
    for (int i = 0; i < field_count; i++) body += 4 + (fields[i].present ? fields[i].nbytes : 0);
    uint32_t length = htole32((uint32_t)body);
    LKI_TRY(lki_bytes_append(out, &length, 4));
    LKI_TRY(lki_bytes_append(out, &head, 1));
    for (int i = 0; i < field_count; i++) {
        uint32_t nbytes = htole32(fields[i].present ? (uint32_t)fields[i].nbytes : ABSENT);
        LKI_TRY(lki_bytes_append(out, &nbytes, 4));
        if (fields[i].present) LKI_TRY(lki_bytes_append(out, fields[i].data, fields[i].nbytes));
    }
    return LK_OK;
}

lk_status lki_wire_pack(lki_bytes *out, lki_wire_session *session, uint8_t head, const lki_field *fields,
                        int field_count)
{
    size_t begin = out->length;
    unsigned char mac[LKI_WIRE_MAC];
    LKI_TRY(append_message(out, head, fields, field_count));
    seal(mac, session, session->is_server, session->sent++, out->data + begin, out->length - begin);
    return lki_bytes_append(out, mac, sizeof mac);
}

bool lki_wire_unpack(lki_wire_message *message, const unsigned char *body, size_t nbytes)
{
    size_t at = 1;
    if (nbytes < 1) return false;
    *message = (lki_wire_message){.head = body[0]};
    while (at < nbytes) {
        uint32_t length;
        if (message->field_count == LKI_WIRE_MAX_FIELDS || nbytes - at < 4) return false;
        memcpy(&length, body + at, 4);
        length = le32toh(length);
        at += 4;
        lki_field *field = &message->fields[message->field_count++];
        if (length == ABSENT) continue;
        if (length > nbytes - at) return false;
        *field = (lki_field){body + at, length, true};
        at += length;
    }
    return true;
}

lk_status lki_wire_random(void *nonce, size_t nbytes)
{
    if (getrandom(nonce, nbytes, 0) != (ssize_t)nbytes)
        return lki_fail(LK_ERR_IO, "no random numbers from the system: %s", strerror(errno));
    return LK_OK;
}

void lki_wire_prove(unsigned char proof[LKI_WIRE_MAC], const char *token, const char *side,
                    const lki_wire_hello *hello, const unsigned char *server_nonce)
{
    unsigned char text[8 + sizeof *hello + LKI_WIRE_NONCE] = {0};
    unsigned length = LKI_WIRE_MAC;
    strncpy((char *)text, side, 8);
    memcpy(text + 8, hello, sizeof *hello);
    memcpy(text + 8 + sizeof *hello, server_nonce, LKI_WIRE_NONCE);
    HMAC(EVP_sha256(), token, (int)strlen(token), text, sizeof text, proof, &length);
}

bool lki_wire_equal(const unsigned char *a, const unsigned char *b, size_t nbytes)
{
    return CRYPTO_memcmp(a, b, nbytes) == 0;
}
