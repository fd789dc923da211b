/* Frames on a socket: checked, authenticated, with time limits. docs/rpc-protocol.md defines the bytes. */
#ifndef WEFT_RPC_FRAMES_H
#define WEFT_RPC_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sha256.h"

enum {
    RPC_VERSION = 1,
    RPC_HEADER = 16,
    RPC_MAC = 16,
    RPC_HANDSHAKE_BYTES = 256, /* largest payload before the handshake is done */
    RPC_MIN_LIMIT = 4096,
    RPC_MAX_LIMIT = 1 << 26,
    RPC_DEFAULT_LIMIT = 4 << 20
};

typedef enum rpc_type {
    RPC_GREETING = 1,
    RPC_PROOF,
    RPC_WELCOME,
    RPC_REFUSAL,
    RPC_REPLY,
    RPC_ERROR,
    RPC_PING = 8,
    RPC_CLOSE,
    RPC_INFO = 16,
    RPC_ALLOCATE,
    RPC_FREE,
    RPC_COPY_IN,
    RPC_COPY_OUT,
    RPC_COPY_ACROSS,
    RPC_LOAD,
    RPC_UNLOAD,
    RPC_LAUNCH,
    RPC_TIME,
    RPC_SYNCHRONIZE,
    RPC_EXECUTABLE,
    RPC_DISCARD,
    RPC_RUN,
    RPC_TIME_RUN,
    RPC_TIME_COLD,
    RPC_SHOW_TICKET = 63,
    RPC_REGISTER,
    RPC_REPORT
} rpc_type;

/* What an ERROR or a REFUSAL says. Those from RPC_WRONG_KEY on end the connection. */
typedef enum rpc_code {
    RPC_FINE = 0,
    RPC_MALFORMED = 1,
    RPC_UNKNOWN = 2,
    RPC_NO_MEMORY = 3,
    RPC_NOT_THERE = 4,
    RPC_BAD_CODE = 5,
    RPC_KERNEL = 6,
    RPC_TIMEOUT = 7,
    RPC_RUN_FAILED = 8,
    RPC_WRONG_KEY = 100,
    RPC_BUSY = 101,
    RPC_CRASHED = 102,
    RPC_LIMIT = 103
} rpc_code;

/* One direction of a connection. */
typedef struct rpc_direction {
    bool sealed; /* frames carry a MAC */
    rpc_hmac key;
    uint64_t counter;
    uint32_t limit; /* largest payload */
} rpc_direction;

typedef struct rpc_link {
    int fd;    /* does not block */
    void *tls; /* of OpenSSL; NULL: the connection is not encrypted */
    rpc_direction in, out;
    unsigned char *payload; /* of the last message; owned */
    size_t room;
    char why[160]; /* what is wrong, where a function did not return true */
} rpc_link;

typedef struct rpc_message {
    uint16_t type;
    uint32_t request, length;
    const unsigned char *payload; /* until the next message */
} rpc_message;

void rpc_link_begin(rpc_link *link, int fd, uint32_t limit);
void rpc_link_end(rpc_link *link);

/* Deadlines are times of weft_nanoseconds: `begin` for the first byte, `end` for the last one, which must come within
 * RPC_FRAME_SECONDS besides. False: the connection must end; `why` is empty if the other side ended it between two
 * frames. */
bool rpc_receive(rpc_link *link, rpc_message *message, int64_t begin, int64_t end);
/* The payload is `head` and behind it `body`. Without TLS, only async-signal-safe functions are called. */
bool rpc_send(rpc_link *link, uint16_t type, uint32_t request, const void *head, size_t head_bytes, const void *body,
              size_t body_bytes);

/* Little-endian numbers at any address. */
void rpc_put(unsigned char *to, uint64_t value, int bytes);
uint64_t rpc_get(const unsigned char *from, int bytes);

enum { RPC_FRAME_SECONDS = 30 };
#define RPC_SECOND INT64_C(1000000000)

#endif
