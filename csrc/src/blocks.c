/* Large blocks that were freed are kept for the next ones.
 *
 * The system clears the pages of a new block, which takes longer than many operators take to fill it: a model that
 * returns 16 MB would spend a millisecond on that in each call. The allocator of the C library gives large blocks back
 * to the system at once, in particular aligned ones. A few are kept here; weft_trim gives them back. */
#include <pthread.h>
#include <stdlib.h>

#include "internal.h"

#if defined(__linux__)
#include <malloc.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define WEFT_KEEPS_BLOCKS 0 /* a block that is kept hides that it is used after it was freed */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEFT_KEEPS_BLOCKS 0
#endif
#endif
#if !defined(WEFT_KEEPS_BLOCKS)
#if defined(__linux__)
#define WEFT_KEEPS_BLOCKS 1
#else
#define WEFT_KEEPS_BLOCKS 0 /* the size of a block is not known */
#endif
#endif

#if WEFT_KEEPS_BLOCKS

enum { MAX_BLOCKS = 8 };
static const size_t MAX_BYTES = (size_t)256 << 20; /* of all blocks that are kept */
static const size_t MIN_BYTES = WEFT_LARGE_BLOCK;

typedef struct {
    void *memory;
    size_t bytes;
} kept_block;

static kept_block kept[MAX_BLOCKS]; /* the oldest first */
static size_t kept_count, kept_bytes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }
__attribute__((constructor)) static void guard_forks(void) { (void)pthread_atfork(before_fork, after_fork, after_fork); }

static void *remove_block(size_t at) {
    void *memory = kept[at].memory;
    kept_bytes -= kept[at].bytes;
    kept_count--;
    for (; at < kept_count; at++) kept[at] = kept[at + 1];
    return memory;
}

void *weft_take_block(size_t bytes, size_t align) {
    size_t best = MAX_BLOCKS;
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < kept_count; i++) {
        const bool fits = kept[i].bytes >= bytes && kept[i].bytes - bytes <= bytes / 4 + WEFT_LARGE_BLOCK;
        if (fits && (uintptr_t)kept[i].memory % align == 0 && (best == MAX_BLOCKS || kept[i].bytes < kept[best].bytes)) best = i;
    }
    void *memory = best == MAX_BLOCKS ? NULL : remove_block(best);
    pthread_mutex_unlock(&lock);
    return memory;
}

bool weft_keep_block(void *memory, size_t align) {
    if ((uintptr_t)memory % align) return false; /* most blocks: those that are not large */
    const size_t bytes = malloc_usable_size(memory);
    if (bytes < MIN_BYTES || bytes > MAX_BYTES) return false;
    void *old[MAX_BLOCKS];
    size_t count = 0;
    pthread_mutex_lock(&lock);
    while (kept_count == MAX_BLOCKS || kept_bytes > MAX_BYTES - bytes) old[count++] = remove_block(0);
    kept[kept_count++] = (kept_block){memory, bytes};
    kept_bytes += bytes;
    pthread_mutex_unlock(&lock);
    while (count) free(old[--count]);
    return true;
}

bool weft_free_blocks(void) {
    void *old[MAX_BLOCKS];
    size_t count = 0;
    pthread_mutex_lock(&lock);
    while (kept_count) old[count++] = remove_block(0);
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < count; i++) free(old[i]);
    return count > 0;
}

#else

void *weft_take_block(size_t bytes, size_t align) {
    (void)bytes, (void)align;
    return NULL;
}
bool weft_keep_block(void *memory, size_t align) {
    (void)memory, (void)align;
    return false;
}
bool weft_free_blocks(void) { return false; }

#endif
