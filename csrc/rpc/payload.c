/* Payloads. */
#include "payload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t read_number(rpc_reader *r, int bytes) {
    if (r->left < (size_t)bytes) {
        r->bad = true;
        r->left = 0;
        return 0;
    }
    uint64_t value = rpc_get(r->at, bytes);
    r->at += bytes, r->left -= (size_t)bytes;
    return value;
}

uint32_t rpc_read_u32(rpc_reader *r) { return (uint32_t)read_number(r, 4); }
uint64_t rpc_read_u64(rpc_reader *r) { return read_number(r, 8); }
int64_t rpc_read_i64(rpc_reader *r) { return (int64_t)read_number(r, 8); }

void rpc_read_name(rpc_reader *r, char name[RPC_NAME]) {
    const size_t bytes = (size_t)read_number(r, 2);
    name[0] = 0;
    if (bytes >= RPC_NAME || bytes > r->left || (bytes && memchr(r->at, 0, bytes))) {
        r->bad = true;
        r->left = 0;
        return;
    }
    if (bytes) memcpy(name, r->at, bytes);
    name[bytes] = 0;
    r->at += bytes, r->left -= bytes;
}

uint32_t rpc_read_count(rpc_reader *r, size_t bytes) {
    uint32_t count = rpc_read_u32(r);
    if (count <= r->left / bytes) return count;
    r->bad = true;
    r->left = 0;
    return 0;
}

bool rpc_read_all(const rpc_reader *r) { return !r->bad && !r->left; }

void rpc_write_bytes(rpc_writer *w, const void *from, size_t bytes) {
    if (w->room - w->count < bytes) {
        const size_t room = 2 * w->room + bytes + 64;
        unsigned char *larger = realloc(w->bytes, room);
        if (!larger) {
            w->failed = true;
            return;
        }
        w->bytes = larger;
        w->room = room;
    }
    if (bytes) memcpy(w->bytes + w->count, from, bytes);
    w->count += bytes;
}

static void write_number(rpc_writer *w, uint64_t value, int bytes) {
    unsigned char text[8];
    rpc_put(text, value, bytes);
    rpc_write_bytes(w, text, (size_t)bytes);
}

void rpc_write_u32(rpc_writer *w, uint32_t value) { write_number(w, value, 4); }
void rpc_write_u64(rpc_writer *w, uint64_t value) { write_number(w, value, 8); }

void rpc_write_f64(rpc_writer *w, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    rpc_write_u64(w, bits);
}

void rpc_write_line(rpc_writer *w, const char *name, const char *value) {
    rpc_write_bytes(w, name, strlen(name));
    rpc_write_bytes(w, "=", 1);
    const size_t start = w->count;
    rpc_write_bytes(w, value, strlen(value));
    for (size_t i = start; i < w->count; i++)
        if (w->bytes[i] == '\n') w->bytes[i] = ' ';
    rpc_write_bytes(w, "\n", 1);
}

void rpc_write_number(rpc_writer *w, const char *name, int64_t value) {
    char text[24];
    (void)snprintf(text, sizeof text, "%lld", (long long)value);
    rpc_write_line(w, name, text);
}
