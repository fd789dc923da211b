/* Requests about single kernels: loading code, calling it, measuring it. */
#include <stdlib.h>

#include "session.h"

enum { MAX_REPEAT = 1 << 20, MAX_CALLS = 1 << 30, MAX_EVICTED = 1 << 30 };

int32_t rpc_load(rpc_session *s, rpc_reader *in, rpc_writer *out) {
    char format[RPC_NAME], entry[RPC_NAME];
    rpc_read_name(in, format);
    rpc_read_name(in, entry);
    const uint64_t address = rpc_read_u64(in), nbytes = rpc_read_u64(in);
    if (!rpc_read_all(in)) return rpc_malformed(s);
    if (format[0] != 'e' || format[1] != 'l' || format[2] != 'f' || format[3])
        return rpc_refuse(s, RPC_BAD_CODE, "code of the format '%.60s' cannot be loaded, only 'elf'", format);
    const char *object = rpc_find_range(s, address, nbytes);
    if (!object) return rpc_refuse(s, RPC_NOT_THERE, "the code does not lie in one allocation");
    weft_code *code;
    if (weft_code_load(object, (size_t)nbytes, 0, &code, &s->error))
        return rpc_failed(s, s->error.status == WEFT_ERROR_MEMORY ? RPC_NO_MEMORY : RPC_BAD_CODE);
    if (entry[0] && !weft_code_function(code, entry)) {
        weft_code_free(code);
        return rpc_refuse(s, RPC_BAD_CODE, "the code has no kernel '%.100s'", entry);
    }
    const uint32_t number = rpc_add_object(&s->codes, code);
    if (!number) {
        weft_code_free(code);
        return rpc_refuse(s, RPC_NO_MEMORY, "there is no memory for code");
    }
    rpc_write_u32(out, number);
    return RPC_FINE;
}

