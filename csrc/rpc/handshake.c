/* The handshake. */
#define _GNU_SOURCE
#include "handshake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tls.h"
#include "weft_runtime.h"

enum { STATED = 40, NONCE = 32, SERVICE_MACHINE = 1, SERVICE_TRACKER = 2, ROLE_MACHINE = 2 };

bool rpc_random(void *to, size_t bytes) {
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    size_t got = 0;
    while (fd >= 0 && got < bytes) {
        ssize_t part = read(fd, (char *)to + got, bytes - got);
        if (part > 0) got += (size_t)part;
        else if (part == 0 || errno != EINTR) break;
    }
    if (fd >= 0) close(fd);
    return got == bytes;
}

/* What both sides stated, in the order of the protocol. */
typedef struct stated {
    unsigned char bytes[2 * STATED];
} stated;

static void derive(const rpc_key *key, const char *what, const stated *both, unsigned char out[RPC_DIGEST]) {
    rpc_hmac h;
    rpc_hmac_begin(&h, key->bytes, key->count);
    rpc_hmac_add(&h, what, strlen(what));
    rpc_hmac_add(&h, both->bytes, sizeof both->bytes);
    rpc_hmac_end(&h, out);
}

static void start(rpc_direction *d, const rpc_key *key, const char *what, const stated *both, uint32_t limit) {
    unsigned char derived[RPC_DIGEST];
    derive(key, what, both, derived);
    rpc_hmac_begin(&d->key, derived, sizeof derived);
    rpc_wipe(derived, sizeof derived);
    d->sealed = true;
    d->counter = 0;
    d->limit = limit;
}

static bool fail(rpc_link *link, const char *why) {
    (void)snprintf(link->why, sizeof link->why, "%s", why);
    return false;
}

static bool refuse(rpc_link *link, rpc_code code, const char *why) {
    unsigned char payload[RPC_HANDSHAKE_BYTES];
    const size_t bytes = strlen(why) < 200 ? strlen(why) : 200;
    rpc_put(payload, code, 4);
    rpc_put(payload + 4, bytes, 2);
    memcpy(payload + 6, why, bytes);
    (void)rpc_send(link, RPC_REFUSAL, 0, payload, 6 + bytes, NULL, 0);
    return fail(link, why);
}

/* What this side states: its service or role, its limit and a nonce. */
static bool state(rpc_link *link, unsigned char *mine, int what, uint32_t limit) {
    memset(mine, 0, 4);
    mine[0] = (unsigned char)what;
    rpc_put(mine + 4, limit, 4);
    return rpc_random(mine + 8, NONCE) || fail(link, "the system gives no random numbers");
}

static bool greet(rpc_link *link, uint32_t limit, stated *both) {
    return state(link, both->bytes, SERVICE_MACHINE, limit) && rpc_send(link, RPC_GREETING, 0, both->bytes, STATED, NULL, 0);
}

/* The limit that the other side stated; 0: what it stated is malformed. */
static uint32_t stated_limit(const unsigned char *theirs) {
    const uint32_t limit = (uint32_t)rpc_get(theirs + 4, 4);
    return rpc_get(theirs + 1, 3) || limit < RPC_MIN_LIMIT || limit > RPC_MAX_LIMIT ? 0 : limit;
}

bool rpc_accept(rpc_link *link, const rpc_key *key, uint32_t limit, const char *(*claim)(void *context), void *context) {
    stated both;
    rpc_message message;
    unsigned char proof[RPC_DIGEST];
    const int64_t end = weft_nanoseconds() + RPC_HANDSHAKE_SECONDS * RPC_SECOND;
    if (!rpc_tls_accept(link, end)) return false;
    if (!greet(link, limit, &both) || !rpc_receive(link, &message, end, end)) return false;
    if (message.type != RPC_PROOF || message.request != 0 || message.length != STATED + RPC_DIGEST)
        return fail(link, "the first frame is no proof");
    memcpy(both.bytes + STATED, message.payload, STATED);
    const uint32_t taken = stated_limit(message.payload);
    if (!taken) return fail(link, "a proof is malformed");
    derive(key, "weft-rpc 1 connector proves", &both, proof);
    if (!rpc_equal(proof, message.payload + STATED, sizeof proof)) return refuse(link, RPC_WRONG_KEY, "the key is wrong");
    const char *reason = claim(context);
    if (reason) return refuse(link, RPC_BUSY, reason);
    derive(key, "weft-rpc 1 acceptor proves", &both, proof);
    if (!rpc_send(link, RPC_WELCOME, 0, proof, sizeof proof, NULL, 0)) return false;
    start(&link->in, key, "weft-rpc 1 connector sends", &both, limit);
    start(&link->out, key, "weft-rpc 1 acceptor sends", &both, taken);
    return true;
}

/* ---- the connector ----------------------------------------------------------------------------------------------- */

static bool refused(rpc_link *link, const rpc_message *message) {
    const size_t said = message->length > 6 ? message->length - 6 : 0;
    (void)snprintf(link->why, sizeof link->why, "it refuses: ");
    size_t at = strlen(link->why);
    for (size_t i = 0; i < said && at + 1 < sizeof link->why; i++) {
        const unsigned char c = message->payload[6 + i];
        link->why[at++] = (char)(c < ' ' || c > '~' ? '?' : c);
    }
    link->why[at] = 0;
    return false;
}

bool rpc_connect(rpc_link *link, const rpc_key *key, uint32_t limit) {
    stated both;
    rpc_message message;
    unsigned char proof[STATED + RPC_DIGEST], expected[RPC_DIGEST];
    const int64_t end = weft_nanoseconds() + RPC_HANDSHAKE_SECONDS * RPC_SECOND;
    if (!rpc_receive(link, &message, end, end)) return false;
    if (message.type == RPC_REFUSAL) return refused(link, &message);
    const uint32_t taken = message.type == RPC_GREETING && message.length == STATED ? stated_limit(message.payload) : 0;
    if (!taken) return fail(link, "the first frame is no greeting");
    if (message.payload[0] != SERVICE_TRACKER) return fail(link, "it is no tracker: is it the right port?");
    memcpy(both.bytes, message.payload, STATED);
    if (!state(link, both.bytes + STATED, ROLE_MACHINE, limit)) return false;
    memcpy(proof, both.bytes + STATED, STATED);
    derive(key, "weft-rpc 1 connector proves", &both, proof + STATED);
    if (!rpc_send(link, RPC_PROOF, 0, proof, sizeof proof, NULL, 0) || !rpc_receive(link, &message, end, end)) return false;
    if (message.type == RPC_REFUSAL) return refused(link, &message);
    derive(key, "weft-rpc 1 acceptor proves", &both, expected);
    if (message.type != RPC_WELCOME || message.length != RPC_DIGEST || !rpc_equal(expected, message.payload, RPC_DIGEST))
        return fail(link, "it does not know the key");
    start(&link->in, key, "weft-rpc 1 acceptor sends", &both, limit);
    start(&link->out, key, "weft-rpc 1 connector sends", &both, taken);
    return true;
}
