/* Requests about whole models: programs of the executor, made from code and constants that were sent before. */
#include <stdlib.h>
#include <string.h>

#include "session.h"

enum { ALIGN = 64 };

/* An executable, and what it keeps: it refers to the client's constants and code. */
typedef struct model {
    weft_executable *executable;
    uint64_t *blocks; /* addresses */
    uint32_t *codes;
    uint32_t block_count, code_count;
} model;

static void release(rpc_session *s, model *m) {
    if (!m) return;
    weft_executable_free(m->executable);
    for (uint32_t i = 0; i < m->block_count; i++) rpc_find_block(s, m->blocks[i])->users--;
    for (uint32_t i = 0; i < m->code_count; i++) rpc_find_object(&s->codes, m->codes[i])->users--;
    free(m->blocks);
    free(m->codes);
    free(m);
}

void rpc_free_executable(rpc_session *s, rpc_object *executable) {
    release(s, executable->object);
    rpc_remove_object(&s->executables, executable);
}

/* ---- making ------------------------------------------------------------------------------------------------------ */

/* The parts of an executable while it is made. */
typedef struct making {
    model *made;
    weft_kernel_code *kernels;
    void **constants;
    int64_t *constant_bytes;
} making;

static int32_t find_kernel(rpc_session *s, rpc_reader *in, making *k, uint32_t i) {
    char entry[RPC_NAME];
    const uint32_t number = rpc_read_u32(in);
    rpc_read_name(in, entry);
    if (in->bad) return rpc_malformed(s);
    rpc_object *code = rpc_find_object(&s->codes, number);
    if (!code) return rpc_refuse(s, RPC_NOT_THERE, "there is no code %lu", (unsigned long)number);
    k->kernels[i].function = weft_code_function(code->object, entry);
    if (!k->kernels[i].function) return rpc_refuse(s, RPC_NOT_THERE, "the code has no kernel '%.100s'", entry);
    code->users++;
    k->made->codes[k->made->code_count++] = number;
    return RPC_FINE;
}

static int32_t find_constant(rpc_session *s, rpc_reader *in, making *k, uint32_t i) {
    const uint64_t address = rpc_read_u64(in), nbytes = rpc_read_u64(in);
    if (in->bad) return rpc_malformed(s);
    rpc_block *block = rpc_find_block(s, address);
    char *memory = rpc_find_range(s, address, nbytes);
    if (!memory || (uintptr_t)memory % ALIGN)
        return rpc_refuse(s, RPC_NOT_THERE, "constant %lu does not lie in one allocation, or is not aligned to %d bytes",
                          (unsigned long)i, ALIGN);
    k->constants[i] = memory;
    k->constant_bytes[i] = (int64_t)nbytes;
    block->users++;
    k->made->blocks[k->made->block_count++] = block->address;
    return RPC_FINE;
}

/* Programs with values, such as lists or strings, need a host that reads them. */
static int32_t check_plain(rpc_session *s, const weft_executable *e) {
    bool plain = true;
    for (int32_t i = 0; i < weft_executable_inputs(e); i++) plain = plain && weft_executable_input_element(e, i) > 0;
    for (int32_t i = 0; i < weft_executable_outputs(e); i++) plain = plain && weft_executable_output_element(e, i) > 0;
    return plain ? RPC_FINE : rpc_refuse(s, RPC_BAD_CODE, "the program takes or gives values that are no plain tensors");
}