int32_t rpc_unload(rpc_session *s, rpc_reader *in, rpc_writer *out) {
    const uint32_t number = rpc_read_u32(in);
    (void)out;
    if (!rpc_read_all(in)) return rpc_malformed(s);
    rpc_object *code = rpc_find_object(&s->codes, number);
    if (!code || code->users)
        return rpc_refuse(s, RPC_NOT_THERE, code ? "code %lu is in use" : "there is no code %lu", (unsigned long)number);
    weft_code_free(code->object);
    rpc_remove_object(&s->codes, code);
    return RPC_FINE;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

typedef struct call {
    weft_kernel kernel;
    uint32_t threads, buffer_count, size_count;
    void **buffers;
    int64_t *sizes;
} call;

static void free_call(call *c) {
    free(c->buffers);
    free(c->sizes);
}

static int32_t read_operands(rpc_session *s, rpc_reader *in, call *c) {
    c->buffer_count = rpc_read_count(in, 8);
    c->size_count = rpc_read_count(in, 8);
    c->buffers = calloc((size_t)c->buffer_count + 1, sizeof *c->buffers);
    c->sizes = calloc((size_t)c->size_count + 1, sizeof *c->sizes);
    if (!c->buffers || !c->sizes) return rpc_refuse(s, RPC_NO_MEMORY, "there is no memory for a call");
    for (uint32_t i = 0; i < c->buffer_count && !in->bad; i++) {
        const uint64_t address = rpc_read_u64(in);
        c->buffers[i] = rpc_find_range(s, address, 0);
        if (!c->buffers[i] && !in->bad)
            return rpc_refuse(s, RPC_NOT_THERE, "buffer %lu of a call has the address %llu, which is not allocated",
                              (unsigned long)i, (unsigned long long)address);
    }
    for (uint32_t i = 0; i < c->size_count; i++) c->sizes[i] = rpc_read_i64(in);
    return RPC_FINE;
}

/* Free it also after a failure. */
static int32_t read_call(rpc_session *s, rpc_reader *in, call *c) {
    char entry[RPC_NAME];
    *c = (call){0};
    const uint32_t number = rpc_read_u32(in);
    rpc_read_name(in, entry);
    c->threads = rpc_read_u32(in);
    int32_t code = read_operands(s, in, c);
    if (code || in->bad) return code ? code : rpc_malformed(s);
    if (c->threads < 1 || c->threads > RPC_MAX_THREADS)
        return rpc_refuse(s, RPC_MALFORMED, "%lu threads are not possible", (unsigned long)c->threads);
    const rpc_object *loaded = rpc_find_object(&s->codes, number);
    if (!loaded) return rpc_refuse(s, RPC_NOT_THERE, "there is no code %lu", (unsigned long)number);
    c->kernel = weft_code_function(loaded->object, entry);
    return c->kernel ? RPC_FINE : rpc_refuse(s, RPC_NOT_THERE, "the code has no kernel '%.100s'", entry);
}

static int32_t call_once(void *context) {
    const call *c = context;
    return c->kernel(c->buffers, c->sizes);
}

static int32_t report(rpc_session *s, int32_t result, bool late) {
    if (late) return rpc_refuse(s, RPC_TIMEOUT, "the kernel was stopped at the time limit of a request");
    if (!result) return RPC_FINE;
    (void)rpc_refuse(s, RPC_KERNEL, "the kernel reported error %ld", (long)result);
    s->error.given = result;
    return RPC_KERNEL;
}

/* Calls `run(context)` as code of the client, with the threads of the call. */
static int32_t call_with_limits(rpc_session *s, const call *c, int32_t (*run)(void *context), void *context) {
    weft_watch *watch = rpc_begin_code(s);
    if (!watch) return rpc_refuse(s, RPC_NO_MEMORY, "there is no memory for a time limit");
    void *token = weft_parallel_begin((int32_t)c->threads);
    const int32_t result = run(context);
    weft_parallel_end(token);
    const bool late = result && rpc_is_late();
    rpc_end_code(watch);
    return report(s, result, late);
}

int32_t rpc_launch(rpc_session *s, rpc_reader *in, rpc_writer *out) {
    call c;
    (void)out;
    int32_t code = read_call(s, in, &c);
    if (!code && !rpc_read_all(in)) code = rpc_malformed(s);
    if (!code) code = call_with_limits(s, &c, call_once, &c);
    free_call(&c);
    return code;
}

int32_t rpc_read_timing(rpc_session *s, rpc_reader *in, rpc_timing *t) {
    t->repeat = rpc_read_u32(in);
    t->least = rpc_read_u64(in);
    if (!rpc_read_all(in)) return rpc_malformed(s);
    if (t->repeat && t->repeat <= MAX_REPEAT && 8 * (uint64_t)t->repeat <= s->link->out.limit) return RPC_FINE;
    return rpc_refuse(s, RPC_MALFORMED, "%lu measurements are not possible in one request", (unsigned long)t->repeat);
}

int32_t rpc_measure(void *timing) {
    const rpc_timing *t = timing;
    int64_t calls = 1;
    int32_t result = t->call(t->context);
    for (uint32_t i = 0; i < t->repeat && !result; i++) {
        for (;;) {
            const int64_t start = weft_nanoseconds();
            for (int64_t k = 0; k < calls && !result; k++) result = t->call(t->context);
            const int64_t taken = weft_nanoseconds() - start;
            if (!result && rpc_is_late()) result = INT32_MIN;
            if (result || (uint64_t)taken >= t->least || calls >= MAX_CALLS) {
                rpc_write_f64(t->out, (double)taken / (double)calls);
                break;
            }
            /* A fifth more than was needed, so that the next measurements do not fall short again. */
            const double wanted = 1.2 * (double)calls * (double)t->least / (double)(taken > 0 ? taken : 1);
            calls = wanted > 10.0 * (double)calls ? 10 * calls : (int64_t)wanted + 1;
            if (calls > MAX_CALLS) calls = MAX_CALLS;
        }
    }
    return result;
}

int32_t rpc_time(rpc_session *s, rpc_reader *in, rpc_writer *out) {
    call c;
    rpc_timing t = {.call = call_once, .context = &c, .out = out};
    int32_t code = read_call(s, in, &c);
    if (!code) code = rpc_read_timing(s, in, &t);
    if (!code) code = call_with_limits(s, &c, rpc_measure, &t);
    free_call(&c);
    return code;
}

static int32_t measure_cold(void *timing) {
    const rpc_timing *t = timing;
    int32_t result = 0;
    for (uint32_t i = 0; i < t->repeat && !result; i++) {
        weft_evict_caches(t->other, (int64_t)t->least);
        const int64_t start = weft_nanoseconds();
        result = t->call(t->context);
        rpc_write_f64(t->out, (double)(weft_nanoseconds() - start));
        if (!result && rpc_is_late()) result = INT32_MIN;
    }
    return result;
}

int32_t rpc_time_cold(rpc_session *s, rpc_reader *in, rpc_writer *out) {
    call c;
    rpc_timing t = {.call = call_once, .context = &c, .out = out};
    int32_t code = read_call(s, in, &c);
    if (!code) code = rpc_read_timing(s, in, &t);
    if (!code && t.least > MAX_EVICTED)
        code = rpc_refuse(s, RPC_MALFORMED, "%llu bytes are more than caches have", (unsigned long long)t.least);
    if (!code && !(t.other = calloc(1, (size_t)t.least + 1)))
        code = rpc_refuse(s, RPC_NO_MEMORY, "there is no memory to empty caches with");
    if (!code) code = call_with_limits(s, &c, measure_cold, &t);
    free(t.other);
    free_call(&c);
    return code;
}

int32_t rpc_synchronize(rpc_session *s, rpc_reader *in, rpc_writer *out) {
    (void)out;
    return rpc_read_all(in) ? RPC_FINE : rpc_malformed(s); /* calls have ended when they are answered */
}
