/* Weft C runtime: public interface.
 *
 * Runs compiled models without the compiler, Python or C++. It has a loader for relocatable objects, a thread pool,
 * scratch memory and an executor for the register program (weft/runtime/program.py and encode.py define its encoding).
 * It is written in C11 and needs an operating system with mmap and POSIX threads.
 *
 * Threads: functions on different objects may be called concurrently. Several threads may run one weft_executable
 * concurrently; each run then has a separate memory arena.
 * Errors: functions return WEFT_OK (0) or a positive weft_status and, if `error` is not NULL, fill it in.
 */
#ifndef WEFT_RUNTIME_H
#define WEFT_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface and of the functions that kernels may call; an artifact records the one it was built for. */
#define WEFT_ABI_VERSION 1

/* Version of the encoding of programs: the words that an executable is made from. */
#define WEFT_PROGRAM_VERSION 5

#if defined(__GNUC__)
#define WEFT_API __attribute__((visibility("default")))
#else
#define WEFT_API
#endif

typedef enum weft_status {
    WEFT_OK = 0,
    WEFT_ERROR_MEMORY = 1,      /* out of memory */
    WEFT_ERROR_OBJECT = 2,      /* malformed or foreign object code */
    WEFT_ERROR_SYMBOL = 3,      /* object code needs a symbol that the runtime does not offer */
    WEFT_ERROR_PROGRAM = 4,     /* malformed register program */
    WEFT_ERROR_RANK = 5,        /* input `index` has `given` dimensions, not `expected` */
    WEFT_ERROR_SHAPE = 6,       /* dimension `axis` of input `index` is `given`, not `expected` */
    WEFT_ERROR_CHECK = 7,       /* the check at `instruction` failed */
    WEFT_ERROR_KERNEL = 8,      /* the kernel called at `instruction` returned `given` */
    WEFT_ERROR_ARITHMETIC = 9,  /* a size expression overflowed or divided by zero */
    WEFT_ERROR_BOUNDS = 10,     /* a buffer would be accessed outside its memory */
    WEFT_ERROR_UNALLOCATED = 11, /* a buffer is used at `instruction` before it has memory */
    WEFT_ERROR_DEPTH = 12,       /* too many calls at once: function `index` */
    WEFT_ERROR_HOST = 13,        /* the host operator called at `instruction` failed; the host knows why */
    WEFT_ERROR_RANGE = 14,       /* the check at `instruction` found `given`, beyond the limit `expected`, in column `axis` */
    WEFT_ERROR_DEVICE = 15,      /* a device failed: number `index` of the program, or the one that the message names */
    WEFT_ERROR_TIMEOUT = 16,     /* the run was stopped at its deadline (see weft_watch_begin) */
    WEFT_ERROR_INTERRUPTED = 17, /* the run was stopped because the caller asked for it */
    WEFT_ERROR_LIMIT = 18        /* intermediate results would need more memory than the limit of the executable */
} weft_status;

typedef struct weft_error {
    int32_t status;
    int32_t index;       /* input, output, buffer or kernel number, or -1 */
    int32_t axis;        /* dimension, or -1 */
    int64_t instruction; /* number of the instruction, or -1 */
    int64_t expected, given;
    char message[192]; /* one English sentence, for people */
} weft_error;

/* ---- functions for kernels --------------------------------------------------------------------------------------- */

typedef int32_t (*weft_kernel)(void *const *buffers, const int64_t *sizes);
typedef int32_t (*weft_parallel_body)(int64_t begin, int64_t end, void *closure);

/* Runs `body` on disjoint chunks that cover 0 <= i < count. A chunk has at least `grain` iterations, or all if there are
 * fewer. The chunks depend only on count, grain and the number of threads; under a watch (weft_watch_begin), a chunk may
 * run in several calls of `body`, each of at least `grain` iterations too. So results must not depend on where a chunk
 * ends. The caller computes chunks too. Nested calls, and calls outside weft_parallel_begin/end and weft_run, run
 * serially. Returns 0, or the first non-zero result of a chunk; after that no further chunks are started. */
WEFT_API int32_t weft_parallel_for(weft_parallel_body body, int64_t count, int64_t grain, void *closure);

/* Scratch memory of the calling thread, aligned to 64 bytes. It is a stack: release in reverse order, with the same size.
 * NULL if memory is exhausted. The memory is reused by later calls and freed when the thread ends. */
WEFT_API void *weft_scratch(int64_t bytes);
WEFT_API void weft_scratch_release(int64_t bytes);

/* Whether the run that the kernel belongs to must stop (see weft_watch_begin): if not 0, the kernel releases its scratch
 * memory and returns this status. Kernels ask in loops that take long, now and then: it costs some nanoseconds. */
WEFT_API int32_t weft_must_stop(void);

/* ---- threads ----------------------------------------------------------------------------------------------------- */

