/* Runs register programs.
 *
 * A *frame* contains the state of one run: symbols, values of size expressions, buffer addresses, the argument arrays of
 * all calls, and the arena. Frames are reused. A run has exclusive use of a frame, so concurrent runs of one executable
 * share no memory. If the symbols are those of the frame's last run, a run only fills in the addresses of inputs and
 * outputs and executes the instructions: it allocates nothing and evaluates no expressions. */
#include <stdlib.h>
#include <string.h>

#include "execute.h"

typedef enum output_state { OUTPUT_UNKNOWN, OUTPUT_GIVEN, OUTPUT_OWNED } output_state;

enum { COPY_PIECE = 16 << 20 }; /* bytes that are copied in few milliseconds */

static _Alignas(WEFT_ALIGN) char nothing[WEFT_ALIGN]; /* the address of empty tensors */

/* ---- frames ------------------------------------------------------------------------------------------------------ */

static void free_kept(weft_executable *e, int32_t space, kept_memory *m) {
    weft_space_free(e, space, m->address, m->nbytes);
    *m = (kept_memory){0};
}

/* Frees the memory of a frame that no run uses. The next run in it gets new memory. */
static void empty_frame(weft_executable *e, frame *f) {
    const program *p = &e->program;
    f->ready = false;
    for (int32_t s = 0; f->arenas && s <= p->device_count; s++) free_kept(e, s, &f->arenas[s]);
    for (int32_t i = 0; f->staged && i < p->input_count + p->output_count; i++)
        free_kept(e, (i < p->input_count ? p->inputs[i] : p->outputs[i - p->input_count]).space, &f->staged[i]);
}

static void free_frame(weft_executable *e, frame *f) {
    if (!f) return;
    empty_frame(e, f);
    free(f->registers);
    free(f->values);
    free(f->bad);
    free(f->pointers);
    free(f->capacities);
    free(f->objects);
    free(f->live);
    weft_free_activations(f);
    free(f->slots);
    free(f->sizes);
    free(f->output_states);
    free(f->arenas);
    free(f->staged);
    free(f->is_staged);
    free(f);
}

static void *zeros(int32_t count, size_t size) { return calloc((size_t)count + 1, size); }

static frame *new_frame(weft_executable *e) {
    const program *p = &e->program;
    frame *f = calloc(1, sizeof *f);
    if (!f) return NULL;
    atomic_flag_clear(&f->busy);
    f->registers = zeros(p->registers, sizeof(int64_t));
    f->values = zeros(p->expression_count, sizeof(int64_t));
    f->bad = zeros(p->expression_count, sizeof(bool));
    f->pointers = zeros(p->buffer_count, sizeof(void *));
    f->capacities = zeros(p->buffer_count, sizeof(int64_t));
    f->objects = zeros(p->buffer_count, sizeof(weft_value *));
    f->live = zeros(p->function_count, sizeof(bool));
    f->slots = zeros(p->slot_count, sizeof(void *));
    f->sizes = zeros(p->size_count, sizeof(int64_t));
    f->output_states = zeros(p->output_count, 1);
    f->arenas = zeros(p->device_count, sizeof(kept_memory));
    if (f->registers && f->values && f->bad && f->pointers && f->capacities && f->objects && f->live && f->slots && f->sizes &&
        f->output_states && f->arenas)
        return f;
    free_frame(e, f);
    return NULL;
}

static frame *borrow_frame(weft_executable *e) {
    for (frame *f = atomic_load(&e->frames); f; f = f->next)
        if (!atomic_flag_test_and_set(&f->busy)) return f;
    frame *f = new_frame(e);
    if (!f) return NULL;
    (void)atomic_flag_test_and_set(&f->busy);
    f->next = atomic_load(&e->frames);
    while (!atomic_compare_exchange_weak(&e->frames, &f->next, f)) {}
    return f;
}

void weft_set_buffer(const program *p, frame *f, int32_t buffer, void *address, int64_t capacity) {
    const buffer_spec *b = &p->buffers[buffer];
    f->pointers[buffer] = address;
    f->capacities[buffer] = capacity;
    for (int32_t i = b->slot_begin; i < b->slot_end; i++) f->slots[p->slot_list[i]] = address;
}

