/* Frames on a socket. */
#define _GNU_SOURCE
#include "frames.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tls.h"
#include "weft_runtime.h"

static const unsigned char MAGIC[4] = {'W', 'R', 'P', 'C'};

void rpc_put(unsigned char *to, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) to[i] = (unsigned char)(value >> 8 * i);
}

uint64_t rpc_get(const unsigned char *from, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint64_t)from[i] << 8 * i;
    return value;
}

void rpc_link_begin(rpc_link *link, int fd, uint32_t limit) {
    memset(link, 0, sizeof *link);
    link->fd = fd;
    link->in.limit = limit;
    link->out.limit = RPC_HANDSHAKE_BYTES;
}

void rpc_link_end(rpc_link *link) {
    rpc_tls_end(link);
    if (link->fd >= 0) close(link->fd);
    free(link->payload);
    rpc_wipe(link, sizeof *link);
    link->fd = -1;
}

static void seal(rpc_direction *d, const unsigned char *header, const void *head, size_t head_bytes, const void *body,
                 size_t body_bytes, unsigned char mac[RPC_MAC]) {
    unsigned char counter[8], whole[RPC_DIGEST];
    rpc_hmac h = d->key;
    rpc_put(counter, d->counter++, 8);
    rpc_hmac_add(&h, counter, sizeof counter);
    rpc_hmac_add(&h, header, RPC_HEADER);
    rpc_hmac_add(&h, head, head_bytes);
    rpc_hmac_add(&h, body, body_bytes);
    rpc_hmac_end(&h, whole);
    memcpy(mac, whole, RPC_MAC);
}

/* Waits until the socket is ready for `events`. False at the deadline. */
bool rpc_ready(int fd, short events, int64_t deadline) {
    for (;;) {
        int64_t left = deadline - weft_nanoseconds();
        if (left <= 0) return false;
        struct pollfd p = {.fd = fd, .events = events};
        int64_t milliseconds = left / 1000000 + 1;
        int found = poll(&p, 1, milliseconds < 1000000 ? (int)milliseconds : 1000000);
        if (found > 0) return true;
        if (found < 0 && errno != EINTR) return true; /* the next call on the socket says what is wrong */
    }
}

/* ---- receiving --------------------------------------------------------------------------------------------------- */

static bool fail(rpc_link *link, const char *why) {
    const size_t bytes = strlen(why), room = sizeof link->why - 1, kept = bytes < room ? bytes : room;
    memcpy(link->why, why, kept);
    link->why[kept] = 0;
    return false;
}

/* Fills `to`. `began`: whether bytes of the frame are there already; otherwise the connection may end. */
static bool receive_all(rpc_link *link, void *to, size_t bytes, int64_t deadline, bool began) {
    unsigned char *at = to;
    while (bytes) {
        short events = POLLIN;
        ssize_t got = link->tls ? rpc_tls_read(link, at, bytes, &events) : recv(link->fd, at, bytes, 0);
        if (got > 0) {
            at += got, bytes -= (size_t)got, began = true;
        } else if (got == 0) {
            return fail(link, began ? "the other side ended the connection within a frame" : "");
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!rpc_ready(link->fd, events, deadline)) return fail(link, "a frame did not arrive in time");
        } else if (errno != EINTR) {
            return fail(link, strerror(errno));
        }
    }
    return true;
}

static bool check_header(rpc_link *link, const unsigned char *header, rpc_message *message) {
    const unsigned version = (unsigned)rpc_get(header + 4, 2);
    if (memcmp(header, MAGIC, sizeof MAGIC)) return fail(link, "these are no frames of Weft");
    if (version != RPC_VERSION) {
        (void)snprintf(link->why, sizeof link->why, "the other side speaks version %u of the protocol, this is %d", version,
                       RPC_VERSION);
        return false;
    }
    message->type = (uint16_t)rpc_get(header + 6, 2);
    message->request = (uint32_t)rpc_get(header + 8, 4);
    message->length = (uint32_t)rpc_get(header + 12, 4);
    if (message->length > link->in.limit) {
        (void)snprintf(link->why, sizeof link->why, "a frame of %lu bytes is above the limit of %lu",
                       (unsigned long)message->length, (unsigned long)link->in.limit);
        return false;
    }
    return true;
}

