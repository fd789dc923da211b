/* Decodes the register program and checks it. Afterwards every number in it is in range. */
#include <stdlib.h>
#include <string.h>

#include "program.h"

typedef struct reader {
    program *p;
    const int64_t *next, *end;
    bool failed, told, out_of_memory;
    weft_error *error;
} reader;

/* The first message stays: it is the most exact. */
static int32_t malformed(reader *r, const char *what) {
    r->failed = true;
    if (r->told) return WEFT_ERROR_PROGRAM;
    r->told = true;
    return weft_fail(r->error, WEFT_ERROR_PROGRAM, "malformed program: %s", what);
}

static int64_t take(reader *r) {
    if (r->next < r->end) return *r->next++;
    r->failed = true;
    return 0;
}

/* The next word, which must be at least 0 and below `limit`; 0 and `failed` if it is not. */
static int32_t take_below(reader *r, int64_t limit) {
    int64_t value = take(r);
    if (value >= 0 && value < limit && value < INT32_MAX) return (int32_t)value;
    r->failed = true;
    return 0;
}

/* The next word, which must be at least -1 (nothing) and below `limit`. */
static int32_t take_optional(reader *r, int64_t limit) {
    if (r->next >= r->end || *r->next != -1) return take_below(r, limit);
    r->next++;
    return -1;
}

/* A count of items that take at least one word each. */
static int32_t take_count(reader *r) { return take_below(r, r->end - r->next + 1); }

static const int64_t *take_many(reader *r, int32_t count, int64_t limit) {
    const int64_t *first = r->next;
    for (int32_t i = 0; i < count && !r->failed; i++) (void)take_below(r, limit);
    return first;
}

static void decode_expression(reader *r, expression *e) {
    *e = (expression){.count = take_count(r), .stable = true};
    e->words = r->next;
    const int64_t *end = r->next + e->count;
    int depth = 0;
    if (e->count > r->end - r->next) r->failed = true;
    while (!r->failed && r->next < end) {
        int32_t op = take_below(r, EVAL_OPS);
        if (op == EVAL_PUSH) {
            (void)take(r);
            depth++;
        } else if (op == EVAL_LOAD) {
            if (take_below(r, r->p->registers) >= r->p->symbols) e->stable = false;
            depth++;
        } else if (op != EVAL_NOT) {
            depth--;
        }
        if (depth < 1 || depth > MAX_STACK) r->failed = true;
    }
    if (depth != 1 || r->next != end) r->failed = true;
}

static void decode_tensor(reader *r, tensor_spec *t) {
    t->element_bytes = take_below(r, 4096);
    t->is_value = t->element_bytes == 0;
    t->space = take_below(r, (int64_t)r->p->device_count + 1);
    if (t->is_value && t->space) r->failed = true;
    t->ndim = take_below(r, MAX_RANK + 1);
    t->dims = take_many(r, t->ndim, r->p->expression_count);
    t->stable = true;
    for (int32_t i = 0; i < t->ndim && !r->failed; i++) t->stable &= r->p->expressions[t->dims[i]].stable;
}

/* The code of an element type: ELEMENT_OTHER, or 1, 2, 4 or 8 bytes with or without ELEMENT_SIGNED. */
static int32_t take_element(reader *r) {
    const int32_t element = take_below(r, ELEMENT_SIGNED + 9), bytes = element & ~ELEMENT_SIGNED;
    if (element != ELEMENT_OTHER && bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8)
        (void)malformed(r, "an unknown type of elements");
    return element;
}

static void decode_buffer(reader *r, buffer_spec *b) {
    const program *p = r->p;
    const int64_t limits[BUFFER_KINDS] = {p->input_count, p->output_count, p->constant_count, INT32_MAX, INT32_MAX, INT32_MAX};
    b->kind = (buffer_kind)take_below(r, BUFFER_KINDS);
    b->index = take_below(r, limits[b->kind]);
    b->offset = take_below(r, p->expression_count);
    b->nbytes = take_below(r, p->expression_count);
    b->element = take_element(r);
    b->space = take_below(r, (int64_t)p->device_count + 1);
    if (!r->failed && b->kind == BUFFER_ARENA && !(p->expressions[b->offset].stable && p->expressions[b->nbytes].stable))
        (void)malformed(r, "an arena buffer depends on a size known only while running");
    bool given = b->kind == BUFFER_INPUT || b->kind == BUFFER_OUTPUT;
    if (!r->failed && given && b->space != (b->kind == BUFFER_INPUT ? p->inputs : p->outputs)[b->index].space)
        (void)malformed(r, "an argument is in another space than its buffer");
    if (!r->failed && given && (b->kind == BUFFER_INPUT ? p->inputs : p->outputs)[b->index].is_value)
        (void)malformed(r, "a buffer for the elements of an argument that is a value");
    if (!r->failed && b->kind == BUFFER_OBJECT && b->space) (void)malformed(r, "a value outside of main memory");
    if (!r->failed && given && !p->expressions[b->offset].stable)
        (void)malformed(r, "the place of a part of an argument depends on a size known only while running");
}

