/* Stopping runs at a deadline, or when the caller asks for it. */
#include "watch.h"

#include <stdlib.h>

/* Ticks between two looks: at 1 to 5 ticks per nanosecond, 1 to 4 milliseconds. */
enum { LOOK_TICKS = 4000000 };

static _Thread_local weft_watch first; /* most watches have no outer one and need no memory */
static _Thread_local weft_watch *current;
static _Thread_local const weft_watch *obeyed; /* of a worker: that of the thread that it helps */

weft_watch *weft_watch_begin(int64_t deadline, int32_t (*poll)(void *context), void *context, int64_t patience) {
    weft_watch *w = current ? calloc(1, sizeof *w) : &first;
    if (!w) return NULL;
    w->outer = current;
    w->deadline = deadline;
    w->poll = poll;
    w->context = context;
    w->patience = patience;
    w->poll_at = 0;
    w->look_at = 0;
    atomic_store_explicit(&w->stopped, 0, memory_order_relaxed);
    current = w;
    return w;
}

void weft_watch_end(weft_watch *w) {
    if (!w) return;
    current = w->outer;
    if (w != &first) free(w);
}

weft_watch *weft_watch_current(void) { return current; }

void weft_watch_obey(const weft_watch *w) { obeyed = w; }

int32_t weft_must_stop(void) {
    const int32_t status = current ? weft_watch_check(current) : obeyed ? weft_watch_stopped(obeyed) : 0;
    return status ? WEFT_STOPPED : 0;
}

static int32_t reason_to_stop(weft_watch *w, int64_t now) {
    if (now >= w->deadline) return WEFT_ERROR_TIMEOUT;
    if (w->poll_at == 0) {
        w->poll_at = now + w->patience; /* the first look is at the begin of the run */
    } else if (w->poll && now >= w->poll_at) {
        if (w->poll(w->context)) return WEFT_ERROR_INTERRUPTED;
        w->poll_at = weft_nanoseconds() + w->patience;
    }
    return WEFT_OK;
}

int32_t weft_watch_look(weft_watch *w) {
    int32_t status = weft_watch_stopped(w);
    if (!status) status = reason_to_stop(w, weft_nanoseconds());
    if (!status && w->outer) status = weft_watch_look(w->outer);
    if (status) atomic_store_explicit(&w->stopped, status, memory_order_relaxed);
    w->look_at = status ? 0 : weft_ticks() + LOOK_TICKS;
    return status;
}
