/* Instructions on values and functions: constructing data, reading fields, calling functions and closures, returning.
 *
 * Each function has one window of buffers and registers. A call of a function whose window is in use saves the content of
 * the window on a stack of words and restores it on return. So memory limits recursion, not the stack of the thread. A
 * tail call first leaves the calling function. */
#include <stdlib.h>
#include <string.h>

#include "execute.h"

/* Largest size of the stacks of one run; a recursion that needs more is refused. */
enum { MAX_STACK_BYTES = 256 << 20, KEPT_WORDS = 1 << 16 };

void weft_hold(run *r, int32_t buffer, weft_value *value) {
    weft_value *before = r->f->objects[buffer];
    bool shows = value && value->kind == WEFT_VALUE_TENSOR;
    r->f->objects[buffer] = value;
    weft_set_buffer(r->p, r->f, buffer, shows ? value->data : NULL, shows ? value->nbytes : 0);
    weft_value_release(before);
}

static int32_t no_value(run *r, int32_t buffer, int64_t at) {
    return weft_fail_at(r, WEFT_ERROR_UNALLOCATED, buffer, at, "a buffer is used before it has a value");
}

static int32_t out_of_memory(run *r, int32_t buffer, int64_t at) {
    return weft_fail_at(r, WEFT_ERROR_MEMORY, buffer, at, "out of memory for a value");
}

static int32_t wrong_value(run *r, int32_t buffer, int64_t at) {
    return weft_fail_at(r, WEFT_ERROR_PROGRAM, buffer, at, "malformed program: a value of the wrong kind");
}

/* ---- data -------------------------------------------------------------------------------------------------------- */

static int32_t take(run *r, const instruction *i, int64_t at) {
    weft_value *value = r->inputs[i->b].value;
    if (!value) return no_value(r, i->a, at);
    weft_hold(r, i->a, weft_value_retain(value));
    return WEFT_OK;
}

static int32_t give(run *r, const instruction *i, int64_t at) {
    weft_value *value = r->f->objects[i->a];
    if (!value) return no_value(r, i->a, at);
    weft_value *before = r->outputs[i->b].value;
    r->outputs[i->b].value = weft_value_retain(value);
    weft_value_release(before);
    return WEFT_OK;
}

/* A new tensor, or (OP_VIEW) a tensor whose elements are in the memory of buffer b. */
static int32_t make_tensor(run *r, const instruction *i, int64_t at) {
    int64_t nbytes, shape[MAX_RANK];
    int32_t status = weft_value_of(r, i->c, at, &nbytes);
    for (int32_t d = 0; d < i->size_count && !status; d++) {
        status = weft_value_of(r, i->sizes[d], at, &shape[d]);
        if (!status && shape[d] < 0) status = weft_fail_at(r, WEFT_ERROR_ARITHMETIC, i->a, at, "a buffer has a negative size");
    }
    if (!status && nbytes < 0) status = weft_fail_at(r, WEFT_ERROR_ARITHMETIC, i->a, at, "a buffer has a negative size");
    if (!status && i->op == OP_VIEW) status = weft_need_buffer(r, i->b, at);
    if (status) return status;
    if (i->op == OP_VIEW && nbytes > r->f->capacities[i->b])
        return weft_fail_at(r, WEFT_ERROR_BOUNDS, i->b, at, "a view is larger than its buffer");
    weft_value *made = i->op == OP_VIEW
                           ? weft_value_view(i->size_count, shape, nbytes, r->f->pointers[i->b], r->f->objects[i->b], &r->borrowed)
                           : weft_value_tensor(i->size_count, shape, nbytes);
    if (!made) return out_of_memory(r, i->a, at);
    weft_hold(r, i->a, made);
    return WEFT_OK;
}

static int32_t box(run *r, const instruction *i, int64_t at) {
    int64_t number;
    int32_t status = weft_value_of(r, i->c, at, &number);
    if (status) return status;
    weft_value *made = weft_value_tensor(0, NULL, sizeof number);
    if (!made) return out_of_memory(r, i->a, at);
    memcpy(made->data, &number, sizeof number);
    weft_hold(r, i->a, made);
    return WEFT_OK;
}

