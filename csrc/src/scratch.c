/* Scratch memory: a stack of blocks for each thread. A block is never moved while in use. When the stack is empty, only
 * the largest block is kept; after a few runs, one block satisfies every request without allocation. */
#include <pthread.h>
#include <stdlib.h>

#include "internal.h"

typedef struct block {
    struct block *below;
    size_t capacity, used;
    char *memory;
} block;

enum { FIRST_BLOCK = 256 << 10 };

static _Thread_local block *stack;
static _Thread_local block *spare; /* an empty block kept so that a request at the edge does not allocate each time */
static pthread_key_t cleanup_key;
static pthread_once_t cleanup_once = PTHREAD_ONCE_INIT;

static void free_block(block *b) {
    if (b) weft_free(b->memory);
    free(b);
}

static void free_stack(void *unused) {
    (void)unused;
    while (stack) {
        block *below = stack->below;
        free_block(stack);
        stack = below;
    }
    free_block(spare);
    spare = NULL;
}

void weft_trim_scratch(void) {
    free_block(spare);
    spare = NULL;
    if (!stack || stack->used) return;
    block *below = stack->below;
    free_block(stack);
    stack = below;
}

static void make_key(void) { (void)pthread_key_create(&cleanup_key, free_stack); }

static block *new_block(size_t bytes) {
    block *b = malloc(sizeof *b);
    if (!b) return NULL;
    *b = (block){.capacity = bytes, .memory = weft_alloc_large((int64_t)bytes)};
    if (b->memory) return b;
    free(b);
    return NULL;
}

static bool push_block(size_t bytes) {
    block *b = spare;
    spare = NULL;
    if (b && b->capacity < bytes) {
        free_block(b);
        b = NULL;
    }
    if (!b) {
        size_t size = stack ? 2 * stack->capacity : FIRST_BLOCK;
        pthread_once(&cleanup_once, make_key);
        pthread_setspecific(cleanup_key, &cleanup_key);
        b = new_block(size > bytes ? size : bytes);
        if (!b && size > bytes) b = new_block(bytes);
        if (!b) return false;
    }
    if (stack && stack->used == 0) { /* an empty block that was too small: replaced, not kept below */
        block *below = stack->below;
        free_block(stack);
        stack = below;
    }
    b->below = stack;
    stack = b;
    return true;
}

static size_t rounded_size(int64_t bytes) {
    return bytes <= 0 ? WEFT_ALIGN : ((size_t)bytes + WEFT_ALIGN - 1) / WEFT_ALIGN * WEFT_ALIGN;
}

void *weft_scratch(int64_t bytes) {
    if (bytes > 0 && (uint64_t)bytes > SIZE_MAX / 4) return NULL; /* beyond the address space, which may have 32 bits */
    size_t size = rounded_size(bytes);
    if ((!stack || stack->capacity - stack->used < size) && !push_block(size)) return NULL;
    void *result = stack->memory + stack->used;
    stack->used += size;
    return result;
}

int64_t weft_scratch_bytes(void) {
    size_t used = 0;
    for (const block *b = stack; b; b = b->below) used += b->used;
    return (int64_t)used;
}

void weft_scratch_release(int64_t bytes) {
    size_t size = rounded_size(bytes);
    if (!stack || stack->used < size) return;
    stack->used -= size;
    if (stack->used == 0 && stack->below) {
        block *b = stack;
        stack = b->below;
        free_block(spare);
        spare = b;
    }
    if (stack->used == 0 && !stack->below && spare && spare->capacity > stack->capacity) {
        block *smaller = stack;
        stack = spare;
        stack->below = NULL;
        spare = NULL;
        free_block(smaller);
    }
}
