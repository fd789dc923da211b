/* SHA-256 (FIPS 180-4) and HMAC (RFC 2104), for machines without a library that has them. */
#ifndef WEFT_RPC_SHA256_H
#define WEFT_RPC_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RPC_DIGEST = 32 };

typedef struct rpc_sha256 {
    uint32_t state[8];
    uint64_t bytes; /* taken so far */
    unsigned char block[64];
} rpc_sha256;

void rpc_sha256_begin(rpc_sha256 *s);
void rpc_sha256_add(rpc_sha256 *s, const void *data, size_t bytes);
void rpc_sha256_end(rpc_sha256 *s, unsigned char digest[RPC_DIGEST]);

/* A key that is prepared for HMAC-SHA256. A copy of it computes one MAC. */
typedef struct rpc_hmac {
    rpc_sha256 inner, outer;
} rpc_hmac;

void rpc_hmac_begin(rpc_hmac *h, const void *key, size_t bytes);
void rpc_hmac_add(rpc_hmac *h, const void *data, size_t bytes);
void rpc_hmac_end(rpc_hmac *h, unsigned char mac[RPC_DIGEST]);

/* Whether two ranges are equal; the time depends on their length alone. */
bool rpc_equal(const void *a, const void *b, size_t bytes);
/* Overwrites secrets, also where the compiler sees no use of it. */
void rpc_wipe(void *memory, size_t bytes);

#endif
