/* Functions that differ between operating systems and processors: pausing, and waiting for a word to change. */
#ifndef WEFT_PLATFORM_H
#define WEFT_PLATFORM_H

#include <stdatomic.h>
#include <stdint.h>

#if defined(__x86_64__) || defined(__i386__)
#define WEFT_PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__) || defined(__arm__)
#define WEFT_PAUSE() __asm__ volatile("yield" ::: "memory")
#else
#define WEFT_PAUSE() ((void)0)
#endif

/* Sleeps until woken if *word still equals `expected`. Spurious wake-ups are possible. */
void weft_wait_word(_Atomic uint32_t *word, uint32_t expected);
/* Wakes every thread that sleeps on the word. */
void weft_wake_word(_Atomic uint32_t *word);

/* Processors that this process may run on, at least 1. */
int32_t weft_processors(void);

#endif