/* ---- binding symbols and what depends on them -------------------------------------------------------------------- */

int32_t weft_fail_at(run *r, int32_t status, int32_t index, int64_t at, const char *message) {
    (void)weft_fail(r->error, status, "%s", message);
    if (r->error) r->error->index = index, r->error->instruction = at;
    return status;
}

static int32_t fail_shape(run *r, int32_t status, int32_t index, int32_t axis, int64_t expected, int64_t given) {
    (void)weft_fail(r->error, status, axis < 0 ? "input %d has the wrong rank" : "input %d has the wrong shape", index);
    if (r->error) {
        r->error->index = index, r->error->axis = axis;
        r->error->expected = expected, r->error->given = given;
    }
    return status;
}

/* Evaluates the expressions that depend on symbols only. Values that every run needs must be valid. */
static int32_t refresh(run *r) {
    const program *p = r->p;
    frame *f = r->f;
    f->has_bad_values = false;
    for (int32_t i = 0; i < p->expression_count; i++) {
        if (!p->expressions[i].stable) continue;
        f->bad[i] = !weft_size_evaluate(&p->expressions[i], f->registers, &f->values[i]);
        f->has_bad_values |= f->bad[i];
    }
    for (int32_t s = 0; s <= p->device_count; s++) {
        const int64_t number = s ? p->arenas[s - 1] : p->arena;
        if (f->bad[number] || f->values[number] < 0)
            return weft_fail_at(r, WEFT_ERROR_ARITHMETIC, -1, -1, "the size of the arena is out of range");
        int32_t status = weft_keep(r->executable, s, &f->arenas[s], f->values[number], r->error);
        if (status) return status;
    }
    for (int32_t i = 0; i < p->buffer_count; i++) {
        const buffer_spec *b = &p->buffers[i];
        f->has_bad_values |= b->kind == BUFFER_ARENA && (f->bad[b->nbytes] || f->values[b->nbytes] < 0);
    }
    for (int32_t i = 0; i < p->buffer_count; i++) {
        const buffer_spec *b = &p->buffers[i];
        int64_t offset = f->values[b->offset], nbytes = f->values[b->nbytes];
        if (b->kind == BUFFER_CONSTANT)
            weft_set_buffer(p, f, i, b->space ? r->executable->uploaded[i] : r->executable->constant_table[b->index],
                            r->executable->constant_sizes[b->index]);
        if (b->kind != BUFFER_ARENA) continue;
        const int64_t arena_bytes = f->values[b->space ? p->arenas[b->space - 1] : p->arena];
        if (!f->bad[b->offset] && !f->bad[b->nbytes] && offset >= 0 && nbytes >= 0 && offset <= arena_bytes &&
            nbytes <= arena_bytes - offset)
            weft_set_buffer(p, f, i, (char *)f->arenas[b->space].address + offset, nbytes);
        else if (f->has_bad_values) /* no memory: a check refuses the inputs, or the branch with the buffer is not run */
            weft_set_buffer(p, f, i, NULL, 0);
        else
            return weft_fail_at(r, WEFT_ERROR_BOUNDS, i, -1, "a buffer lies outside the arena");
    }
    for (int32_t i = 0; i < p->instruction_count; i++)
        for (int32_t k = 0; weft_has_arguments(&p->instructions[i]) && k < p->instructions[i].size_count; k++)
            f->sizes[p->instructions[i].first_size + k] = f->values[p->instructions[i].sizes[k]];
    f->ready = true;
    return WEFT_OK;
}

