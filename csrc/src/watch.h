/* Stopping runs: a thread that runs programs looks at its watch now and then; its workers look at the result. */
#ifndef WEFT_WATCH_H
#define WEFT_WATCH_H

#include <stdatomic.h>

#include "internal.h"
#include "platform.h"

struct weft_watch {
    weft_watch *outer;
    int64_t deadline, poll_at, patience; /* nanoseconds */
    int32_t (*poll)(void *context);
    void *context;
    int64_t look_at;          /* of weft_ticks: before, there is nothing to do */
    _Atomic int32_t stopped;  /* the status that ends the run, or 0; workers read it */
};

/* The watch of the calling thread, or NULL. */
weft_watch *weft_watch_current(void);
/* Looks at the deadline and asks `poll`; returns the status that ends the run, or 0. Only on the watched thread. */
int32_t weft_watch_look(weft_watch *w);

/* What parts of a loop, and kernels, return when the run must stop. */
enum { WEFT_STOPPED = INT32_MIN };
/* From now on the calling thread, a worker, ends what it computes when the thread of `w` found that it must stop. */
void weft_watch_obey(const weft_watch *w);

WEFT_INLINE int32_t weft_watch_stopped(const weft_watch *w) {
    return atomic_load_explicit(&w->stopped, memory_order_relaxed);
}

/* The same as `look`, at no cost if the last look was less than some milliseconds ago. `ticks`: the present time. */
WEFT_INLINE int32_t weft_watch_check_at(weft_watch *w, int64_t ticks) {
    return WEFT_LIKELY(ticks < w->look_at) ? weft_watch_stopped(w) : weft_watch_look(w);
}

WEFT_INLINE int32_t weft_watch_check(weft_watch *w) { return weft_watch_check_at(w, weft_ticks()); }

#endif
