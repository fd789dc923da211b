/* Requests about memory. */
#include <string.h>

#include "internal.h"
#include "session.h"

static int32_t no_range(rpc_session *s, uint64_t address, uint64_t nbytes) {
    return rpc_refuse(s, RPC_NOT_THERE, "%llu bytes from address %llu do not lie in one allocation",
                      (unsigned long long)nbytes, (unsigned long long)address);
}

int32_t rpc_allocate(rpc_session *s, rpc_reader *in, rpc_writer *out) {
    const uint64_t asked = rpc_read_u64(in), nbytes = asked ? asked : 1;
    if (!rpc_read_all(in)) return rpc_malformed(s);
    void *memory = nbytes <= (uint64_t)INT64_MAX ? weft_alloc_large((int64_t)nbytes) : NULL;
    const uint64_t address = memory ? rpc_add_block(s, memory, (int64_t)nbytes) : 0;
    if (!address) {
        weft_free(memory);
        return rpc_refuse(s, RPC_NO_MEMORY, "there is no memory for %llu bytes", (unsigned long long)nbytes);
    }
    rpc_write_u64(out, address);
    return RPC_FINE;
}

int32_t rpc_free(rpc_session *s, rpc_reader *in, rpc_writer *out) {
    const uint64_t address = rpc_read_u64(in);
    (void)out;
    if (!rpc_read_all(in)) return rpc_malformed(s);
    rpc_block *block = rpc_find_block(s, address);
    if (!block || block->address != address)
        return rpc_refuse(s, RPC_NOT_THERE, "nothing is allocated at address %llu", (unsigned long long)address);
    if (block->users)
        return rpc_refuse(s, RPC_NOT_THERE, "the memory at address %llu is in use", (unsigned long long)address);
    rpc_remove_block(s, block);
    return RPC_FINE;
}

int32_t rpc_copy_in(rpc_session *s, rpc_reader *in, rpc_writer *out) {
    const uint64_t address = rpc_read_u64(in);
    (void)out;
    if (in->bad) return rpc_malformed(s);
    char *to = rpc_find_range(s, address, in->left);
    if (!to) return no_range(s, address, in->left);
    if (in->left) memcpy(to, in->at, in->left);
    return RPC_FINE;
}

int32_t rpc_copy_out(rpc_session *s, rpc_reader *in, rpc_writer *out) {
    const uint64_t address = rpc_read_u64(in), nbytes = rpc_read_u64(in);
    if (!rpc_read_all(in)) return rpc_malformed(s);
    const char *from = rpc_find_range(s, address, nbytes);
    if (!from) return no_range(s, address, nbytes);
    out->body = from;
    out->body_bytes = (size_t)nbytes;
    return RPC_FINE;
}

int32_t rpc_copy_across(rpc_session *s, rpc_reader *in, rpc_writer *out) {
    const uint64_t to = rpc_read_u64(in), from = rpc_read_u64(in), nbytes = rpc_read_u64(in);
    (void)out;
    if (!rpc_read_all(in)) return rpc_malformed(s);
    char *target = rpc_find_range(s, to, nbytes);
    const char *source = rpc_find_range(s, from, nbytes);
    if (!target || !source) return no_range(s, target ? from : to, nbytes);
    memmove(target, source, (size_t)nbytes);
    return RPC_FINE;
}
