/* Functions that differ between operating systems and processors: pausing, and waiting for a word to change. */
#ifndef WEFT_PLATFORM_H
#define WEFT_PLATFORM_H

#include <stdatomic.h>
#include <stdint.h>

#include "weft_runtime.h"

#if defined(__x86_64__) || defined(__i386__)
#define WEFT_PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__) || defined(__arm__)
#define WEFT_PAUSE() __asm__ volatile("yield" ::: "memory")
#else
#define WEFT_PAUSE() ((void)0)
#endif

/* Sleeps until woken, for `nanoseconds` (negative: any time), if *word still equals `expected`. Spurious wake-ups are
 * possible. */
void weft_wait_word(_Atomic uint32_t *word, uint32_t expected, int64_t nanoseconds);
/* Wakes every thread that sleeps on the word. */
void weft_wake_word(_Atomic uint32_t *word);

/* A clock that costs next to nothing: 1 to 5 ticks per nanosecond. */
static inline int64_t weft_ticks(void) {
#if defined(__x86_64__) || defined(__i386__)
    return (int64_t)__builtin_ia32_rdtsc();
#else
    return weft_nanoseconds();
#endif
}

/* Processors that this process may run on, at least 1. */
int32_t weft_processors(void);
/* The processor that runs this thread; -1 if the system does not say. */
int32_t weft_processor(void);
/* Moves this thread to another processor on which it may run. */
void weft_leave_processor(int32_t processor);

#endif