static int32_t construct(run *r, const instruction *i, int64_t at) {
    weft_value *few[16] = {NULL}, **fields = few;
    if (i->buffer_count > 16) fields = malloc((size_t)i->buffer_count * sizeof *fields);
    if (!fields) return out_of_memory(r, i->a, at);
    int32_t missing = -1;
    for (int32_t k = 0; k < i->buffer_count; k++) {
        fields[k] = r->f->objects[i->buffers[k]];
        if (!fields[k]) missing = (int32_t)i->buffers[k];
    }
    weft_value *made = missing < 0 ? weft_value_data(i->c, i->buffer_count, fields) : NULL;
    if (fields != few) free(fields);
    if (missing >= 0) return no_value(r, missing, at);
    if (!made) return out_of_memory(r, i->a, at);
    weft_hold(r, i->a, made);
    return WEFT_OK;
}

static int32_t field(run *r, const instruction *i, int64_t at) {
    weft_value *whole = r->f->objects[i->b];
    if (!whole) return no_value(r, i->b, at);
    weft_value *part = weft_value_field(whole, (int32_t)i->c);
    if (!part) return wrong_value(r, i->b, at);
    weft_hold(r, i->a, weft_value_retain(part));
    return WEFT_OK;
}

static int32_t ask(run *r, const instruction *i, int64_t at) {
    const weft_value *value = r->f->objects[i->b];
    if (!value) return no_value(r, i->b, at);
    bool is_data = value->kind == WEFT_VALUE_DATA;
    if (i->op == OP_TAG ? !is_data : is_data || i->c >= value->count) return wrong_value(r, i->b, at);
    r->f->registers[i->a] = i->op == OP_TAG ? value->tag : value->shape[i->c];
    return WEFT_OK;
}

static int32_t share(run *r, const instruction *i, int64_t at) {
    weft_value *value = r->f->objects[i->b];
    if (!value) return no_value(r, i->b, at);
    weft_hold(r, i->a, weft_value_retain(value));
    return WEFT_OK;
}

/* ---- activations ------------------------------------------------------------------------------------------------- */

static bool grow(void **memory, int64_t *limit, int64_t needed, int64_t width) {
    if (needed <= *limit) return true;
    if (needed > MAX_STACK_BYTES / width) return false;
    int64_t room = *limit ? *limit * 2 : 64;
    if (room < needed) room = needed;
    void *larger = realloc(*memory, (size_t)(room * width));
    if (!larger) return false;
    *memory = larger;
    *limit = room;
    return true;
}

void weft_free_activations(frame *f) {
    free(f->activations);
    free(f->words);
    f->activations = NULL;
    f->words = NULL;
    f->depth_limit = f->word_limit = 0;
}

static int32_t too_deep(run *r, int32_t number, int64_t at) {
    return weft_fail_at(r, WEFT_ERROR_DEPTH, number, at, "too many calls at once");
}

/* Moves the content of a window to the stack and clears the window. */
static void save_window(run *r, const function *g) {
    frame *f = r->f;
    for (int32_t k = 0; k < g->kept_count; k++) {
        int32_t b = g->kept[k];
        f->words[f->used++] = (int64_t)(intptr_t)f->pointers[b];
        f->words[f->used++] = f->capacities[b];
        f->words[f->used++] = (int64_t)(intptr_t)f->objects[b];
        f->objects[b] = NULL;
        weft_set_buffer(r->p, f, b, NULL, 0);
    }
    int32_t registers = g->end_register - g->first_register;
    if (registers) memcpy(f->words + f->used, f->registers + g->first_register, (size_t)registers * sizeof(int64_t));
    f->used += registers;
}