/* Between begin and end, weft_parallel_for on the calling thread uses up to `threads` threads (at least 1), also inside
 * another begin and end for another number. Pools are cached; concurrent callers get different ones. `begin`
 * returns a token for `end`, which may be NULL. */
WEFT_API void *weft_parallel_begin(int32_t threads);
WEFT_API void weft_parallel_end(void *token);

/* Between begin and end, runs and weft_parallel_for on the calling thread, and on the workers that help it, can be
 * stopped: at `deadline` (of weft_nanoseconds; INT64_MAX: never), or when `poll(context)` (may be NULL) returns non-zero.
 * Both are looked at between kernels, at backward jumps and calls, between the chunks of parallel loops, which last
 * some milliseconds, and in kernels that call weft_must_stop; `poll` is called on the calling thread, first after
 * `patience` nanoseconds and then at such intervals. A watch inside another obeys both. `begin` returns a token for
 * `end`; NULL if memory is exhausted. */
typedef struct weft_watch weft_watch;
WEFT_API weft_watch *weft_watch_begin(int64_t deadline, int32_t (*poll)(void *context), void *context, int64_t patience);
WEFT_API void weft_watch_end(weft_watch *watch);

/* Ends idle worker threads and frees the scratch memory of all threads that is not in use, and large blocks that were
 * freed and kept for the next ones. Later runs start anew. */
WEFT_API void weft_trim(void);

/* Number of worker threads alive in this process. */
WEFT_API int32_t weft_worker_count(void);

/* ---- code -------------------------------------------------------------------------------------------------------- */

typedef struct weft_code weft_code;

enum { WEFT_LOAD_FOREIGN = 1 }; /* relocate an object of another machine too, for inspection; never executable */

/* Loads a relocatable ELF object (x86-64, AArch64, 64-bit RISC-V or ARMv7 with hard
 * floating point), resolves what it needs against the symbols above and libm. */
WEFT_API int32_t weft_code_load(const void *object, size_t size, int32_t flags, weft_code **out, weft_error *error);
/* Address of a defined global symbol, NULL if there is none; `weft_code_function` only in executable sections. */
WEFT_API void *weft_code_symbol(const weft_code *code, const char *name);
WEFT_API weft_kernel weft_code_function(const weft_code *code, const char *name);
/* Bytes of memory mapped for the code. */
WEFT_API size_t weft_code_bytes(const weft_code *code);
WEFT_API void weft_code_free(weft_code *code);

/* Comma-separated LLVM names of the features of this processor that the operating system supports. */
WEFT_API const char *weft_cpu_features(void);

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* Values of algebraic data types and their contents. Values are immutable. References are counted; several threads may
 * do so concurrently. Functions that make values return NULL if memory is exhausted or an argument is invalid. */
typedef struct weft_value weft_value;

typedef enum weft_value_kind {
    WEFT_VALUE_TENSOR,
    WEFT_VALUE_DATA,   /* a constructor's number and fields */
    WEFT_VALUE_FOREIGN /* a tensor that only the host can read, such as one of strings */
} weft_value_kind;

enum { WEFT_MAX_RANK = 64 };

WEFT_API weft_value *weft_value_tensor(int32_t rank, const int64_t *shape, int64_t nbytes);
WEFT_API weft_value *weft_value_data(int64_t tag, int32_t count, weft_value *const *fields);
/* `release(payload)` is called when the last reference is released. */
WEFT_API weft_value *weft_value_foreign(void *payload, void (*release)(void *), int32_t rank, const int64_t *shape);
WEFT_API weft_value *weft_value_retain(weft_value *value);
WEFT_API void weft_value_release(weft_value *value);
WEFT_API weft_value_kind weft_value_kind_of(const weft_value *value);
WEFT_API int64_t weft_value_tag(const weft_value *value);
/* Dimensions of a tensor, fields of data. */
WEFT_API int32_t weft_value_count(const weft_value *value);
WEFT_API const int64_t *weft_value_shape(const weft_value *value);
WEFT_API int64_t weft_value_nbytes(const weft_value *value);
/* The elements of a tensor, the payload of a foreign value. */
WEFT_API void *weft_value_payload(const weft_value *value);
/* A field of data, not retained; NULL if there is none. */
WEFT_API weft_value *weft_value_field(const weft_value *value, int32_t index);

/* ---- executables ------------------------------------------------------------------------------------------------- */

typedef struct weft_executable weft_executable;

/* An open device other than the CPU; see weft_device.h. */
typedef struct weft_device weft_device;

/* A compact row-major tensor. In weft_run, `shape` of an output is filled in (it must have room for its dimensions);
 * an output whose `data` is NULL is allocated by the runtime in the main memory, and the caller frees it with weft_free.
 * A tensor on a device is used in place if the program expects it there; otherwise it is copied.
 * An input that is not a plain tensor (see weft_executable_input_element) is passed in `value`. Such an output is returned
 * in `value`, with a reference for the caller. */
