/* Payloads: reading what a request asks for, writing what it is answered. */
#ifndef WEFT_RPC_PAYLOAD_H
#define WEFT_RPC_PAYLOAD_H

#include "frames.h"

enum { RPC_NAME = 1024 };

/* Reads from the beginning on. Beyond the end, everything is 0 and `bad` is set. */
typedef struct rpc_reader {
    const unsigned char *at;
    size_t left;
    bool bad;
} rpc_reader;

uint32_t rpc_read_u32(rpc_reader *r);
uint64_t rpc_read_u64(rpc_reader *r);
int64_t rpc_read_i64(rpc_reader *r);
/* A string of less than RPC_NAME bytes without zeros. */
void rpc_read_name(rpc_reader *r, char name[RPC_NAME]);
/* A number of things that follow, each of at least `bytes` bytes: never more than can be there. */
uint32_t rpc_read_count(rpc_reader *r, size_t bytes);
/* Whether all was there and nothing is left. */
bool rpc_read_all(const rpc_reader *r);

/* The answer: what is written, and behind it `body`. */
typedef struct rpc_writer {
    unsigned char *bytes;
    size_t count, room;
    bool failed; /* out of memory */
    const void *body;
    size_t body_bytes;
} rpc_writer;

void rpc_write_u32(rpc_writer *w, uint32_t value);
void rpc_write_u64(rpc_writer *w, uint64_t value);
void rpc_write_f64(rpc_writer *w, double value);
void rpc_write_bytes(rpc_writer *w, const void *from, size_t bytes);
/* A line `name=value` of a text; of a line end in the value, a blank remains. */
void rpc_write_line(rpc_writer *w, const char *name, const char *value);
void rpc_write_number(rpc_writer *w, const char *name, int64_t value);

#endif
