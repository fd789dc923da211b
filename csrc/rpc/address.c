/* Addresses, and the socket that listens. */
#define _GNU_SOURCE
#include "address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "listen.h"
#include "tls.h"
#include "weft_runtime.h"

bool rpc_split_address(const char *text, char host[RPC_HOST], int *port) {
    const char *colon = strrchr(text, ':');
    const size_t count = colon ? (size_t)(colon - text) : 0;
    rpc_address address;
    char *end;
    if (!count || count >= RPC_HOST || colon[1] < '0' || colon[1] > '9') return false;
    const long number = strtol(colon + 1, &end, 10);
    const bool brackets = text[0] == '[' && text[count - 1] == ']' && count > 2;
    memcpy(host, text + brackets, count - 2 * brackets);
    host[count - 2 * brackets] = 0;
    if (*end || number < 1 || number > 65535 || (!brackets && strchr(host, ':'))) return false;
    *port = (int)number;
    return rpc_read_address(host, *port, &address) || (!brackets && rpc_is_name(host));
}

int rpc_connect_socket(const char *text, int seconds, const char **why) {
    const int64_t deadline = weft_nanoseconds() + seconds * RPC_SECOND;
    char host[RPC_HOST];
    rpc_address a;
    socklen_t bytes, room = sizeof(int);
    int port, error = 0, on = 1;
    *why = "that is no address";
    if (!rpc_split_address(text, host, &port)) return -1;
    bytes = rpc_read_address(host, port, &a);
    if (!bytes) bytes = rpc_resolve(host, port, &a, deadline);
    *why = "neither /etc/hosts nor a name server of /etc/resolv.conf knows the name";
    if (!bytes) return -1;
    *why = "nobody answers there";
    const int fd = socket(a.any.sa_family, SOCK_STREAM, 0);
    if (fd < 0) return -1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    bool connected = !fcntl(fd, F_SETFD, FD_CLOEXEC) && !fcntl(fd, F_SETFL, O_NONBLOCK);
    if (connected && connect(fd, &a.any, bytes))
        connected = errno == EINPROGRESS && rpc_ready(fd, POLLOUT, deadline) &&
                    !getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &room) && !error;
    if (connected) return fd;
    close(fd);
    return -1;
}

bool rpc_is_loopback(const char *address) {
    rpc_address a;
    if (!rpc_read_address(address, 0, &a)) return false;
    if (a.any.sa_family == AF_INET) return ntohl(a.v4.sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&a.v6.sin6_addr);
}

int rpc_open_socket(const rpc_options *o, int *port) {
    rpc_address a;
    const int on = 1;
    socklen_t bytes = rpc_read_address(o->address, o->port, &a);
    const int fd = bytes ? socket(a.any.sa_family, SOCK_STREAM, 0) : -1;
    if (!bytes) return rpc_log("'%s' is no address: write numbers, such as 127.0.0.1 or ::1", o->address), -1;
    if (fd >= 0) (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) || fcntl(fd, F_SETFL, O_NONBLOCK) || bind(fd, &a.any, bytes) ||
        listen(fd, 64) || getsockname(fd, &a.any, &bytes)) {
        rpc_log("cannot listen on %s, port %d: %s", o->address, (int)o->port, strerror(errno));
        if (fd >= 0) close(fd);
        return -1;
    }
    *port = ntohs(a.any.sa_family == AF_INET ? a.v4.sin_port : a.v6.sin6_port);
    return fd;
}

void rpc_address_text(const rpc_address *address, char *text, size_t room) {
    char numbers[INET6_ADDRSTRLEN] = "?";
    const bool is_v4 = address->any.sa_family == AF_INET;
    const void *bytes = is_v4 ? (const void *)&address->v4.sin_addr : (const void *)&address->v6.sin6_addr;
    (void)inet_ntop(address->any.sa_family, bytes, numbers, sizeof numbers);
    (void)snprintf(text, room, "%s, port %d", numbers, (int)ntohs(is_v4 ? address->v4.sin_port : address->v6.sin6_port));
}
