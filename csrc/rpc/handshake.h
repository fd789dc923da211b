/* The handshake. */
#ifndef WEFT_RPC_HANDSHAKE_H
#define WEFT_RPC_HANDSHAKE_H

#include "frames.h"

enum { RPC_HANDSHAKE_SECONDS = 10, RPC_MIN_KEY = 16, RPC_MAX_KEY = 1024 };

typedef struct rpc_key {
    unsigned char bytes[RPC_MAX_KEY + 2];
    size_t count;
} rpc_key;

/* Bytes that nobody can guess. False: the system has none. */
bool rpc_random(void *to, size_t bytes);

/* Begins TLS if there is a certificate, greets, and lets the other side prove that it knows the key; `claim(context)`
 * then says whether there is a session for it (NULL: yes), or why not. From then on, frames carry MACs, and payloads of
 * `limit` bytes are taken. False: the connection must end; `link->why` says why. */
bool rpc_accept(rpc_link *link, const rpc_key *key, uint32_t limit, const char *(*claim)(void *context), void *context);

/* The connector's side, of a machine that registers at a tracker, which may then send payloads of `limit` bytes. */
bool rpc_connect(rpc_link *link, const rpc_key *key, uint32_t limit);

#endif