static int32_t bind_inputs(run *r, const weft_tensor *inputs) {
    const program *p = r->p;
    frame *f = r->f;
    bool changed = !f->ready;
    int32_t bound = -1; /* symbols are numbered in the order of their first dimension */
    for (int32_t i = 0; i < p->input_count; i++)
        if (inputs[i].ndim != p->inputs[i].ndim)
            return fail_shape(r, WEFT_ERROR_RANK, i, -1, p->inputs[i].ndim, inputs[i].ndim);
    for (int32_t i = 0; i < p->input_count; i++) {
        const tensor_spec *t = &p->inputs[i];
        for (int32_t d = 0; d < t->ndim && bound < p->symbols - 1; d++) {
            const expression *e = &p->expressions[t->dims[d]];
            if (e->count != 2 || e->words[0] != EVAL_LOAD || e->words[1] <= bound) continue;
            bound = (int32_t)e->words[1];
            changed |= f->registers[bound] != inputs[i].shape[d];
            f->registers[bound] = inputs[i].shape[d];
        }
    }
    if (changed) {
        f->ready = false;
        int32_t status = refresh(r);
        if (status) return status;
    }
    for (int32_t i = 0; i < p->input_count; i++) {
        const tensor_spec *t = &p->inputs[i];
        for (int32_t d = 0; d < t->ndim; d++) {
            int64_t expected = f->values[t->dims[d]];
            if (f->bad[t->dims[d]] || expected != inputs[i].shape[d])
                return fail_shape(r, WEFT_ERROR_SHAPE, i, d, expected, inputs[i].shape[d]);
        }
    }
    return WEFT_OK;
}

/* ---- values and memory during a run ------------------------------------------------------------------------------ */

int32_t weft_value_of(run *r, int64_t number, int64_t at, int64_t *value) {
    const expression *e = &r->p->expressions[number];
    if (e->stable && !r->f->bad[number]) {
        *value = r->f->values[number];
    } else if (!weft_size_evaluate(e, r->f->registers, value)) {
        return weft_fail_at(r, WEFT_ERROR_ARITHMETIC, -1, at, "a size overflows or divides by zero");
    }
    return WEFT_OK;
}

/* Fills in the shape of output `index` and ensures that it has memory. */
static int32_t prepare_output(run *r, int32_t index, int64_t at) {
    const tensor_spec *t = &r->p->outputs[index];
    weft_tensor *out = &r->outputs[index];
    int64_t nbytes = t->element_bytes;
    out->ndim = t->ndim;
    for (int32_t d = 0; d < t->ndim; d++) {
        int64_t extent;
        int32_t status = weft_value_of(r, t->dims[d], at, &extent);
        if (status) return status;
        if (extent < 0 || (extent && nbytes > INT64_MAX / extent))
            return weft_fail_at(r, WEFT_ERROR_ARITHMETIC, index, at, "the shape of an output is out of range");
        nbytes *= extent;
        out->shape[d] = extent;
    }
    if (out->data && out->nbytes < nbytes)
        return weft_fail_at(r, WEFT_ERROR_BOUNDS, index, at, "the memory given for an output is too small");
    out->nbytes = nbytes;
    r->f->output_states[index] = OUTPUT_GIVEN;
    if (!out->data) {
        out->device = NULL;
        out->data = weft_alloc_large(nbytes);
        if (!out->data) return weft_fail_at(r, WEFT_ERROR_MEMORY, index, at, "out of memory for an output");
        r->f->output_states[index] = OUTPUT_OWNED;
    }
    return weft_stage_output(r, index, nbytes, at);
}

static int32_t set_outputs(run *r) {
    for (int32_t i = 0; i < r->p->output_count; i++) r->outputs[i].value = NULL;
    for (int32_t i = 0; i < r->p->output_count; i++) {
        if (!r->p->outputs[i].stable || r->p->outputs[i].is_value) continue;
        int32_t status = prepare_output(r, i, -1);
        if (status) return status;
    }
    return WEFT_OK;
}

/* A buffer in the caller's memory: all of it, or the part that the program specifies. */
static int32_t set_argument(run *r, int32_t buffer, void *address, int64_t capacity) {
    const buffer_spec *b = &r->p->buffers[buffer];
    int64_t offset = r->f->values[b->offset];
    if (WEFT_LIKELY(offset == 0)) {
        weft_set_buffer(r->p, r->f, buffer, address, capacity);
        return WEFT_OK;
    }
    int64_t nbytes = r->f->values[b->nbytes];
    if (!r->p->expressions[b->nbytes].stable || r->f->bad[b->offset] || r->f->bad[b->nbytes] || offset < 0 ||
        nbytes < 0 || offset > capacity || nbytes > capacity - offset)
        return weft_fail_at(r, WEFT_ERROR_BOUNDS, buffer, -1, "a buffer lies outside the memory of an argument");
    weft_set_buffer(r->p, r->f, buffer, (char *)address + offset, nbytes);
    return WEFT_OK;
}

