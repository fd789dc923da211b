/* The CPU behind the table of a device, for those who treat all devices alike. */
#include <stdlib.h>
#include <string.h>

#include "devices.h"

typedef struct kernel {
    weft_code *code;
    weft_kernel function;
} kernel;

static int32_t open_cpu(void *context, int32_t index, void **device, weft_error *error) {
    static char cpu;
    (void)context;
    if (index != 0) return weft_fail(error, WEFT_ERROR_DEVICE, "there is one CPU, number 0");
    *device = &cpu;
    return WEFT_OK;
}

static int32_t info(void *device, weft_device_info *info, weft_error *error) {
    (void)device, (void)error;
    memcpy(info->name, "CPU", sizeof "CPU");
    memcpy(info->formats, "elf", sizeof "elf");
    return WEFT_OK;
}

static int32_t allocate(void *device, int64_t nbytes, void **address, weft_error *error) {
    (void)device;
    *address = weft_alloc_large(nbytes);
    return *address ? WEFT_OK : weft_fail(error, WEFT_ERROR_MEMORY, "out of memory");
}

static void free_memory(void *device, void *address) {
    (void)device;
    weft_free(address);
}

static int32_t copy(void *device, void *to, const void *from, int64_t nbytes, weft_error *error) {
    (void)device, (void)error;
    memmove(to, from, (size_t)nbytes);
    return WEFT_OK;
}

static int32_t load(void *device, const char *format, const void *code, size_t nbytes, const char *entry, void **out,
                    weft_error *error) {
    (void)device;
    if (strcmp(format, "elf") != 0) return weft_fail(error, WEFT_ERROR_DEVICE, "code of format '%.40s'", format);
    kernel *k = calloc(1, sizeof *k);
    if (!k) return weft_fail(error, WEFT_ERROR_MEMORY, "out of memory");
    int32_t status = weft_code_load(code, nbytes, 0, &k->code, error);
    if (!status && !(k->function = weft_code_function(k->code, entry))) {
        status = weft_fail(error, WEFT_ERROR_DEVICE, "the code has no kernel '%.60s'", entry);
        weft_code_free(k->code);
    }
    if (status) free(k);
    else *out = k;
    return status;
}

static void unload(void *device, void *loaded) {
    (void)device;
    weft_code_free(((kernel *)loaded)->code);
    free(loaded);
}

static int32_t launch(void *device, void *loaded, void *const *buffers, int32_t buffer_count, const int64_t *sizes,
                      int32_t size_count, const weft_launch *launch, weft_error *error) {
    (void)device, (void)buffer_count, (void)size_count, (void)launch;
    int32_t result = ((kernel *)loaded)->function(buffers, sizes);
    if (!result) return WEFT_OK;
    (void)weft_fail(error, WEFT_ERROR_KERNEL, "a kernel reported error %d", (int)result);
    error->given = result;
    return WEFT_ERROR_KERNEL;
}

static int32_t synchronize(void *device, weft_error *error) {
    (void)device, (void)error;
    return WEFT_OK;
}

static void close_cpu(void *device) { (void)device; }

const weft_device_table weft_cpu_table = {WEFT_DEVICE_VERSION, open_cpu, info,   allocate, free_memory, copy, copy, copy,
                                          load,                unload,   launch, synchronize, close_cpu};
