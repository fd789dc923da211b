/* Addresses, and the socket that listens. */
#ifndef WEFT_RPC_ADDRESS_H
#define WEFT_RPC_ADDRESS_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "session.h"

typedef union rpc_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} rpc_address;

/* Address and port of `ADDRESS:PORT` or `[ADDRESS]:PORT`; false: it is none, or not in numbers. */
bool rpc_split_address(const char *text, rpc_address *to, socklen_t *bytes);
/* A socket that is connected to `ADDRESS:PORT` and does not block; -1: nobody answers in so many seconds. */
int rpc_connect_socket(const char *text, int seconds);

/* Whether only this machine reaches an address. */
bool rpc_is_loopback(const char *address);

/* Address and port, for people. */
void rpc_address_text(const rpc_address *address, char *text, size_t room);

/* A listening socket that does not block, and its port in `port`; -1 after a line in the log. */
int rpc_open_socket(const rpc_options *options, int *port);

#endif