static int32_t set_arguments(run *r, const weft_tensor *inputs) {
    const program *p = r->p;
    int32_t status = WEFT_OK;
    for (int32_t i = 0; i < p->buffer_count; i++) {
        const buffer_spec *b = &p->buffers[i];
        int32_t found = WEFT_OK;
        if (b->kind == BUFFER_INPUT) {
            const weft_tensor *t = &inputs[b->index];
            int64_t nbytes = p->inputs[b->index].element_bytes;
            for (int32_t d = 0; d < t->ndim; d++) nbytes *= t->shape[d];
            void *data = weft_input_address(r, b->index);
            found = set_argument(r, i, data ? data : nothing, nbytes);
        } else if (b->kind == BUFFER_OUTPUT) {
            bool known = p->outputs[b->index].stable && !p->outputs[b->index].is_value;
            if (known)
                found = set_argument(r, i, weft_output_address(r, b->index), r->outputs[b->index].nbytes);
            else
                weft_set_buffer(p, r->f, i, NULL, 0);
        } else if (b->kind == BUFFER_DYNAMIC || b->kind == BUFFER_OBJECT) {
            weft_set_buffer(p, r->f, i, NULL, 0);
        }
        if (!status) status = found;
    }
    return status;
}

/* Makes sure that a buffer has memory; outputs of unknown shape get theirs when first used. */
int32_t weft_need_buffer(run *r, int32_t buffer, int64_t at) {
    const buffer_spec *b = &r->p->buffers[buffer];
    if (WEFT_LIKELY(r->f->pointers[buffer] != NULL)) return WEFT_OK;
    if (b->kind == BUFFER_ARENA) return weft_fail_at(r, WEFT_ERROR_ARITHMETIC, buffer, at, "the size of a buffer is out of range");
    if (b->kind != BUFFER_OUTPUT) return weft_fail_at(r, WEFT_ERROR_UNALLOCATED, buffer, at, "a buffer is used without memory");
    int32_t status = prepare_output(r, b->index, at);
    for (int32_t i = 0; i < r->p->buffer_count && !status; i++)
        if (r->p->buffers[i].kind == BUFFER_OUTPUT && r->p->buffers[i].index == b->index)
            status = set_argument(r, i, weft_output_address(r, b->index), r->outputs[b->index].nbytes);
    return status;
}

/* ---- instructions ------------------------------------------------------------------------------------------------ */

static int32_t prepare_call(run *r, const instruction *i, int64_t at) {
    int32_t status = WEFT_OK;
    for (int32_t k = 0; k < i->size_count && !status; k++)
        status = weft_value_of(r, i->sizes[k], at, &r->f->sizes[i->first_size + k]);
    for (int32_t k = 0; k < i->buffer_count && !status; k++) status = weft_need_buffer(r, (int32_t)i->buffers[k], at);
    return status;
}

WEFT_INLINE int32_t call(run *r, const instruction *i, int64_t at) {
    if (i->careful || r->f->has_bad_values) {
        int32_t status = prepare_call(r, i, at);
        if (status) return status;
    }
    int32_t result = i->kernel(r->f->slots + i->first_slot, r->f->sizes + i->first_size);
    if (WEFT_LIKELY(result == 0)) return WEFT_OK;
    if (r->watch && weft_watch_stopped(r->watch)) return WEFT_OK; /* the caller says why */
    (void)weft_fail_at(r, WEFT_ERROR_KERNEL, i->a, at, "a kernel reported an error");
    if (r->error) r->error->given = result;
    return WEFT_ERROR_KERNEL;
}

/* Ensures that a buffer has memory that a copy may change. Values never change, but for a tensor that was just made: others
 * may show memory of the caller, or be in other values too. */
