/* Declarations for the parts of the executor: the state of a run, and access to its buffers and sizes. */
#ifndef WEFT_EXECUTE_H
#define WEFT_EXECUTE_H

#include <stdatomic.h>

#include "devices.h"
#include "program.h"
#include "values.h"
#include "watch.h"

/* One active call of a function. */
typedef struct activation {
    int32_t function;
    bool saved;      /* the window's former content lies on the stack of words */
    int64_t call_at; /* the instruction that called */
} activation;

/* Memory on a device, or (device 0) in main memory, that later runs reuse. */
typedef struct kept_memory {
    void *address;
    int64_t nbytes;
} kept_memory;

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
    kept_memory *arenas;    /* of the main memory and of each device */
    kept_memory *staged;    /* of inputs and outputs that are not where the program wants them; NULL: none ever was */
    bool *is_staged;        /* in this run */
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
    weft_device **devices;
    void **loaded;   /* kernels of devices, by number; NULL for those of the CPU */
    void **uploaded; /* constants on devices, by buffer */
    bool *owned;     /* whether an uploaded constant is freed with this buffer: others share it */
    weft_host host;
    void *host_context;
    _Atomic int32_t threads;
    _Atomic(frame *) frames; /* only ever grows */
    /* Of all runs together, on all devices: memory for intermediate results that is held, and its limit (0: none). */
    _Atomic int64_t held_bytes, memory_limit;
};

/* One run. */
typedef struct run {
    weft_executable *executable;
    const program *p;
    frame *f;
    const weft_tensor *inputs;
    weft_tensor *outputs;
    weft_error *error;
    int32_t failure; /* status of what last gave no memory */
    bool profiling;
    weft_value *borrowed; /* tensors that show memory of the caller: inputs, constants */
    weft_watch *watch;    /* NULL: nobody stops the run */
} run;

int32_t weft_fail_at(run *r, int32_t status, int32_t index, int64_t at, const char *message);
void weft_set_buffer(const program *p, frame *f, int32_t buffer, void *address, int64_t capacity);
int32_t weft_value_of(run *r, int64_t expression, int64_t at, int64_t *value);
/* Ensures that a buffer has memory; outputs of unknown shape get memory at their first use. */
int32_t weft_need_buffer(run *r, int32_t buffer, int64_t at);

/* Memory of a space; NULL if it is exhausted, beyond the limit, or the device fails; `error` has the reason. */
void *weft_space_allocate(weft_executable *e, int32_t space, int64_t nbytes, weft_error *error);
/* `nbytes` as it was allocated; nothing happens if `address` is NULL. */
void weft_space_free(weft_executable *e, int32_t space, void *address, int64_t nbytes);
/* Ensures that `m` has at least `nbytes`. If it is too small, its content is lost. */
int32_t weft_keep(weft_executable *e, int32_t space, kept_memory *m, int64_t nbytes, weft_error *error);
/* Copies between the spaces of two buffers. */
int32_t weft_move(run *r, int32_t to_space, void *to, int32_t from_space, const void *from, int64_t nbytes, int64_t at);

/* Devices during a run (spaces.c): copies inputs to the spaces of the program, and outputs to those of the caller. */
int32_t weft_stage_inputs(run *r);
int32_t weft_deliver_outputs(run *r);
/* Where the program reads an input and writes an output. */
void *weft_input_address(const run *r, int32_t index);
void *weft_output_address(const run *r, int32_t index);
/* Allocates memory for an output that the caller wants in another space; does nothing for other outputs. */
int32_t weft_stage_output(run *r, int32_t index, int64_t nbytes, int64_t at);
int32_t weft_launch_kernel(run *r, const instruction *i, int64_t at);
int32_t weft_synchronize(run *r, int32_t status);
/* Kernels and constants on devices, when an executable is made and freed. */
int32_t weft_load_devices(weft_executable *e, const weft_parts *parts, weft_error *error);
void weft_unload_devices(weft_executable *e);

/* The instructions that read elements (elements.c). */
int32_t weft_read_size(run *r, const instruction *i, int64_t at);
int32_t weft_check_range(run *r, const instruction *i, int64_t at);

/* Stores `value` (NULL: none) in a buffer, which takes over the reference. */
void weft_hold(run *r, int32_t buffer, weft_value *value);
/* The instructions on values and functions (functions.c); calls and returns change `at`. */
int32_t weft_step_value(run *r, const instruction *i, int64_t *at);
/* Ends all activations and releases their values. */
void weft_unwind(run *r);
void weft_free_activations(frame *f);

#endif
