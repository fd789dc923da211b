/* Scratch memory: a stack of blocks for each thread. A block is never moved while in use. When the stack is empty, only
 * the largest block is kept; after a few runs, one block satisfies every request without allocation.
 *
 * Any thread may free what the others keep (weft_trim_scratch). So a thread holds its stack from the first request until
 * everything is released; the blocks of a stack that nobody holds belong to whoever takes hold of it. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "internal.h"

typedef struct block {
    struct block *below;
    size_t capacity, used;
    char *memory;
} block;

/* The scratch memory of a thread. */
typedef struct scratch {
    struct scratch *next, **link; /* in the list of all, and what points to this one there */
    _Atomic bool held;
    size_t taken; /* bytes of all blocks that are in use; more than 0 only while its thread holds it */
    block *stack;
    block *spare; /* an empty block kept so that a request at the edge does not allocate each time */
} scratch;

enum { FIRST_BLOCK = 256 << 10 };

static _Thread_local scratch *mine;
static scratch *all;
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t cleanup_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void free_block(block *b) {
    if (b) weft_free(b->memory);
    free(b);
}

static void free_blocks(scratch *s) {
    while (s->stack) {
        block *below = s->stack->below;
        free_block(s->stack);
        s->stack = below;
    }
    free_block(s->spare);
    s->spare = NULL;
}

/* ---- the scratch memory of all threads --------------------------------------------------------------------------- */

static void at_thread_end(void *ending) {
    scratch *s = ending;
    pthread_mutex_lock(&all_lock); /* from now on nobody else knows it */
    *s->link = s->next;
    if (s->next) s->next->link = s->link;
    pthread_mutex_unlock(&all_lock);
    free_blocks(s);
    free(s);
    mine = NULL;
}

static void lock_all(void) { pthread_mutex_lock(&all_lock); }
static void unlock_all(void) { pthread_mutex_unlock(&all_lock); }

__attribute__((constructor)) static void guard_forks(void) { (void)pthread_atfork(lock_all, unlock_all, unlock_all); }

static void prepare(void) { (void)pthread_key_create(&cleanup_key, at_thread_end); }

static scratch *new_scratch(void) {
    pthread_once(&once, prepare);
    scratch *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    pthread_mutex_lock(&all_lock);
    s->next = all;
    s->link = &all;
    if (all) all->link = &s->next;
    all = s;
    pthread_mutex_unlock(&all_lock);
    (void)pthread_setspecific(cleanup_key, s);
    mine = s;
    return s;
}

static bool try_hold(scratch *s) { return !atomic_exchange_explicit(&s->held, true, memory_order_acquire); }
static void let_go(scratch *s) { atomic_store_explicit(&s->held, false, memory_order_release); }

void weft_trim_scratch(void) {
    pthread_mutex_lock(&all_lock);
    for (scratch *s = all; s; s = s->next) {
        if (!try_hold(s)) continue; /* in use */
        free_blocks(s);
        let_go(s);
    }
    pthread_mutex_unlock(&all_lock);
}

/* ---- the stack of a thread --------------------------------------------------------------------------------------- */

static block *new_block(size_t bytes) {
    block *b = malloc(sizeof *b);
    if (!b) return NULL;
    *b = (block){.capacity = bytes, .memory = weft_alloc_large((int64_t)bytes)};
    if (b->memory) return b;
    free(b);
    return NULL;
}

static bool push_block(scratch *s, size_t bytes) {
    block *b = s->spare;
    s->spare = NULL;
    if (b && b->capacity < bytes) {
        free_block(b);
        b = NULL;
    }
    if (!b) {
        size_t size = s->stack ? 2 * s->stack->capacity : FIRST_BLOCK;
        b = new_block(size > bytes ? size : bytes);
        if (!b && size > bytes) b = new_block(bytes);
        if (!b) return false;
    }
    if (s->stack && s->stack->used == 0) { /* an empty block that was too small: replaced, not kept below */
        block *below = s->stack->below;
        free_block(s->stack);
        s->stack = below;
    }
    b->below = s->stack;
    s->stack = b;
    return true;
}

static size_t rounded_size(int64_t bytes) {
    return bytes <= 0 ? WEFT_ALIGN : ((size_t)bytes + WEFT_ALIGN - 1) / WEFT_ALIGN * WEFT_ALIGN;
}

void *weft_scratch(int64_t bytes) {
    if (bytes > 0 && (uint64_t)bytes > SIZE_MAX / 4) return NULL; /* beyond the address space, which may have 32 bits */
    const size_t size = rounded_size(bytes);
    scratch *s = mine ? mine : new_scratch();
    if (!s) return NULL;
    if (!s->taken)
        while (!try_hold(s)) (void)sched_yield(); /* somebody frees its blocks, which does not take long */
    if ((!s->stack || s->stack->capacity - s->stack->used < size) && !push_block(s, size)) {
        if (!s->taken) let_go(s);
        return NULL;
    }
    void *result = s->stack->memory + s->stack->used;
    s->stack->used += size;
    s->taken += size;
    return result;
}

int64_t weft_scratch_bytes(void) { return mine ? (int64_t)mine->taken : 0; }

void weft_scratch_release(int64_t bytes) {
    const size_t size = rounded_size(bytes);
    scratch *s = mine;
    if (!s || !s->taken || s->stack->used < size) return;
    s->stack->used -= size;
    s->taken -= size;
    if (s->stack->used == 0 && s->stack->below) {
        block *b = s->stack;
        s->stack = b->below;
        free_block(s->spare);
        s->spare = b;
    }
    if (s->stack->used == 0 && !s->stack->below && s->spare && s->spare->capacity > s->stack->capacity) {
        block *smaller = s->stack;
        s->stack = s->spare;
        s->stack->below = NULL;
        s->spare = NULL;
        free_block(smaller);
    }
    if (!s->taken) let_go(s);
}