static int32_t need_target(run *r, int32_t buffer, int64_t at) {
    int32_t status = weft_need_buffer(r, buffer, at);
    if (!status && r->f->objects[buffer] && !weft_value_is_own(r->f->objects[buffer]))
        status = weft_fail_at(r, WEFT_ERROR_PROGRAM, buffer, at, "malformed program: a copy to a value that is in use");
    return status;
}

static int32_t fail_stopped(run *r, int64_t at);

/* Copies bytes in main memory; under a watch, large ranges that do not overlap in pieces, between which it may stop. */
static int32_t move_bytes(run *r, char *to, const char *from, int64_t nbytes, int64_t at) {
    while (r->watch && nbytes > COPY_PIECE && (to + nbytes <= from || from + nbytes <= to)) {
        memcpy(to, from, COPY_PIECE);
        to += COPY_PIECE, from += COPY_PIECE, nbytes -= COPY_PIECE;
        if (weft_watch_check(r->watch)) return fail_stopped(r, at);
    }
    memmove(to, from, (size_t)nbytes);
    return WEFT_OK;
}

static int32_t copy(run *r, const instruction *i, int64_t at) {
    int64_t nbytes;
    int32_t status = weft_value_of(r, i->c, at, &nbytes);
    if (!status) status = weft_need_buffer(r, i->a, at);
    if (!status) status = need_target(r, i->b, at);
    if (status) return status;
    if (nbytes < 0 || nbytes > r->f->capacities[i->a] || nbytes > r->f->capacities[i->b])
        return weft_fail_at(r, WEFT_ERROR_BOUNDS, i->b, at, "a copy is larger than its buffers");
    return move_bytes(r, r->f->pointers[i->b], r->f->pointers[i->a], nbytes, at);
}

/* A copy whose source or target is not in main memory. */
static int32_t transfer(run *r, const instruction *i, int64_t at, int64_t nbytes, int64_t from, int64_t to) {
    return weft_move(r, r->p->buffers[i->b].space, (char *)r->f->pointers[i->b] + to, r->p->buffers[i->a].space,
                     (const char *)r->f->pointers[i->a] + from, nbytes, at);
}

static int32_t copy_part(run *r, const instruction *i, int64_t at) {
    int64_t nbytes, from, to;
    int32_t status = weft_value_of(r, i->c, at, &nbytes);
    if (!status) status = weft_value_of(r, i->d, at, &from);
    if (!status) status = weft_value_of(r, i->e, at, &to);
    if (!status) status = weft_need_buffer(r, i->a, at);
    if (!status) status = need_target(r, i->b, at);
    if (status) return status;
    int64_t source = r->f->capacities[i->a], target = r->f->capacities[i->b];
    if (nbytes < 0 || from < 0 || to < 0 || from > source || to > target || nbytes > source - from || nbytes > target - to)
        return weft_fail_at(r, WEFT_ERROR_BOUNDS, i->b, at, "a copy goes outside its buffers");
    if (i->op == OP_TRANSFER) return transfer(r, i, at, nbytes, from, to);
    return move_bytes(r, (char *)r->f->pointers[i->b] + to, (const char *)r->f->pointers[i->a] + from, nbytes, at);
}

static void release(run *r, int32_t buffer) {
    if (r->p->buffers[buffer].kind == BUFFER_OBJECT) {
        weft_hold(r, buffer, NULL);
        return;
    }
    weft_space_free(r->executable, r->p->buffers[buffer].space, r->f->pointers[buffer], r->f->capacities[buffer]);
    weft_set_buffer(r->p, r->f, buffer, NULL, 0);
}

/* Memory for a dynamic buffer; NULL, with the status in `failure`, if memory is exhausted. */
static void *take_memory(run *r, int32_t buffer, int64_t nbytes, int64_t at) {
    weft_error told = {.status = WEFT_ERROR_MEMORY};
    void *memory = weft_space_allocate(r->executable, r->p->buffers[buffer].space, nbytes, &told);
    if (memory) return memory;
    r->failure = weft_fail_at(r, told.status, buffer, at, told.message);
    return NULL;
}