typedef struct weft_tensor {
    void *data;
    int64_t *shape;
    int64_t nbytes; /* capacity of an output given by the caller; filled in otherwise */
    int32_t ndim;
    weft_value *value;
    weft_device *device; /* whose memory `data` lies in; NULL: the main memory */
} weft_tensor;

/* Runs host operator number `number` of the program. It fills in `results`, with one reference each for the caller; the
 * caller keeps its references to the arguments. It is called on the thread of weft_run. A non-zero result is a failure. */
typedef int32_t (*weft_host)(void *context, int32_t number, weft_value *const *arguments, int32_t argument_count,
                             weft_value **results, int32_t result_count);

/* A kernel of the program: a function of the CPU, or code that a device loads. */
typedef struct weft_kernel_code {
    weft_kernel function;            /* of the CPU; NULL for other devices */
    const char *entry, *format;      /* for other devices: which kernel of the code, and what the code is */
    const void *code;
    size_t code_bytes;
} weft_kernel_code;

/* The kernels, constants and devices that a program refers to by number. devices[0] has number 1. */
typedef struct weft_parts {
    const weft_kernel_code *kernels;
    size_t kernel_count;
    void *const *constants;
    const int64_t *constant_bytes;
    size_t constant_count;
    weft_device *const *devices;
    size_t device_count;
} weft_parts;

/* Decodes and checks `words`; loads kernels and copies constants to the devices that use them. Functions and constants
 * must outlive the executable; constants are aligned to 64. The executable keeps references to the devices. */
WEFT_API int32_t weft_executable_create(const int64_t *words, size_t count, const weft_parts *parts, int32_t threads,
                                        weft_executable **out, weft_error *error);
WEFT_API void weft_executable_free(weft_executable *executable);
WEFT_API void weft_executable_set_threads(weft_executable *executable, int32_t threads);
WEFT_API int32_t weft_executable_threads(const weft_executable *executable);
WEFT_API int32_t weft_executable_inputs(const weft_executable *executable);
WEFT_API int32_t weft_executable_outputs(const weft_executable *executable);
/* Bytes of an element of input (output) `index`; 0: it is passed as a weft_value. */
WEFT_API int64_t weft_executable_input_element(const weft_executable *executable, int32_t index);
WEFT_API int64_t weft_executable_output_element(const weft_executable *executable, int32_t index);
/* Sets the function that runs host operators; without it, programs with host operators fail. Call it before runs. */
WEFT_API void weft_executable_set_host(weft_executable *executable, weft_host host, void *context);
/* Dimensions of output `index`. */
WEFT_API int32_t weft_executable_output_ndim(const weft_executable *executable, int32_t index);
WEFT_API int64_t weft_executable_instructions(const weft_executable *executable);
/* Bytes that are currently held for intermediate results, on all devices: of runs, and kept for later runs. */
WEFT_API int64_t weft_executable_held_bytes(const weft_executable *executable);
/* Frees the memory that no run uses; returns its bytes. The next runs allocate it again. */
WEFT_API int64_t weft_executable_trim(weft_executable *executable);
/* Most bytes for intermediate results of all runs together (0: no limit). Memory that is kept for later runs is given
 * up before a run is refused with WEFT_ERROR_LIMIT. Outputs and values do not count. */
WEFT_API void weft_executable_set_memory_limit(weft_executable *executable, int64_t bytes);
WEFT_API int64_t weft_executable_memory_limit(const weft_executable *executable);

/* Time and number of calls of each instruction. The arrays have weft_executable_instructions entries; runs add to them. */
typedef struct weft_profile {
    int64_t *nanoseconds;
    int64_t *calls;
} weft_profile;

/* Binds the symbolic sizes from the shapes of `inputs`, checks them, and runs. `profile` may be NULL. Memory that the
 * runtime allocated for outputs is freed again if an error is returned. */
WEFT_API int32_t weft_run(weft_executable *executable, const weft_tensor *inputs, weft_tensor *outputs,
                          weft_profile *profile, weft_error *error);

/* Memory aligned to 64 bytes; NULL only if memory is exhausted, also for 0 bytes. */
WEFT_API void *weft_alloc(int64_t bytes);
WEFT_API void weft_free(void *memory);
/* Number of blocks from weft_alloc and of values that are not freed yet, in the whole process. */
WEFT_API int64_t weft_allocated_blocks(void);
/* Bytes of scratch memory that the calling thread has taken and not released, rounded up to multiples of 64. */
WEFT_API int64_t weft_scratch_bytes(void);

/* Whether kernels may call a function of this name. */
WEFT_API int32_t weft_has_export(const char *name);

/* Reads and writes all of `memory`, in whole multiples of 64 KiB, on the threads of weft_parallel_begin, so that their
 * caches hold nothing else if they hold less. */
WEFT_API void weft_evict_caches(void *memory, int64_t bytes);

/* Monotonic clock. */
WEFT_API int64_t weft_nanoseconds(void);

#ifdef __cplusplus
}
#endif
#endif