/* True if the buffer may have no memory when an instruction uses it. */
static bool is_late(const program *p, int64_t buffer) {
    const buffer_spec *b = &p->buffers[buffer];
    return b->kind == BUFFER_DYNAMIC || b->kind == BUFFER_OBJECT || (b->kind == BUFFER_OUTPUT && !p->outputs[b->index].stable);
}

/* A buffer whose elements an instruction of the CPU reads. */
static int32_t take_main(reader *r) {
    int32_t number = take_below(r, r->p->buffer_count);
    if (!r->failed && r->p->buffers[number].space) (void)malformed(r, "the CPU uses a buffer on another device");
    return number;
}

static void decode_call(reader *r, instruction *i, const weft_kernel_code *kernels) {
    program *p = r->p;
    i->a = take_below(r, p->kernel_count);
    i->buffer_count = take_count(r);
    i->size_count = take_count(r);
    i->buffers = take_many(r, i->buffer_count, p->buffer_count);
    i->sizes = take_many(r, i->size_count, p->expression_count);
    if (r->failed) return;
    const int64_t device = p->kernel_devices[i->a];
    i->kernel = kernels[i->a].function;
    if ((device == 0) != (i->op == OP_CALL)) (void)malformed(r, "a kernel of the CPU is launched, or another called");
    if (device == 0 && !i->kernel) (void)malformed(r, "a kernel is missing");
    for (int32_t k = 0; k < i->buffer_count && !r->failed; k++)
        if (p->buffers[i->buffers[k]].space != device) (void)malformed(r, "a kernel gets a buffer of another device");
    if (i->op == OP_LAUNCH) i->launch = take_many(r, 7, p->expression_count);
    if (r->failed) return;
    i->first_slot = p->slot_count;
    i->first_size = p->size_count;
    p->slot_count += i->buffer_count;
    p->size_count += i->size_count;
    for (int32_t k = 0; k < i->buffer_count; k++) i->careful |= is_late(p, i->buffers[k]);
    for (int32_t k = 0; k < i->size_count; k++) i->careful |= !p->expressions[i->sizes[k]].stable;
}

static void decode_copy(reader *r, instruction *i) {
    const program *p = r->p;
    i->a = take_below(r, p->buffer_count);
    i->b = take_below(r, p->buffer_count);
    i->c = take_below(r, p->expression_count);
    if (i->op != OP_COPY) i->d = take_below(r, p->expression_count);
    if (i->op != OP_COPY) i->e = take_below(r, p->expression_count);
    if (r->failed) return;
    if (p->buffers[i->b].kind == BUFFER_INPUT || p->buffers[i->b].kind == BUFFER_CONSTANT)
        (void)malformed(r, "a copy to an input or a constant");
    const bool apart = p->buffers[i->a].space || p->buffers[i->b].space;
    if (apart != (i->op == OP_TRANSFER)) (void)malformed(r, "a copy in main memory is a transfer, or the other way round");
}

static int32_t take_register(reader *r) {
    int32_t number = take_below(r, r->p->registers);
    if (number < r->p->symbols) (void)malformed(r, "an instruction sets a symbol of the inputs");
    return number;
}

static int32_t take_dynamic(reader *r) {
    int32_t number = take_below(r, r->p->buffer_count);
    if (!r->failed && r->p->buffers[number].kind != BUFFER_DYNAMIC) (void)malformed(r, "allocation of a fixed buffer");
    return number;
}

static int32_t take_object(reader *r) {
    int32_t number = take_below(r, r->p->buffer_count);
    if (!r->failed && r->p->buffers[number].kind != BUFFER_OBJECT) (void)malformed(r, "a value in a buffer for elements");
    return number;
}

static const int64_t *take_objects(reader *r, int32_t count) {
    const int64_t *first = r->next;
    for (int32_t i = 0; i < count && !r->failed; i++) (void)take_object(r);
    return first;
}

/* The number of a value port among `ports`. */
static int32_t take_port(reader *r, const tensor_spec *ports, int32_t count) {
    int32_t number = take_below(r, count);
    if (!r->failed && !ports[number].is_value) (void)malformed(r, "a tensor is passed as a value");
    return number;
}

