/* SHA-256 and HMAC. */
#include "sha256.h"

#include <string.h>

enum { BLOCK = 64, ROUNDS = 64 };

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes (FIPS 180-4, section 4.2.2). */
static const uint32_t CONSTANTS[ROUNDS] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t x, int by) { return x >> by | x << (32 - by); }

static uint32_t big_endian(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void compress(uint32_t state[8], const unsigned char *block) {
    uint32_t w[ROUNDS];
    for (int i = 0; i < 16; i++) w[i] = big_endian(block + 4 * i);
    for (int i = 16; i < ROUNDS; i++) {
        uint32_t x = w[i - 15], y = w[i - 2];
        w[i] = w[i - 16] + (rotate(x, 7) ^ rotate(x, 18) ^ x >> 3) + w[i - 7] + (rotate(y, 17) ^ rotate(y, 19) ^ y >> 10);
    }
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t chosen = (e & f) ^ (~e & g), majority = (a & b) ^ (a & c) ^ (b & c);
        uint32_t first = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + chosen + CONSTANTS[i] + w[i];
        uint32_t second = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + majority;
        h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d;
    state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}

void rpc_sha256_begin(rpc_sha256 *s) {
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(s->state, start, sizeof start);
    s->bytes = 0;
}

void rpc_sha256_add(rpc_sha256 *s, const void *data, size_t bytes) {
    const unsigned char *from = data;
    size_t held = (size_t)(s->bytes % BLOCK);
    s->bytes += bytes;
    if (held) {
        size_t part = bytes < BLOCK - held ? bytes : BLOCK - held;
        if (part) memcpy(s->block + held, from, part);
        if (held + part < BLOCK) return;
        compress(s->state, s->block);
        from += part, bytes -= part;
    }
    for (; bytes >= BLOCK; from += BLOCK, bytes -= BLOCK) compress(s->state, from);
    if (bytes) memcpy(s->block, from, bytes);
}

void rpc_sha256_end(rpc_sha256 *s, unsigned char digest[RPC_DIGEST]) {
    const uint64_t bits = s->bytes * 8;
    size_t held = (size_t)(s->bytes % BLOCK);
    s->block[held++] = 0x80;
    if (held > BLOCK - 8) {
        memset(s->block + held, 0, BLOCK - held);
        compress(s->state, s->block);
        held = 0;
    }
    memset(s->block + held, 0, BLOCK - 8 - held);
    for (int i = 0; i < 8; i++) s->block[BLOCK - 1 - i] = (unsigned char)(bits >> 8 * i);
    compress(s->state, s->block);
    for (int i = 0; i < RPC_DIGEST; i++) digest[i] = (unsigned char)(s->state[i / 4] >> (24 - 8 * (i % 4)));
    rpc_wipe(s, sizeof *s);
}

void rpc_hmac_begin(rpc_hmac *h, const void *key, size_t bytes) {
    unsigned char padded[BLOCK] = {0}, pad[BLOCK];
    if (bytes > BLOCK) {
        rpc_sha256 s;
        rpc_sha256_begin(&s);
        rpc_sha256_add(&s, key, bytes);
        rpc_sha256_end(&s, padded);
    } else if (bytes) {
        memcpy(padded, key, bytes);
    }
    rpc_sha256_begin(&h->inner);
    rpc_sha256_begin(&h->outer);
    for (int i = 0; i < BLOCK; i++) pad[i] = padded[i] ^ 0x36;
    rpc_sha256_add(&h->inner, pad, BLOCK);
    for (int i = 0; i < BLOCK; i++) pad[i] = padded[i] ^ 0x5c;
    rpc_sha256_add(&h->outer, pad, BLOCK);
    rpc_wipe(padded, sizeof padded);
    rpc_wipe(pad, sizeof pad);
}

void rpc_hmac_add(rpc_hmac *h, const void *data, size_t bytes) { rpc_sha256_add(&h->inner, data, bytes); }

void rpc_hmac_end(rpc_hmac *h, unsigned char mac[RPC_DIGEST]) {
    unsigned char digest[RPC_DIGEST];
    rpc_sha256_end(&h->inner, digest);
    rpc_sha256_add(&h->outer, digest, sizeof digest);
    rpc_sha256_end(&h->outer, mac);
}

bool rpc_equal(const void *a, const void *b, size_t bytes) {
    const volatile unsigned char *x = a, *y = b;
    unsigned char difference = 0;
    for (size_t i = 0; i < bytes; i++) difference |= (unsigned char)(x[i] ^ y[i]);
    return difference == 0;
}

void rpc_wipe(void *memory, size_t bytes) {
    volatile unsigned char *p = memory;
    for (size_t i = 0; i < bytes; i++) p[i] = 0;
}
