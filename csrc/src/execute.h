/* What the parts of the executor share: the state of a run and access to its buffers and sizes. */
#ifndef WEFT_EXECUTE_H
#define WEFT_EXECUTE_H

#include <stdatomic.h>

#include "program.h"
#include "values.h"

/* One activation of a function on its way. */
typedef struct activation {
    int32_t function;
    bool saved;      /* the window's former content lies on the stack of words */
    int64_t call_at; /* the instruction that called */
} activation;

typedef struct frame {
    struct frame *next;
    atomic_flag busy;
    bool ready;            /* symbols, values, sizes and arena belong together */
    bool has_bad_values;   /* a stable expression failed; instructions find out which */
    int64_t *registers;
    int64_t *values;       /* of stable expressions */
    bool *bad;             /* expressions that failed */
    void **pointers;       /* of buffers */
    int64_t *capacities;
    weft_value **objects;  /* held by buffers */
    void **slots;          /* arguments of calls */
    int64_t *sizes;        /* the same for sizes */
    char *arena;
    int64_t arena_bytes;
    uint8_t *output_states; /* of this run; see output_state */
    bool *live;             /* functions whose window holds an activation */
    activation *activations;
    int64_t *words;
    int64_t depth, depth_limit, used, word_limit; /* of activations and words: in use, and room */
} frame;

struct weft_executable {
    program program;
    void **constant_table;
    int64_t *constant_sizes;
    weft_host host;
    void *host_context;
    _Atomic int32_t threads;
    _Atomic(frame *) frames; /* only ever grows */
};

/* One run. */
typedef struct run {
    weft_executable *executable;
    const program *p;
    frame *f;
    const weft_tensor *inputs;
    weft_tensor *outputs;
    weft_error *error;
} run;

int32_t weft_fail_at(run *r, int32_t status, int32_t index, int64_t at, const char *message);
void weft_set_buffer(const program *p, frame *f, int32_t buffer, void *address, int64_t capacity);
int32_t weft_value_of(run *r, int64_t expression, int64_t at, int64_t *value);
/* Makes sure that a buffer has memory; outputs of unknown shape get theirs when first used. */
int32_t weft_need_buffer(run *r, int32_t buffer, int64_t at);

/* The instructions that look at elements (elements.c). */
int32_t weft_read_size(run *r, const instruction *i, int64_t at);
int32_t weft_check_range(run *r, const instruction *i, int64_t at);

/* Lets a buffer hold `value`, whose reference it takes over (NULL: nothing). */
void weft_hold(run *r, int32_t buffer, weft_value *value);
/* The instructions about values and functions (functions.c); `at` moves on calls and returns. */
int32_t weft_step_value(run *r, const instruction *i, int64_t *at);
/* Ends all activations, whatever they hold. */
void weft_unwind(run *r);
void weft_free_activations(frame *f);

#endif