static int32_t allocate(run *r, const instruction *i, int64_t at) {
    int64_t nbytes;
    int32_t status = weft_value_of(r, i->c, at, &nbytes);
    if (status) return status;
    if (nbytes < 0) return weft_fail_at(r, WEFT_ERROR_ARITHMETIC, i->a, at, "a buffer has a negative size");
    if (r->f->pointers[i->a] && r->f->capacities[i->a] == nbytes) return WEFT_OK;
    release(r, i->a);
    void *memory = take_memory(r, i->a, nbytes, at);
    if (!memory) return r->failure;
    weft_set_buffer(r->p, r->f, i->a, memory, nbytes);
    return WEFT_OK;
}

/* At least doubles the memory, so that repeated appending copies little. */
static int32_t reserve(run *r, const instruction *i, int64_t at) {
    int64_t nbytes, held = r->f->capacities[i->a];
    int32_t status = weft_value_of(r, i->c, at, &nbytes);
    if (status) return status;
    if (nbytes < 0) return weft_fail_at(r, WEFT_ERROR_ARITHMETIC, i->a, at, "a buffer has a negative size");
    if (r->f->pointers[i->a] && held >= nbytes) return WEFT_OK;
    if (held && nbytes <= INT64_MAX / 2 && nbytes < held * 2) nbytes = held * 2;
    void *memory = take_memory(r, i->a, nbytes, at);
    if (!memory) return r->failure;
    const int32_t space = r->p->buffers[i->a].space;
    if (r->f->pointers[i->a]) status = weft_move(r, space, memory, space, r->f->pointers[i->a], held, at);
    release(r, i->a);
    weft_set_buffer(r->p, r->f, i->a, memory, nbytes);
    return status;
}

/* All instructions except calls of CPU kernels; a jump changes `at`. */
static int32_t step(run *r, const instruction *i, int64_t *at) {
    int64_t value = 0;
    int32_t status = WEFT_OK;
    switch ((opcode)i->op) {
    case OP_COPY: return copy(r, i, *at);
    case OP_SET: return weft_value_of(r, i->c, *at, &r->f->registers[i->a]);
    case OP_READ: return weft_read_size(r, i, *at);
    case OP_ALLOCATE: return allocate(r, i, *at);
    case OP_COPY_PART:
    case OP_TRANSFER: return copy_part(r, i, *at);
    case OP_LAUNCH:
        status = weft_launch_kernel(r, i, *at);
        return status == WEFT_ERROR_KERNEL && r->watch && weft_watch_stopped(r->watch) ? WEFT_OK : status; /* as calls */
    case OP_RESERVE: return reserve(r, i, *at);
    case OP_FREE: release(r, i->a); return WEFT_OK;
    case OP_CHECK:
        status = weft_value_of(r, i->c, *at, &value);
        if (!status && !value) status = weft_fail_at(r, WEFT_ERROR_CHECK, -1, *at, "a check of the program failed");
        return status;
    case OP_CHECK_RANGE: return weft_check_range(r, i, *at);
    case OP_JUMP_UNLESS:
        status = weft_value_of(r, i->c, *at, &value);
        if (!status && !value) *at = i->a - 1;
        return status;
    case OP_JUMP: *at = i->a - 1; return WEFT_OK;
    default: return weft_step_value(r, i, at);
    }
}

/* Whether a run can spend much time in an instruction, or forever repeat it: these ask whether the run shall stop. */
WEFT_INLINE bool may_take_long(const instruction *i, int64_t self, int64_t at) {
    return i->op == OP_CALL || at < self || i->op == OP_INVOKE || i->op == OP_LAUNCH || i->op == OP_HOST ||
           i->op == OP_RETURN;
}

static int32_t fail_stopped(run *r, int64_t at) {
    const int32_t reason = weft_watch_stopped(r->watch);
    return weft_fail_at(r, reason, -1, at,
                        reason == WEFT_ERROR_TIMEOUT ? "the run takes longer than its time limit" : "the run was interrupted");
}