static int32_t make(rpc_session *s, rpc_reader *in, making *k) {
    const uint64_t address = rpc_read_u64(in), nbytes = rpc_read_u64(in);
    const uint32_t threads = rpc_read_u32(in);
    const int64_t memory_limit = rpc_read_i64(in);
    const uint32_t kernels = rpc_read_count(in, 6), constants = rpc_read_count(in, 16);
    k->made = calloc(1, sizeof *k->made);
    k->kernels = calloc((size_t)kernels + 1, sizeof *k->kernels);
    k->constants = calloc((size_t)constants + 1, sizeof *k->constants);
    k->constant_bytes = calloc((size_t)constants + 1, sizeof *k->constant_bytes);
    if (!k->made || !k->kernels || !k->constants || !k->constant_bytes) return RPC_NO_MEMORY;
    k->made->blocks = calloc((size_t)constants + 1, sizeof *k->made->blocks);
    k->made->codes = calloc((size_t)kernels + 1, sizeof *k->made->codes);
    if (!k->made->blocks || !k->made->codes) return RPC_NO_MEMORY;
    int32_t code = in->bad ? rpc_malformed(s) : RPC_FINE;
    for (uint32_t i = 0; i < kernels && !code; i++) code = find_kernel(s, in, k, i);
    for (uint32_t i = 0; i < constants && !code; i++) code = find_constant(s, in, k, i);
    if (code) return code;
    if (!rpc_read_all(in) || threads < 1 || threads > RPC_MAX_THREADS || memory_limit < 0) return rpc_malformed(s);
    const char *words = rpc_find_range(s, address, nbytes);
    if (!words || (uintptr_t)words % 8 || nbytes % 8)
        return rpc_refuse(s, RPC_NOT_THERE, "the program does not lie in one allocation, as words of 8 bytes");
    const weft_parts parts = {.kernels = k->kernels, .kernel_count = kernels, .constants = k->constants,
                              .constant_bytes = k->constant_bytes, .constant_count = constants};
    if (weft_executable_create((const int64_t *)(const void *)words, (size_t)(nbytes / 8), &parts, (int32_t)threads,
                               &k->made->executable, &s->error))
        return rpc_failed(s, s->error.status == WEFT_ERROR_MEMORY ? RPC_NO_MEMORY : RPC_BAD_CODE);
    weft_executable_set_memory_limit(k->made->executable, memory_limit);
    return check_plain(s, k->made->executable);
}

int32_t rpc_executable(rpc_session *s, rpc_reader *in, rpc_writer *out) {
    making k = {0};
    uint32_t number = 0;
    int32_t code = make(s, in, &k);
    if (!code && !(number = rpc_add_object(&s->executables, k.made))) code = RPC_NO_MEMORY;
    if (code == RPC_NO_MEMORY) (void)rpc_refuse(s, code, "there is no memory for an executable");
    if (code) {
        release(s, k.made);
    } else {
        rpc_write_u32(out, number);
        rpc_write_u32(out, (uint32_t)weft_executable_inputs(k.made->executable));
        rpc_write_u32(out, (uint32_t)weft_executable_outputs(k.made->executable));
    }
    free(k.kernels);
    free(k.constants);
    free(k.constant_bytes);
    return code;
}

