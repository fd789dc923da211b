/* TLS of connections, in a server that is built with OpenSSL (make TLS=1). Elsewhere the functions refuse. */
#ifndef WEFT_RPC_TLS_H
#define WEFT_RPC_TLS_H

#include <sys/types.h>

#include "frames.h"

/* Whether the server is built with it. */
bool rpc_tls_is_built(void);
/* Loads a certificate and its private key, for all connections. False: `why` says why not. */
bool rpc_tls_prepare(const char *certificate, const char *key, char *why, size_t room);
/* The same for a client, which trusts the certificates of a file. */
bool rpc_tls_prepare_client(const char *trusted, char *why, size_t room);
/* The client's side of the handshake with `host`, whose certificate must name it, until `end`. Nothing happens without
 * certificates to trust. */
bool rpc_tls_connect(rpc_link *link, const char *host, int64_t end);
/* The server's side of the handshake, until `end`; nothing happens without a certificate. */
bool rpc_tls_accept(rpc_link *link, int64_t end);
void rpc_tls_end(rpc_link *link);
/* Whether bytes have arrived that were not read: the socket may have none. */
bool rpc_tls_has_bytes(const rpc_link *link);
/* As recv and send do. -1 with errno EAGAIN: wait until the socket is ready for `events`. */
ssize_t rpc_tls_read(rpc_link *link, void *to, size_t bytes, short *events);
ssize_t rpc_tls_write(rpc_link *link, const void *from, size_t bytes, short *events);
/* Waits until the socket is ready; false at the deadline (frames.c). */
bool rpc_ready(int fd, short events, int64_t deadline);

#endif
