/* Empties caches, for measurements of what a kernel takes when its data are in memory. */
#include "weft_runtime.h"

enum { LINE = 64, LINES = 1024 };

/* Reading and writing brings a line into the caches of the core, and its old content out; plain stores may go past them. */
static int32_t touch(int64_t begin, int64_t end, void *closure) {
    volatile uint64_t *words = closure;
    const int64_t step = LINE / (int64_t)sizeof *words;
    for (int64_t i = begin * LINES * step; i < end * LINES * step; i += step) words[i]++;
    return 0;
}

void weft_evict_caches(void *memory, int64_t bytes) {
    (void)weft_parallel_for(touch, bytes / (LINE * LINES), 1, memory);
}
