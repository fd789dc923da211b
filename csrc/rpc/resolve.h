/* Names of machines. */
#ifndef WEFT_RPC_RESOLVE_H
#define WEFT_RPC_RESOLVE_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

enum { RPC_HOST = 254 }; /* room for a name: DNS allows 253 characters */

typedef union rpc_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
} rpc_address;

/* The bytes of an address in numbers, in `to`; 0: it is none. */
socklen_t rpc_read_address(const char *text, int port, rpc_address *to);
/* Whether a text could be the name of a machine. */
bool rpc_is_name(const char *text);
/* The same for a name, which /etc/hosts has or a name server of /etc/resolv.conf tells before `deadline`; 0: nobody knows
 * it. */
socklen_t rpc_resolve(const char *name, int port, rpc_address *to, int64_t deadline);

#endif
