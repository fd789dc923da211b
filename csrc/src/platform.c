/* Memory, clock, errors and waiting. */
#define _GNU_SOURCE
#include "platform.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

#if defined(__linux__)
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#endif

enum { HUGE_PAGE = 2 << 20 };

int32_t weft_fail(weft_error *error, int32_t status, const char *format, ...) {
    if (error) {
        *error = (weft_error){.status = status, .index = -1, .axis = -1, .instruction = -1};
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error->message, sizeof error->message, format, arguments);
        va_end(arguments);
    }
    return status;
}

static _Atomic int64_t blocks;

static void *counted(void *memory) {
    if (memory) atomic_fetch_add_explicit(&blocks, 1, memory_order_relaxed);
    return memory;
}

static void *allocate(int64_t bytes, size_t align) {
    if (bytes < 0 || (uint64_t)bytes > SIZE_MAX - align) return NULL;
    size_t rounded = ((size_t)bytes + align - 1) / align * align;
    void *memory = aligned_alloc(align, rounded ? rounded : align);
    if (!memory && weft_free_blocks()) memory = aligned_alloc(align, rounded ? rounded : align);
    return counted(memory);
}

void *weft_alloc_small(int64_t bytes) {
    if (bytes < 0 || (uint64_t)bytes > SIZE_MAX) return NULL;
    return counted(malloc((size_t)bytes + !bytes));
}

void *weft_alloc(int64_t bytes) { return allocate(bytes, WEFT_ALIGN); }

void *weft_alloc_large(int64_t bytes) {
    if (bytes < WEFT_LARGE_BLOCK) return weft_alloc(bytes);
    void *memory = (uint64_t)bytes > SIZE_MAX ? NULL : weft_take_block((size_t)bytes, HUGE_PAGE);
    if (memory) return counted(memory);
    memory = allocate(bytes, HUGE_PAGE);
#if defined(MADV_HUGEPAGE)
    if (memory) (void)madvise(memory, (size_t)bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

void weft_free(void *memory) {
    if (!memory) return;
    atomic_fetch_sub_explicit(&blocks, 1, memory_order_relaxed);
    if (!weft_keep_block(memory, HUGE_PAGE)) free(memory);
}

int64_t weft_allocated_blocks(void) { return atomic_load(&blocks); }

int64_t weft_nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int32_t weft_processors(void) {
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
#endif
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 && count < 4096 ? (int32_t)count : 1;
}

#if defined(__linux__)

int32_t weft_processor(void) { return sched_getcpu(); }

void weft_leave_processor(int32_t processor) {
    cpu_set_t allowed, others;
    if (processor >= CPU_SETSIZE || sched_getaffinity(0, sizeof allowed, &allowed)) return;
    others = allowed;
    CPU_CLR(processor, &others);
    if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others)) return; /* it has moved already */
    (void)sched_setaffinity(0, sizeof allowed, &allowed);
}

#else

int32_t weft_processor(void) { return -1; }
void weft_leave_processor(int32_t processor) { (void)processor; }

#endif

#if defined(__linux__) && !defined(WEFT_NO_FUTEX)

void weft_wait_word(_Atomic uint32_t *word, uint32_t expected, int64_t nanoseconds) {
    const struct timespec limit = {(time_t)(nanoseconds / 1000000000), (long)(nanoseconds % 1000000000)};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, nanoseconds < 0 ? NULL : &limit, NULL, 0);
}

void weft_wake_word(_Atomic uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0); }

#else

/* One lock for all words, because sleeping is rare. The lock is taken before waking, so that weft_wait_word cannot miss a
 * wake-up between its test and its sleep. */
static pthread_mutex_t sleep_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t sleep_changed = PTHREAD_COND_INITIALIZER;

static void before_fork(void) { pthread_mutex_lock(&sleep_lock); }
static void after_fork_in_parent(void) { pthread_mutex_unlock(&sleep_lock); }
static void after_fork_in_child(void) {
    (void)pthread_cond_init(&sleep_changed, NULL); /* nobody waits for it here */
    pthread_mutex_unlock(&sleep_lock);
}

__attribute__((constructor)) static void guard_forks(void) {
    (void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void weft_wait_word(_Atomic uint32_t *word, uint32_t expected, int64_t nanoseconds) {
    struct timespec until;
    if (nanoseconds >= 0) {
        clock_gettime(CLOCK_REALTIME, &until);
        const int64_t sum = until.tv_nsec + nanoseconds;
        until.tv_sec += (time_t)(sum / 1000000000);
        until.tv_nsec = (long)(sum % 1000000000);
    }
    pthread_mutex_lock(&sleep_lock);
    if (atomic_load(word) != expected) {
        /* nothing to wait for */
    } else if (nanoseconds < 0) {
        pthread_cond_wait(&sleep_changed, &sleep_lock);
    } else {
        pthread_cond_timedwait(&sleep_changed, &sleep_lock, &until);
    }
    pthread_mutex_unlock(&sleep_lock);
}

void weft_wake_word(_Atomic uint32_t *word) {
    (void)word;
    pthread_mutex_lock(&sleep_lock);
    pthread_cond_broadcast(&sleep_changed);
    pthread_mutex_unlock(&sleep_lock);
}

#endif