static void decode_function(reader *r, function *f) {
    const program *p = r->p;
    f->entry = take_below(r, (int64_t)p->instruction_count + 1);
    f->first_buffer = take_below(r, (int64_t)p->buffer_count + 1);
    f->end_buffer = take_below(r, (int64_t)p->buffer_count + 1);
    f->first_register = take_below(r, (int64_t)p->registers + 1);
    f->end_register = take_below(r, (int64_t)p->registers + 1);
    f->parameter_count = take_count(r);
    f->captured_count = take_count(r);
    f->result_count = take_count(r);
    f->parameters = take_objects(r, f->parameter_count + f->captured_count);
    if (f->first_buffer > f->end_buffer || f->first_register > f->end_register) r->failed = true;
    if (f->first_register < f->end_register && f->first_register < p->symbols) r->failed = true;
    if (r->failed) return;
    f->kept = malloc(((size_t)(f->end_buffer - f->first_buffer) + 1) * sizeof(int32_t));
    if (!f->kept) r->failed = r->out_of_memory = true;
    for (int32_t b = f->first_buffer; b < f->end_buffer && !r->failed; b++)
        if (p->buffers[b].kind == BUFFER_DYNAMIC || p->buffers[b].kind == BUFFER_OBJECT) f->kept[f->kept_count++] = b;
}

static void decode_shaped(reader *r, instruction *i) {
    i->c = take_below(r, r->p->expression_count);
    i->size_count = take_below(r, MAX_RANK + 1);
    i->sizes = take_many(r, i->size_count, r->p->expression_count);
}

/* Arguments and results are values. */
static void decode_exchange(reader *r, instruction *i) {
    i->buffer_count = take_count(r);
    i->e = take_count(r);
    i->buffers = take_objects(r, i->buffer_count + i->e);
}

static void decode_value_instruction(reader *r, instruction *i) {
    const program *p = r->p;
    switch ((opcode)i->op) {
    case OP_TAKE:
        i->a = take_object(r);
        i->b = take_port(r, p->inputs, p->input_count);
        break;
    case OP_GIVE:
        i->a = take_object(r);
        i->b = take_port(r, p->outputs, p->output_count);
        break;
    case OP_TENSOR:
        i->a = take_object(r);
        decode_shaped(r, i);
        break;
    case OP_VIEW:
        i->a = take_object(r);
        i->b = take_below(r, p->buffer_count);
        if (!r->failed && p->buffers[i->b].space) (void)malformed(r, "a view of memory on another device");
        if (!r->failed && p->buffers[i->b].kind != BUFFER_OBJECT && p->buffers[i->b].kind != BUFFER_INPUT &&
            p->buffers[i->b].kind != BUFFER_CONSTANT)
            (void)malformed(r, "a view of memory that may go away");
        decode_shaped(r, i);
        break;
    case OP_BOX:
        i->a = take_object(r);
        i->c = take_below(r, p->expression_count);
        break;
    case OP_CONSTRUCT:
        i->a = take_object(r);
        i->c = take_below(r, INT32_MAX);
        i->buffer_count = take_count(r);
        i->buffers = take_objects(r, i->buffer_count);
        break;
    case OP_FIELD:
        i->a = take_object(r);
        i->b = take_object(r);
        i->c = take_below(r, INT32_MAX);
        break;
    case OP_SHARE:
        i->a = take_object(r);
        i->b = take_object(r);
        break;
    case OP_INVOKE:
        i->a = take_optional(r, p->function_count);
        i->b = take_optional(r, p->buffer_count);
        i->d = take_below(r, 2);
        decode_exchange(r, i);
        if ((i->a < 0) == (i->b < 0)) r->failed = true;
        if (!r->failed && i->b >= 0 && p->buffers[i->b].kind != BUFFER_OBJECT) r->failed = true;
        break;
    case OP_RETURN:
        i->e = take_count(r);
        i->buffers = take_objects(r, i->e);
        break;
    case OP_HOST:
        i->a = take_below(r, p->host_count);
        decode_exchange(r, i);
        break;
    default: r->failed = true;
    }
}

static void decode_check_range(reader *r, instruction *i) {
    const program *p = r->p;
    i->a = take_main(r);
    i->c = take_below(r, p->expression_count);
    i->size_count = take_below(r, MAX_RANK + 1);
    i->sizes = take_many(r, 2 * i->size_count, p->expression_count);
    if (!r->failed && (i->size_count == 0 || p->buffers[i->a].element == ELEMENT_OTHER))
        (void)malformed(r, "a check of a range has no columns, or a buffer that does not hold integers");
}