static bool make_room(rpc_link *link, size_t bytes) {
    if (bytes <= link->room) return true;
    unsigned char *larger = realloc(link->payload, bytes);
    if (!larger) return fail(link, "out of memory for a frame");
    link->payload = larger;
    link->room = bytes;
    return true;
}

bool rpc_receive(rpc_link *link, rpc_message *message, int64_t begin, int64_t end) {
    unsigned char header[RPC_HEADER], mac[RPC_MAC], expected[RPC_MAC];
    if (!rpc_tls_has_bytes(link) && !rpc_ready(link->fd, POLLIN, begin)) return fail(link, "no request came in time");
    const int64_t usual = weft_nanoseconds() + RPC_FRAME_SECONDS * RPC_SECOND, deadline = usual < end ? usual : end;
    if (!receive_all(link, header, sizeof header, deadline, false) || !check_header(link, header, message)) return false;
    if (!make_room(link, message->length + !message->length)) return false;
    if (!receive_all(link, link->payload, message->length, deadline, true)) return false;
    message->payload = link->payload;
    if (!link->in.sealed) return true;
    if (!receive_all(link, mac, sizeof mac, deadline, true)) return false;
    seal(&link->in, header, message->payload, message->length, NULL, 0, expected);
    return rpc_equal(mac, expected, sizeof mac) ||
           fail(link, "the MAC of a frame is wrong: it was changed, repeated or not sent by the client");
}

/* ---- sending ----------------------------------------------------------------------------------------------------- */

/* Sends some of the bytes of `parts`, of which the first is not empty; at least one, or none with errno. */
static ssize_t send_some(rpc_link *link, struct iovec *parts, size_t count, short *events) {
    struct msghdr whole = {.msg_iov = parts, .msg_iovlen = count};
    if (link->tls) return rpc_tls_write(link, parts[0].iov_base, parts[0].iov_len, events);
    return sendmsg(link->fd, &whole, MSG_NOSIGNAL);
}

static bool send_all(rpc_link *link, struct iovec *parts, size_t count) {
    const int64_t deadline = weft_nanoseconds() + RPC_FRAME_SECONDS * RPC_SECOND;
    size_t first = 0;
    for (;;) {
        while (first < count && !parts[first].iov_len) first++;
        if (first == count) return true;
        short events = POLLOUT;
        ssize_t sent = send_some(link, parts + first, count - first, &events);
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (!rpc_ready(link->fd, events, deadline)) return fail(link, "the other side took no bytes in time");
        } else if (sent == 0 || (sent < 0 && errno != EINTR)) {
            return fail(link, "the other side ended the connection while it was answered");
        }
        for (size_t i = first; i < count && sent > 0; i++) {
            size_t part = (size_t)sent < parts[i].iov_len ? (size_t)sent : parts[i].iov_len;
            parts[i].iov_base = (char *)parts[i].iov_base + part;
            parts[i].iov_len -= part;
            sent -= (ssize_t)part;
        }
    }
}

bool rpc_send(rpc_link *link, uint16_t type, uint32_t request, const void *head, size_t head_bytes, const void *body,
              size_t body_bytes) {
    unsigned char header[RPC_HEADER], mac[RPC_MAC];
    const size_t length = head_bytes + body_bytes;
    if (length > link->out.limit) return fail(link, "an answer is above the limit of the other side");
    memcpy(header, MAGIC, sizeof MAGIC);
    rpc_put(header + 4, RPC_VERSION, 2);
    rpc_put(header + 6, type, 2);
    rpc_put(header + 8, request, 4);
    rpc_put(header + 12, length, 4);
    if (link->out.sealed) seal(&link->out, header, head, head_bytes, body, body_bytes, mac);
    struct iovec parts[4] = {{header, sizeof header},
                             {(void *)(uintptr_t)head, head_bytes},
                             {(void *)(uintptr_t)body, body_bytes},
                             {mac, link->out.sealed ? sizeof mac : 0}};
    return send_all(link, parts, 4);
}
