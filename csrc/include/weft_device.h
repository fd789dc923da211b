/* Weft C runtime: devices.
 *
 * A device has a separate memory and runs kernels on it. The executor calls it through a table of functions, which a
 * driver fills in: in C (it needs only this header) or in Python (weft.runtime.devices). Kernels of the CPU are called
 * directly, without a table. There is a table "cpu" too, for code that treats all devices alike.
 *
 * Addresses. `allocate` returns an address. Only the device reads or writes there; for all others it is a number. If `a`
 * is the address of n bytes, then a + k is the address of byte k for 0 <= k < n, in every function of the table except
 * `free`, which gets `a` itself. Live allocations of one device do not overlap. An address is never NULL.
 *
 * Order. Requests to a device take effect in the order of the calls. `launch`, `copy_in` and `copy_across` may return
 * before the work is done; when `copy_in` returns, its source may be changed. `copy_out` returns when the bytes are
 * copied. `synchronize` returns when all earlier requests are done. An error that is found late is returned by the next
 * function that can return one, at the latest by `synchronize`. The executor synchronizes at the end of every run.
 *
 * Ownership. The caller of `allocate`, `load` and `open` owns the memory, the kernel and the device until it calls `free`,
 * `unload` and `close`. It calls these only when no pending work uses the object; they cannot fail. The code passed to
 * `load` is not used after `load` returns. Every kernel is unloaded and every address is freed before `close`.
 *
 * Threads. Several threads call the functions of one device concurrently; the device must lock where necessary.
 *
 * Errors. Functions return WEFT_OK; WEFT_ERROR_MEMORY if the device's memory is exhausted; WEFT_ERROR_KERNEL if a kernel
 * reported an error (its number is in `given`); WEFT_ERROR_DEVICE for all other errors. They write a sentence to
 * `error->message`. `error` is never NULL. A function that fails has no effect. */
#ifndef WEFT_DEVICE_H
#define WEFT_DEVICE_H

#include "weft_runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Version of the table below: increased if a function is added or its meaning changes. */
#define WEFT_DEVICE_VERSION 1

/* The launch of a kernel: `grid` blocks in each direction, with `block` threads in each. The threads of a block share
 * `shared_bytes` bytes of fast memory, in addition to the memory that the code declares. For devices without blocks, the
 * numbers are 1 and `shared_bytes` is 0. */
typedef struct weft_launch {
    int64_t grid[3], block[3], shared_bytes;
} weft_launch;

typedef struct weft_device_info {
    char name[128];       /* for people */
    char formats[128];    /* formats of code that `load` takes, separated by commas, the best first */
    int64_t memory_bytes; /* 0: not known */
} weft_device_info;

typedef struct weft_device_table {
    int32_t version; /* WEFT_DEVICE_VERSION */
    /* Device number `index` of this kind; `context` is what the table was registered with. */
    int32_t (*open)(void *context, int32_t index, void **device, weft_error *error);
    int32_t (*info)(void *device, weft_device_info *info, weft_error *error);
    /* At least one byte is asked for. The address is a multiple of what the device's kernels need. */
    int32_t (*allocate)(void *device, int64_t nbytes, void **address, weft_error *error);
    void (*free)(void *device, void *address);
    int32_t (*copy_in)(void *device, void *to, const void *from, int64_t nbytes, weft_error *error);
    int32_t (*copy_out)(void *device, void *to, const void *from, int64_t nbytes, weft_error *error);
    /* Between two places of this device, which may overlap. */
    int32_t (*copy_across)(void *device, void *to, const void *from, int64_t nbytes, weft_error *error);
    /* The kernel `entry` of some code in one of the formats that `info` lists. */
    int32_t (*load)(void *device, const char *format, const void *code, size_t nbytes, const char *entry, void **kernel,
                    weft_error *error);
    void (*unload)(void *device, void *kernel);
    int32_t (*launch)(void *device, void *kernel, void *const *buffers, int32_t buffer_count, const int64_t *sizes,
                      int32_t size_count, const weft_launch *launch, weft_error *error);
    int32_t (*synchronize)(void *device, weft_error *error);
    void (*close)(void *device);
} weft_device_table;

/* Makes devices of a kind known under its name. The table must live as long as the process. WEFT_ERROR_DEVICE where the
 * kind is known already under another table, or the table is of another version. */
WEFT_API int32_t weft_device_register(const char *kind, const weft_device_table *table, void *context, weft_error *error);

/* Opens a device of a registered kind, or (weft_device_open_table) of a table that is not registered; the caller has a
 * reference. The device is closed when the last reference goes. */
WEFT_API int32_t weft_device_open(const char *kind, int32_t index, weft_device **out, weft_error *error);
WEFT_API int32_t weft_device_open_table(const char *kind, const weft_device_table *table, void *context, int32_t index,
                                        weft_device **out, weft_error *error);
WEFT_API weft_device *weft_device_retain(weft_device *device);
WEFT_API void weft_device_release(weft_device *device);
WEFT_API const char *weft_device_kind(const weft_device *device);
WEFT_API int32_t weft_device_index(const weft_device *device);
/* Addresses that are allocated, and kernels that are loaded, at present. */
WEFT_API int64_t weft_device_allocations(const weft_device *device);
WEFT_API int64_t weft_device_kernels(const weft_device *device);

/* The functions of the table. `error` may be NULL; its message says which device failed at what. */
WEFT_API int32_t weft_device_ask(weft_device *device, weft_device_info *info, weft_error *error);
WEFT_API int32_t weft_device_allocate(weft_device *device, int64_t nbytes, void **address, weft_error *error);
WEFT_API void weft_device_free(weft_device *device, void *address);
WEFT_API int32_t weft_device_copy_in(weft_device *device, void *to, const void *from, int64_t nbytes, weft_error *error);
WEFT_API int32_t weft_device_copy_out(weft_device *device, void *to, const void *from, int64_t nbytes, weft_error *error);
WEFT_API int32_t weft_device_load(weft_device *device, const char *format, const void *code, size_t nbytes,
                                  const char *entry, void **kernel, weft_error *error);
WEFT_API void weft_device_unload(weft_device *device, void *kernel);
WEFT_API int32_t weft_device_launch(weft_device *device, void *kernel, void *const *buffers, int32_t buffer_count,
                                    const int64_t *sizes, int32_t size_count, const weft_launch *launch, weft_error *error);
WEFT_API int32_t weft_device_synchronize(weft_device *device, weft_error *error);

/* Copies between any two places; a device that is NULL is the main memory. Between two devices the bytes take the way
 * through the main memory. When it returns, the source may be changed. */
WEFT_API int32_t weft_device_copy(weft_device *to_device, void *to, weft_device *from_device, const void *from,
                                  int64_t nbytes, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