WEFT_INLINE int32_t run_instructions(run *r, weft_profile *profile) {
    const instruction *instructions = r->p->instructions;
    int32_t status = WEFT_OK;
    for (int64_t at = 0, count = r->p->instruction_count; at < count && !status; at++) {
        const int64_t self = at, start = profile ? weft_nanoseconds() : 0;
        status = instructions[at].op == OP_CALL ? call(r, &instructions[at], at) : step(r, &instructions[at], &at);
        if (r->watch && may_take_long(&instructions[self], self, at) && !status && weft_watch_check(r->watch))
            status = fail_stopped(r, self);
        if (profile) {
            profile->nanoseconds[self] += weft_nanoseconds() - start;
            profile->calls[self]++;
        }
    }
    return status;
}

/* Frees what the run allocated; outputs of unknown shape that no instruction used get their memory now. */
static int32_t finish(run *r, int32_t status) {
    const program *p = r->p;
    weft_unwind(r);
    if (p->device_count) status = weft_synchronize(r, status);
    for (int32_t i = 0; i < p->output_count && !status; i++) {
        if (p->outputs[i].is_value) {
            if (!r->outputs[i].value) status = weft_fail_at(r, WEFT_ERROR_UNALLOCATED, i, -1, "an output has no value");
        } else if (r->f->output_states[i] == OUTPUT_UNKNOWN) {
            status = prepare_output(r, i, -1);
        }
    }
    if (!status) status = weft_deliver_outputs(r);
    for (int32_t i = 0; i < p->buffer_count; i++)
        if ((p->buffers[i].kind == BUFFER_DYNAMIC && r->f->pointers[i]) || r->f->objects[i]) release(r, i);
    if (!weft_own_borrowed(&r->borrowed) && !status)
        status = weft_fail_at(r, WEFT_ERROR_MEMORY, -1, -1, "out of memory for a value");
    for (int32_t i = 0; i < p->output_count && status; i++) {
        weft_value_release(r->outputs[i].value);
        r->outputs[i].value = NULL;
        if (r->f->output_states[i] != OUTPUT_OWNED) continue;
        weft_free(r->outputs[i].data);
        r->outputs[i].data = NULL;
    }
    return status;
}

static int32_t run_in_frame(run *r, const weft_tensor *inputs, weft_profile *profile) {
    int32_t status = bind_inputs(r, inputs);
    if (!status) status = weft_stage_inputs(r);
    if (status) return status;
    memset(r->f->output_states, 0, (size_t)r->p->output_count);
    for (int32_t i = r->p->symbols; i < r->p->registers; i++) r->f->registers[i] = 0;
    status = set_outputs(r);
    int32_t bound = set_arguments(r, inputs); /* always: it resets what the last run allocated */
    if (!status) status = bound;
    if (!status) {
        void *token = weft_parallel_begin(atomic_load(&r->executable->threads));
        status = profile ? run_instructions(r, profile) : run_instructions(r, NULL);
        weft_parallel_end(token);
    }
    return finish(r, status);
}

int32_t weft_run(weft_executable *executable, const weft_tensor *inputs, weft_tensor *outputs, weft_profile *profile,
                 weft_error *error) {
    frame *f = borrow_frame(executable);
    if (!f) return weft_fail(error, WEFT_ERROR_MEMORY, "out of memory for a run");
    run r = {.executable = executable, .p = &executable->program, .f = f, .inputs = inputs, .outputs = outputs, .error = error,
             .profiling = profile != NULL, .watch = weft_watch_current()};
    int32_t status = run_in_frame(&r, inputs, profile);
    atomic_flag_clear(&f->busy);
    return status;
}

/* ---- creation and queries ---------------------------------------------------------------------------------------- */

/* Constant buffers must not be larger than the constants. */
static int32_t check_constants(const weft_executable *e, weft_error *error) {
    for (int32_t i = 0; i < e->program.buffer_count; i++) {
        const buffer_spec *b = &e->program.buffers[i];
        int64_t nbytes = 0;
        if (b->kind != BUFFER_CONSTANT) continue;
        const expression *size = &e->program.expressions[b->nbytes];
        if (size->count != 2 || size->words[0] != EVAL_PUSH || !weft_size_evaluate(size, NULL, &nbytes) ||
            nbytes > e->constant_sizes[b->index])
            return weft_fail(error, WEFT_ERROR_PROGRAM, "malformed program: buffer %d is larger than its constant", (int)i);
    }
    return WEFT_OK;
}

