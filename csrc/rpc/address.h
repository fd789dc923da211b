/* Addresses, and the socket that listens. */
#ifndef WEFT_RPC_ADDRESS_H
#define WEFT_RPC_ADDRESS_H

#include "resolve.h"
#include "session.h"

/* Host and port of `NAME:PORT`, `ADDRESS:PORT` or `[ADDRESS]:PORT`; false: it is none of these. */
bool rpc_split_address(const char *text, char host[RPC_HOST], int *port);
/* A socket that is connected to such an address and does not block, in so many seconds; -1: `why` says why there is
 * none. */
int rpc_connect_socket(const char *text, int seconds, const char **why);

/* Whether only this machine reaches an address. */
bool rpc_is_loopback(const char *address);

/* Address and port, for people. */
void rpc_address_text(const rpc_address *address, char *text, size_t room);

/* A listening socket that does not block, and its port in `port`; -1 after a line in the log. */
int rpc_open_socket(const rpc_options *options, int *port);

#endif