static void decode_instruction(reader *r, instruction *i, const weft_kernel_code *kernels) {
    const program *p = r->p;
    *i = (instruction){.op = (uint8_t)take_below(r, OPCODES)};
    switch ((opcode)i->op) {
    case OP_CALL:
    case OP_LAUNCH: decode_call(r, i, kernels); break;
    case OP_COPY:
    case OP_COPY_PART:
    case OP_TRANSFER: decode_copy(r, i); break;
    case OP_SET:
        i->a = take_register(r);
        i->c = take_below(r, p->expression_count);
        break;
    case OP_READ:
        i->a = take_register(r);
        i->b = take_main(r);
        i->c = take_below(r, INT32_MAX);
        if (!r->failed && p->buffers[i->b].element == ELEMENT_OTHER)
            (void)malformed(r, "a size is read from a buffer that does not hold integers");
        break;
    case OP_ALLOCATE:
    case OP_RESERVE:
        i->a = take_dynamic(r);
        i->c = take_below(r, p->expression_count);
        break;
    case OP_FREE:
        i->a = take_below(r, p->buffer_count);
        if (!r->failed && p->buffers[i->a].kind != BUFFER_DYNAMIC && p->buffers[i->a].kind != BUFFER_OBJECT)
            (void)malformed(r, "a fixed buffer is freed");
        break;
    case OP_TAG:
    case OP_EXTENT:
        i->a = take_register(r);
        i->b = take_object(r);
        if (i->op == OP_EXTENT) i->c = take_below(r, MAX_RANK);
        break;
    case OP_CHECK: i->c = take_below(r, p->expression_count); break;
    case OP_CHECK_RANGE: decode_check_range(r, i); break;
    case OP_JUMP: i->a = take_below(r, (int64_t)p->instruction_count + 1); break;
    case OP_JUMP_UNLESS:
        i->a = take_below(r, (int64_t)p->instruction_count + 1);
        i->c = take_below(r, p->expression_count);
        break;
    default: decode_value_instruction(r, i);
    }
}

/* Lists the call arguments that use each buffer. */
static int32_t list_slots(reader *r) {
    program *p = r->p;
    p->slot_list = malloc(((size_t)p->slot_count + 1) * sizeof(int32_t));
    if (!p->slot_list) return weft_fail(r->error, WEFT_ERROR_MEMORY, "out of memory while loading a program");
    for (int32_t i = 0; i < p->instruction_count; i++)
        for (int32_t k = 0; weft_has_arguments(&p->instructions[i]) && k < p->instructions[i].buffer_count; k++)
            p->buffers[p->instructions[i].buffers[k]].slot_end++;
    int32_t at = 0;
    for (int32_t b = 0; b < p->buffer_count; b++) {
        p->buffers[b].slot_begin = at;
        at += p->buffers[b].slot_end;
        p->buffers[b].slot_end = p->buffers[b].slot_begin;
    }
    for (int32_t i = 0; i < p->instruction_count; i++) {
        const instruction *c = &p->instructions[i];
        for (int32_t k = 0; weft_has_arguments(c) && k < c->buffer_count; k++) p->slot_list[p->buffers[c->buffers[k]].slot_end++] = c->first_slot + k;
    }
    return WEFT_OK;
}

/* Every symbol must be a whole dimension of an input; symbols are numbered in the order of their first dimension.
 * Dimensions of inputs must not depend on values that a run computes. */
static int32_t check_symbols(reader *r) {
    const program *p = r->p;
    int32_t bound = 0;
    for (int32_t i = 0; i < p->input_count; i++) {
        for (int32_t d = 0; d < p->inputs[i].ndim; d++) {
            const expression *e = &p->expressions[p->inputs[i].dims[d]];
            if (e->count != 2 || e->words[0] != EVAL_LOAD || e->words[1] < bound) continue;
            if (e->words[1] > bound) return malformed(r, "symbols are not numbered in the order of the inputs");
            bound++;
        }
    }
    if (bound != p->symbols) return malformed(r, "a symbol is no dimension of any input");
    for (int32_t i = 0; i < p->input_count; i++)
        if (!p->inputs[i].stable) return malformed(r, "the shape of an input depends on the run");
    bool stable = p->expressions[p->arena].stable;
    for (int32_t i = 0; i < p->device_count; i++) stable &= p->expressions[p->arenas[i]].stable;
    if (!stable) return malformed(r, "the size of the arena depends on the run");
    return WEFT_OK;
}