static void restore_window(run *r, const function *g) {
    frame *f = r->f;
    int32_t registers = g->end_register - g->first_register;
    f->used -= registers + 3 * (int64_t)g->kept_count;
    const int64_t *w = f->words + f->used;
    for (int32_t k = 0; k < g->kept_count; k++, w += 3) {
        weft_set_buffer(r->p, f, g->kept[k], (void *)(intptr_t)w[0], w[1]);
        f->objects[g->kept[k]] = (weft_value *)(intptr_t)w[2];
    }
    if (registers) memcpy(f->registers + g->first_register, w, (size_t)registers * sizeof(int64_t));
}

static void clear_window(run *r, const function *g) {
    frame *f = r->f;
    for (int32_t k = 0; k < g->kept_count; k++) {
        int32_t b = g->kept[k];
        if (r->p->buffers[b].kind == BUFFER_OBJECT) {
            if (f->objects[b]) weft_hold(r, b, NULL);
        } else if (f->pointers[b]) {
            weft_space_free(r->executable, r->p->buffers[b].space, f->pointers[b], f->capacities[b]);
            weft_set_buffer(r->p, f, b, NULL, 0);
        }
    }
}

static int32_t enter(run *r, int32_t number, int64_t call_at, int64_t at) {
    frame *f = r->f;
    const function *g = &r->p->functions[number];
    int64_t window = g->end_register - g->first_register + 3 * (int64_t)g->kept_count;
    if (!grow((void **)&f->activations, &f->depth_limit, f->depth + 1, sizeof(activation))) return too_deep(r, number, at);
    if (f->live[number] && !grow((void **)&f->words, &f->word_limit, f->used + window, sizeof(int64_t)))
        return too_deep(r, number, at);
    f->activations[f->depth++] = (activation){number, f->live[number], call_at};
    if (f->live[number]) save_window(r, g);
    f->live[number] = true;
    return WEFT_OK;
}

/* Ends the innermost activation; returns the number of the calling instruction. */
static int64_t leave(run *r) {
    frame *f = r->f;
    activation a = f->activations[--f->depth];
    const function *g = &r->p->functions[a.function];
    clear_window(r, g);
    f->live[a.function] = a.saved;
    if (a.saved) restore_window(r, g);
    return a.call_at;
}

