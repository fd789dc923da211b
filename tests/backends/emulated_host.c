/* Runs one kernel, with the C runtime, on the architecture that both were compiled for.
 *
 * Standard input: the object (bytes), the kernel's name, the number of threads, the sizes, then the buffers; each of
 * unknown length after its length, all numbers int64. Standard output: the status of the kernel, then the contents of
 * the buffers. An object that cannot be loaded, or a store beside a buffer, ends the process with a message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weft_runtime.h"

enum { GUARD = 64, PATTERN = 0xa5 };

static void fail(const char *message) {
    fprintf(stderr, "%s\n", message);
    exit(3);
}

static void take(void *to, size_t bytes) {
    if (bytes && fread(to, 1, bytes, stdin) != bytes) fail("the input ends too early");
}

static int64_t number(void) {
    int64_t value;
    take(&value, sizeof value);
    return value;
}

static unsigned char *block(int64_t bytes) {
    unsigned char *memory = weft_alloc(bytes + 2 * GUARD);
    if (!memory) fail("out of memory");
    memset(memory, PATTERN, (size_t)bytes + 2 * GUARD);
    return memory;
}

static void check_guard(const unsigned char *at) {
    for (int i = 0; i < GUARD; i++)
        if (at[i] != PATTERN) fail("the kernel wrote outside of a buffer");
}

static weft_kernel find_kernel(const void *object, size_t bytes, const char *name) {
    weft_code *code;
    weft_error error;
    if (weft_code_load(object, bytes, 0, &code, &error)) fail(error.message);
    weft_kernel kernel = weft_code_function(code, name);
    if (!kernel) fail("the object has no such kernel");
    return kernel;
}

int main(void) {
    int64_t object_bytes = number();
    unsigned char *object = block(object_bytes);
    take(object, (size_t)object_bytes);
    int64_t name_bytes = number();
    char *name = calloc(1, (size_t)name_bytes + 1);
    take(name, (size_t)name_bytes);
    int64_t threads = number(), size_count = number(), sizes[64] = {0};
    if (size_count > 64) fail("too many sizes");
    take(sizes, (size_t)size_count * sizeof *sizes);
    int64_t count = number(), bytes[256];
    void *buffers[256];
    if (count > 256) fail("too many buffers");
    for (int64_t i = 0; i < count; i++) {
        bytes[i] = number();
        buffers[i] = block(bytes[i]) + GUARD;
        take(buffers[i], (size_t)bytes[i]);
    }
    weft_kernel kernel = find_kernel(object, (size_t)object_bytes, name);
    void *token = weft_parallel_begin((int32_t)threads);
    int64_t status = kernel(buffers, sizes);
    weft_parallel_end(token);
    fwrite(&status, sizeof status, 1, stdout);
    for (int64_t i = 0; i < count; i++) {
        check_guard((unsigned char *)buffers[i] - GUARD);
        check_guard((unsigned char *)buffers[i] + bytes[i]);
        fwrite(buffers[i], 1, (size_t)bytes[i], stdout);
    }
    return 0;
}