int32_t weft_executable_create(const int64_t *words, size_t count, const weft_parts *parts, int32_t threads,
                               weft_executable **out, weft_error *error) {
    *out = NULL;
    weft_executable *e = calloc(1, sizeof *e);
    if (!e) return weft_fail(error, WEFT_ERROR_MEMORY, "out of memory while loading a program");
    atomic_init(&e->threads, threads);
    int32_t status = weft_program_decode(&e->program, words, count, parts, error);
    if (!status) {
        e->constant_table = calloc(parts->constant_count + 1, sizeof(void *));
        e->constant_sizes = calloc(parts->constant_count + 1, sizeof(int64_t));
        if (!e->constant_table || !e->constant_sizes)
            status = weft_fail(error, WEFT_ERROR_MEMORY, "out of memory while loading a program");
    }
    for (size_t i = 0; i < parts->constant_count && !status; i++) {
        e->constant_table[i] = parts->constants[i] ? parts->constants[i] : nothing;
        e->constant_sizes[i] = parts->constant_bytes[i];
    }
    if (!status) status = check_constants(e, error);
    if (!status) status = weft_load_devices(e, parts, error);
    if (status)
        weft_executable_free(e);
    else
        *out = e;
    return status;
}

void weft_executable_free(weft_executable *e) {
    if (!e) return;
    for (frame *f = atomic_load(&e->frames), *next; f; f = next) {
        next = f->next;
        free_frame(e, f);
    }
    weft_unload_devices(e);
    weft_program_free(&e->program);
    free(e->constant_table);
    free(e->constant_sizes);
    free(e);
    (void)weft_free_blocks(); /* most are results and intermediate ones of `e`; nobody may be left to trim them */
}

void weft_executable_set_threads(weft_executable *e, int32_t threads) { atomic_store(&e->threads, threads); }
int32_t weft_executable_threads(const weft_executable *e) { return atomic_load(&e->threads); }
int32_t weft_executable_inputs(const weft_executable *e) { return e->program.input_count; }
int32_t weft_executable_outputs(const weft_executable *e) { return e->program.output_count; }
int64_t weft_executable_instructions(const weft_executable *e) { return e->program.instruction_count; }

int64_t weft_executable_input_element(const weft_executable *e, int32_t index) {
    return index >= 0 && index < e->program.input_count ? e->program.inputs[index].element_bytes : 0;
}

int64_t weft_executable_output_element(const weft_executable *e, int32_t index) {
    return index >= 0 && index < e->program.output_count ? e->program.outputs[index].element_bytes : 0;
}

void weft_executable_set_host(weft_executable *e, weft_host host, void *context) {
    e->host = host;
    e->host_context = context;
}

int32_t weft_executable_output_ndim(const weft_executable *e, int32_t index) {
    return index >= 0 && index < e->program.output_count ? e->program.outputs[index].ndim : 0;
}

int64_t weft_executable_held_bytes(const weft_executable *e) { return atomic_load(&e->held_bytes); }

int64_t weft_executable_trim(weft_executable *e) {
    int64_t before = atomic_load(&e->held_bytes);
    for (frame *f = atomic_load(&e->frames); f; f = f->next) {
        if (atomic_flag_test_and_set(&f->busy)) continue;
        empty_frame(e, f);
        atomic_flag_clear(&f->busy);
    }
    int64_t freed = before - atomic_load(&e->held_bytes);
    return freed > 0 ? freed : 0; /* other runs may have allocated meanwhile */
}

void weft_executable_set_memory_limit(weft_executable *e, int64_t bytes) { atomic_store(&e->memory_limit, bytes); }
int64_t weft_executable_memory_limit(const weft_executable *e) { return atomic_load(&e->memory_limit); }