int32_t rpc_discard(rpc_session *s, rpc_reader *in, rpc_writer *out) {
    const uint32_t number = rpc_read_u32(in);
    (void)out;
    if (!rpc_read_all(in)) return rpc_malformed(s);
    rpc_object *found = rpc_find_object(&s->executables, number);
    if (!found) return rpc_refuse(s, RPC_NOT_THERE, "there is no executable %lu", (unsigned long)number);
    rpc_free_executable(s, found);
    return RPC_FINE;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* The arguments of runs. `tensors` are the inputs and then the outputs, which the runtime allocates. */
typedef struct arguments {
    weft_executable *executable;
    weft_tensor *tensors;
    int64_t *shapes;
    int32_t inputs, outputs;
    weft_error *error;
} arguments;

static void free_arguments(arguments *a) {
    for (int32_t i = 0; i < a->outputs && a->tensors; i++) weft_free(a->tensors[a->inputs + i].data);
    free(a->tensors);
    free(a->shapes);
}

static int32_t read_input(rpc_session *s, rpc_reader *in, arguments *a, int32_t i, int64_t *shape) {
    const uint64_t address = rpc_read_u64(in);
    const uint32_t ndim = rpc_read_u32(in);
    const int64_t element = weft_executable_input_element(a->executable, i);
    if (ndim > WEFT_MAX_RANK) return rpc_malformed(s);
    int64_t nbytes = element;
    for (uint32_t d = 0; d < ndim; d++) {
        shape[d] = rpc_read_i64(in);
        if (shape[d] < 0 || __builtin_mul_overflow(nbytes, shape[d], &nbytes)) return rpc_malformed(s);
    }
    if (in->bad) return rpc_malformed(s);
    char *data = rpc_find_range(s, address, (uint64_t)nbytes);
    if (!data || (uintptr_t)data % (uintptr_t)element)
        return rpc_refuse(s, RPC_NOT_THERE, "input %ld does not lie in one allocation, or is not aligned", (long)i);
    a->tensors[i] = (weft_tensor){.data = data, .shape = shape, .nbytes = nbytes, .ndim = (int32_t)ndim};
    return RPC_FINE;
}

/* Free them also after a failure. */
static int32_t read_arguments(rpc_session *s, rpc_reader *in, arguments *a) {
    const uint32_t number = rpc_read_u32(in);
    *a = (arguments){.error = &s->error};
    const rpc_object *found = rpc_find_object(&s->executables, number);
    const uint32_t given = rpc_read_count(in, 12);
    if (in->bad) return rpc_malformed(s);
    if (!found) return rpc_refuse(s, RPC_NOT_THERE, "there is no executable %lu", (unsigned long)number);
    a->executable = ((const model *)found->object)->executable;
    a->inputs = weft_executable_inputs(a->executable);
    a->outputs = weft_executable_outputs(a->executable);
    if (given != (uint32_t)a->inputs) return a->outputs = 0, rpc_malformed(s);
    const size_t count = (size_t)a->inputs + (size_t)a->outputs;
    a->tensors = calloc(count + 1, sizeof *a->tensors);
    a->shapes = calloc((count + 1) * WEFT_MAX_RANK, sizeof *a->shapes);
    if (!a->tensors || !a->shapes) return rpc_refuse(s, RPC_NO_MEMORY, "there is no memory for a run");
    for (int32_t i = 0; i < a->inputs; i++) {
        int32_t code = read_input(s, in, a, i, a->shapes + (size_t)i * WEFT_MAX_RANK);
        if (code) return code;
    }
    for (int32_t i = a->inputs; i < (int32_t)count; i++) a->tensors[i].shape = a->shapes + (size_t)i * WEFT_MAX_RANK;
    return RPC_FINE;
}

static int32_t run_once(void *context) {
    const arguments *a = context;
    return weft_run(a->executable, a->tensors, a->tensors + a->inputs, NULL, a->error);
}

/* Calls `run(context)` as code of the client. */
static int32_t run_with_limits(rpc_session *s, int32_t (*run)(void *context), void *context) {
    weft_watch *watch = rpc_begin_code(s);
    if (!watch) return rpc_refuse(s, RPC_NO_MEMORY, "there is no memory for a time limit");
    const int32_t status = run(context);
    const bool late = status && rpc_is_late();
    rpc_end_code(watch);
    if (!status) return RPC_FINE;
    return late ? rpc_refuse(s, RPC_TIMEOUT, "the run was stopped at the time limit of a request")
                : rpc_failed(s, RPC_RUN_FAILED);
}

/* Gives an output to the client, under an address. */
static bool give(rpc_session *s, weft_tensor *t, rpc_writer *out) {
    const uint64_t address = rpc_add_block(s, t->data, t->nbytes);
    if (!address) return false;
    t->data = NULL;
    rpc_write_u64(out, address);
    rpc_write_u64(out, (uint64_t)t->nbytes);
    rpc_write_u32(out, (uint32_t)t->ndim);
    for (int32_t d = 0; d < t->ndim; d++) rpc_write_u64(out, (uint64_t)t->shape[d]);
    return true;
}

int32_t rpc_run(rpc_session *s, rpc_reader *in, rpc_writer *out) {
    arguments a;
    int32_t code = read_arguments(s, in, &a);
    if (!code && !rpc_read_all(in)) code = rpc_malformed(s);
    if (!code) code = run_with_limits(s, run_once, &a);
    if (!code) {
        const size_t before = s->block_count;
        rpc_write_u32(out, (uint32_t)a.outputs);
        bool given = true;
        for (int32_t i = 0; i < a.outputs && given; i++) given = give(s, &a.tensors[a.inputs + i], out);
        while ((!given || out->failed) && s->block_count > before) rpc_remove_block(s, &s->blocks[s->block_count - 1]);
        if (!given || out->failed) code = rpc_refuse(s, RPC_NO_MEMORY, "there is no memory for the results of a run");
    }
    free_arguments(&a);
    return code;
}

int32_t rpc_time_run(rpc_session *s, rpc_reader *in, rpc_writer *out) {
    arguments a;
    rpc_timing t = {.call = run_once, .context = &a, .out = out};
    int32_t code = read_arguments(s, in, &a);
    if (!code) code = rpc_read_timing(s, in, &t);
    if (!code) code = run_with_limits(s, rpc_measure, &t);
    free_arguments(&a);
    return code;
}