void weft_unwind(run *r) {
    while (r->f->depth) (void)leave(r);
    if (r->f->word_limit > KEPT_WORDS) weft_free_activations(r->f);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* Values that are moved from one window to another. */
typedef struct parcel {
    weft_value *few[16], **values;
    int32_t count;
} parcel;

static void drop_parcel(parcel *c) {
    for (int32_t i = 0; i < c->count; i++) weft_value_release(c->values[i]);
    if (c->values != c->few) free(c->values);
    c->count = 0;
    c->values = c->few;
}

static int32_t start_parcel(run *r, parcel *c, int32_t room, int64_t at) {
    c->count = 0;
    c->values = room > 16 ? malloc((size_t)room * sizeof *c->values) : c->few;
    if (c->values) return WEFT_OK;
    c->values = c->few;
    return out_of_memory(r, -1, at);
}

static int32_t pack(run *r, parcel *c, const int64_t *buffers, int32_t count, int64_t at) {
    for (int32_t i = 0; i < count; i++) {
        weft_value *value = r->f->objects[buffers[i]];
        if (!value) return no_value(r, (int32_t)buffers[i], at);
        c->values[c->count++] = weft_value_retain(value);
    }
    return WEFT_OK;
}

static void unpack(run *r, parcel *c, const int64_t *buffers) {
    for (int32_t i = 0; i < c->count; i++) weft_hold(r, (int32_t)buffers[i], c->values[i]);
    c->count = 0;
}

static int32_t callee(run *r, const instruction *i, int64_t at, int32_t *number, const weft_value **closure) {
    *number = i->a;
    *closure = NULL;
    if (i->a < 0) {
        *closure = r->f->objects[i->b];
        if (!*closure) return no_value(r, i->b, at);
        if ((*closure)->kind != WEFT_VALUE_DATA || (*closure)->tag < 0 || (*closure)->tag >= r->p->function_count)
            return wrong_value(r, i->b, at);
        *number = (int32_t)(*closure)->tag;
    }
    const function *g = &r->p->functions[*number];
    int32_t captured = *closure ? (*closure)->count : 0;
    if (g->parameter_count != i->buffer_count || g->captured_count != captured || g->result_count != i->e)
        return wrong_value(r, i->b, at);
    return WEFT_OK;
}

static int32_t invoke(run *r, const instruction *i, int64_t *at) {
    int32_t number;
    const weft_value *closure;
    int32_t status = callee(r, i, *at, &number, &closure);
    if (status) return status;
    const function *g = &r->p->functions[number];
    parcel c;
    status = start_parcel(r, &c, g->parameter_count + g->captured_count, *at);
    if (!status) status = pack(r, &c, i->buffers, i->buffer_count, *at);
    for (int32_t k = 0; k < g->captured_count && !status; k++) c.values[c.count++] = weft_value_retain(closure->fields[k]);
    int64_t call_at = *at;
    if (!status && i->d) {
        if (r->f->depth)
            call_at = leave(r);
        else
            status = weft_fail_at(r, WEFT_ERROR_PROGRAM, -1, *at, "malformed program: a return outside of functions");
    }
    if (!status) status = enter(r, number, call_at, *at);
    if (!status) {
        unpack(r, &c, g->parameters);
        *at = g->entry - 1;
    }
    drop_parcel(&c);
    return status;
}

static int32_t return_values(run *r, const instruction *i, int64_t *at) {
    if (!r->f->depth) return weft_fail_at(r, WEFT_ERROR_PROGRAM, -1, *at, "malformed program: a return outside of functions");
    parcel c;
    int32_t status = start_parcel(r, &c, i->e, *at);
    if (!status) status = pack(r, &c, i->buffers, i->e, *at);
    if (!status) {
        int64_t call_at = leave(r);
        const instruction *call = &r->p->instructions[call_at];
        if (call->e != c.count) status = weft_fail_at(r, WEFT_ERROR_PROGRAM, -1, *at, "malformed program: results do not fit");
        else unpack(r, &c, call->buffers + call->buffer_count);
        *at = call_at;
    }
    drop_parcel(&c);
    return status;
}

static int32_t call_host(run *r, const instruction *i, int64_t at) {
    parcel arguments, results;
    if (!r->executable->host)
        return weft_fail_at(r, WEFT_ERROR_HOST, i->a, at, "the program needs a host operator, and nobody offers one");
    int32_t status = start_parcel(r, &arguments, i->buffer_count, at);
    if (status) return status;
    status = start_parcel(r, &results, i->e, at);
    if (!status) status = pack(r, &arguments, i->buffers, i->buffer_count, at);
    if (!status) {
        for (int32_t k = 0; k < i->e; k++) results.values[k] = NULL;
        int32_t failed = r->executable->host(r->executable->host_context, i->a, arguments.values, arguments.count,
                                             results.values, i->e);
        results.count = i->e;
        for (int32_t k = 0; k < i->e; k++) failed |= results.values[k] == NULL;
        if (failed) status = weft_fail_at(r, WEFT_ERROR_HOST, i->a, at, "a host operator failed");
        else unpack(r, &results, i->buffers + i->buffer_count);
    }
    drop_parcel(&arguments);
    drop_parcel(&results);
    return status;
}

int32_t weft_step_value(run *r, const instruction *i, int64_t *at) {
    switch ((opcode)i->op) {
    case OP_TAKE: return take(r, i, *at);
    case OP_GIVE: return give(r, i, *at);
    case OP_TENSOR:
    case OP_VIEW: return make_tensor(r, i, *at);
    case OP_BOX: return box(r, i, *at);
    case OP_CONSTRUCT: return construct(r, i, *at);
    case OP_FIELD: return field(r, i, *at);
    case OP_TAG:
    case OP_EXTENT: return ask(r, i, *at);
    case OP_SHARE: return share(r, i, *at);
    case OP_INVOKE: return invoke(r, i, at);
    case OP_RETURN: return return_values(r, i, at);
    case OP_HOST: return call_host(r, i, *at);
    default: return WEFT_OK;
    }
}