static void decode_header(reader *r) {
    program *p = r->p;
    if (take(r) != PROGRAM_MAGIC || take(r) != PROGRAM_VERSION) r->failed = true;
    p->registers = take_below(r, 1 << 24);
    p->symbols = take_below(r, (int64_t)p->registers + 1);
    p->expression_count = take_count(r);
    p->input_count = take_count(r);
    p->output_count = take_count(r);
    p->buffer_count = take_count(r);
    p->kernel_count = take_below(r, 1 << 24);
    p->constant_count = take_below(r, 1 << 24);
    p->function_count = take_count(r);
    p->host_count = take_below(r, 1 << 24);
    p->device_count = take_count(r);
    p->instruction_count = take_count(r);
    p->arena = take_below(r, p->expression_count);
}

static void *table(int32_t count, size_t size) { return calloc((size_t)count + 1, size); }

static int32_t decode(reader *r, const weft_parts *parts) {
    program *p = r->p;
    decode_header(r);
    if (r->failed) return malformed(r, "bad header");
    if ((size_t)p->kernel_count != parts->kernel_count || (size_t)p->constant_count != parts->constant_count ||
        (size_t)p->device_count != parts->device_count)
        return malformed(r, "wrong number of kernels, constants or devices");
    p->expressions = table(p->expression_count, sizeof(expression));
    p->inputs = table(p->input_count, sizeof(tensor_spec));
    p->outputs = table(p->output_count, sizeof(tensor_spec));
    p->buffers = table(p->buffer_count, sizeof(buffer_spec));
    p->functions = table(p->function_count, sizeof(function));
    p->instructions = table(p->instruction_count, sizeof(instruction));
    if (!p->expressions || !p->inputs || !p->outputs || !p->buffers || !p->functions || !p->instructions)
        return weft_fail(r->error, WEFT_ERROR_MEMORY, "out of memory while loading a program");
    for (int32_t i = 0; i < p->expression_count && !r->failed; i++) decode_expression(r, &p->expressions[i]);
    if (r->failed) return malformed(r, "bad size expression");
    p->arenas = take_many(r, p->device_count, p->expression_count);
    for (int32_t i = 0; i < p->input_count && !r->failed; i++) decode_tensor(r, &p->inputs[i]);
    for (int32_t i = 0; i < p->output_count && !r->failed; i++) decode_tensor(r, &p->outputs[i]);
    if (r->failed) return malformed(r, "bad device, input or output");
    for (int32_t i = 0; i < p->buffer_count && !r->failed; i++) decode_buffer(r, &p->buffers[i]);
    if (r->failed) return malformed(r, "bad buffer");
    p->kernel_devices = take_many(r, p->kernel_count, (int64_t)p->device_count + 1);
    if (r->failed) return malformed(r, "bad kernel");
    for (int32_t i = 0; i < p->function_count && !r->failed; i++) decode_function(r, &p->functions[i]);
    if (r->out_of_memory) return weft_fail(r->error, WEFT_ERROR_MEMORY, "out of memory while loading a program");
    if (r->failed) return malformed(r, "bad function");
    for (int32_t i = 0; i < p->instruction_count; i++) {
        decode_instruction(r, &p->instructions[i], parts->kernels);
        if (!r->failed) continue;
        malformed(r, "bad instruction");
        if (r->error) r->error->instruction = i;
        return WEFT_ERROR_PROGRAM;
    }
    if (r->next != r->end) return malformed(r, "words are left over");
    int32_t status = check_symbols(r);
    return status ? status : list_slots(r);
}

int32_t weft_program_decode(program *p, const int64_t *words, size_t count, const weft_parts *parts, weft_error *error) {
    *p = (program){0};
    if (count > INT32_MAX) return weft_fail(error, WEFT_ERROR_PROGRAM, "malformed program: too long");
    p->words = malloc((count + 1) * sizeof *words);
    if (!p->words) return weft_fail(error, WEFT_ERROR_MEMORY, "out of memory while loading a program");
    if (count) memcpy(p->words, words, count * sizeof *words);
    reader r = {.p = p, .next = p->words, .end = p->words + count, .error = error};
    int32_t status = decode(&r, parts);
    if (status) weft_program_free(p);
    return status;
}

void weft_program_free(program *p) {
    free(p->words);
    free(p->expressions);
    free(p->inputs);
    free(p->outputs);
    free(p->buffers);
    for (int32_t i = 0; p->functions && i < p->function_count; i++) free(p->functions[i].kept);
    free(p->functions);
    free(p->instructions);
    free(p->slot_list);
    *p = (program){0};
}
