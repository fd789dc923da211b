/* Thread pools and weft_parallel_for.
 *
 * A run has exclusive use of a pool, so runs never wait for each other. One word of a pool, the gate, contains
 *
 *     generation (16 bits) | open (1 bit) | workers inside (15 bits)
 *
 * The caller publishes a job by opening the gate with a new generation; a worker may enter while the gate is open. The
 * workers and the caller claim chunks from one counter until none is left; chunks shrink in rounds (see divide). Then the
 * caller closes the gate and waits only for workers that are inside. A worker that the system has not scheduled yet does
 * not enter and delays nobody. Entering is a compare-and-swap on the gate, so no worker can enter after it is closed. The
 * generation may wrap around while a worker sleeps; this is harmless, because no job needs a particular worker.
 *
 * Caller and workers spin for a bounded time, then sleep on a word (futex). A worker usually spins longer than the serial
 * parts of a run take, because waking it takes as long as a small kernel.
 *
 * fork: the child has no workers and drops all pools; new ones are made on demand. exit: idle workers are joined. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "internal.h"
#include "platform.h"
#include "watch.h"

enum {
    MAX_THREADS = 1024,
    ROUNDS = 4,
    MAX_IDLE_POOLS = 16,
    WORKER_STACK = 8 << 20,
    PIECE_TICKS = 10000000, /* of weft_ticks that a piece of a loop shall take under a watch: 2 to 10 ms */
    SPIN_WORKER_NS = 1000000,
    SPIN_CALLER_NS = 100000,
    LOOK_NS = 4000000, /* between two looks at the watch of a caller that sleeps */
    CACHE_LINE = 64
};

#define GATE_WORKER 1u
#define GATE_INSIDE 0x7fffu
#define GATE_OPEN 0x8000u
#define GATE_GENERATION 0x10000u

/* Iterations in rounds. Each round except the last has one chunk of `size` iterations for each thread. The last round has
 * all other chunks; its first `extra` chunks have one more iteration. The struct fits in one cache line. */
typedef struct {
    weft_parallel_body body;
    void *closure;
    int64_t size[ROUNDS];
    int32_t chunks, extra;
    int16_t threads, last;
    int32_t grain; /* at most INT32_MAX */
} job;

typedef struct pool {
    _Alignas(CACHE_LINE) job job; /* written by the caller while the gate is closed and nobody is inside */
    weft_watch *watch;            /* the same: that of the caller */
    _Atomic int32_t caller_at;    /* the processor on which the caller opened the gate */
    _Alignas(CACHE_LINE) _Atomic int32_t next; /* first chunk not claimed */
    _Alignas(CACHE_LINE) _Atomic uint32_t gate;
    _Alignas(CACHE_LINE) _Atomic uint32_t sleeping_workers;
    _Atomic uint32_t caller_sleeps;
    _Atomic uint32_t left; /* counts workers that left while the caller slept; the caller sleeps on it */
    _Atomic int32_t result;
    _Atomic bool stop;
    bool spins; /* false where threads outnumber processors */
    int32_t threads, started, era;
    union {
        struct pool *next_idle;
        struct pool *outer; /* of a pool in use: the one that the thread used before and will use again */
    };
    pthread_t workers[];
} pool;

/* The pool that weft_parallel_for on this thread uses; NULL: it runs serially. */
static _Thread_local pool *current;

static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;
static pool *idle;
static int32_t idle_count;
static int32_t era; /* counts forks: pools of an earlier era have no workers */
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;
static _Atomic int32_t worker_count;

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

/* Divides iterations into chunks of at least `grain`. The rounds take 2/5, 2/4, 2/3 and all of the remaining iterations:
 * 40, 30, 20 and 10 % of the total. A late thread misses large chunks; the small chunks at the end let all threads finish
 * at about the same time. If all iterations take equally long, the threads' numbers of iterations differ by at most one.
 * A round is the last if it would leave less than the grain for each thread. */
static void divide(job *j, int64_t count, int64_t grain, int32_t threads) {
    int64_t left = count;
    int32_t round = 0;
    for (;; round++) {
        const int64_t each = left / threads, shared = each * 2 / (ROUNDS + 1 - round);
        const int64_t size = shared > grain ? shared : grain;
        if (round < ROUNDS - 1 && each - size >= grain) {
            j->size[round] = size;
            left -= size * threads;
            continue;
        }
        const int64_t chunks = each < grain ? left / grain : each == 1 ? left : threads;
        j->size[round] = left / chunks;
        j->extra = (int32_t)(left % chunks);
        j->chunks = round * threads + (int32_t)chunks;
        j->threads = (int16_t)threads;
        j->last = (int16_t)round;
        j->grain = grain < INT32_MAX ? (int32_t)grain : INT32_MAX;
        return;
    }
}

/* What one thread knows about interrupting a job: under a watch, chunks run in pieces, between which the job may stop. */
typedef struct {
    weft_watch *watch; /* NULL: nobody stops the job, and chunks run whole */
    bool asks;         /* the watched thread asks whether to stop; its workers only look whether it found so */
    double fitting;    /* iterations that take few milliseconds, as the last piece ran; 0: not known yet */
} pace;

static pace new_pace(weft_watch *watch) { return (pace){watch, watch == weft_watch_current(), 0}; }

static int32_t is_stopped(const pace *t, int64_t ticks) {
    return t->asks ? weft_watch_check_at(t->watch, ticks) : weft_watch_stopped(t->watch);
}

/* Iterations of the next piece: few milliseconds, at least the grain, and no fewer are left for the pieces after it. */
static int64_t piece_of(const pace *t, int64_t left, int64_t grain) {
    const int64_t piece = t->fitting >= (double)left ? left : t->fitting > (double)grain ? (int64_t)t->fitting : grain;
    return left - piece < grain ? left : piece;
}

/* Runs the iterations of a chunk. The clock is read twice for each piece, and not for the last one, which fits: small
 * loops are frequent. */
static int32_t run_body(weft_parallel_body body, int64_t begin, int64_t end, int64_t grain, void *closure, pace *t) {
    if (!t->watch || grain > (end - begin) / 2) return body(begin, end, closure);
    for (;;) {
        const int64_t piece = piece_of(t, end - begin, grain);
        if (piece == end - begin) return body(begin, end, closure);
        const int64_t start = weft_ticks();
        const int32_t result = body(begin, begin + piece, closure);
        const int64_t now = weft_ticks();
        if (result) return result;
        begin += piece;
        t->fitting = PIECE_TICKS * (double)piece / (double)(now - start + 1);
        if (is_stopped(t, now)) return WEFT_STOPPED;
    }
}

static void run_chunks(pool *p) {
    const job j = p->job;
    const int64_t grain = j.grain == INT32_MAX ? INT64_MAX : j.grain; /* as it was given, or too large for pieces */
    pace t = new_pace(p->watch);
    int64_t begin = 0; /* of the round */
    int32_t round = 0, first = 0;
    for (;;) {
        const int32_t chunk = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed);
        if (chunk >= j.chunks) return;
        for (; round < j.last && chunk - first >= j.threads; round++) {
            first += j.threads;
            begin += j.size[round] * j.threads;
        }
        const int32_t at = chunk - first, extra = round == j.last ? j.extra : 0;
        const int64_t from = begin + at * j.size[round] + (at < extra ? at : extra);
        int32_t result = t.watch && is_stopped(&t, weft_ticks()) ? WEFT_STOPPED : 0;
        if (!result) result = run_body(j.body, from, from + j.size[round] + (at < extra), grain, j.closure, &t);
        if (result) {
            int32_t none = 0;
            atomic_compare_exchange_strong(&p->result, &none, result);
            atomic_store_explicit(&p->next, j.chunks, memory_order_relaxed);
        }
    }
}

static void leave(pool *p) {
    uint32_t before = atomic_fetch_sub(&p->gate, GATE_WORKER);
    if ((before & (GATE_OPEN | GATE_INSIDE)) == GATE_WORKER && atomic_load(&p->caller_sleeps)) {
        atomic_fetch_add(&p->left, 1);
        weft_wake_word(&p->left);
    }
}

/* The system may wake a worker on the caller's own processor, where it would compute and spin instead of the caller, with
 * other processors idle: all threads are woken by one that is about to wait, as far as it knows. */
static void leave_caller(pool *p) {
    const int32_t at = weft_processor();
    if (at >= 0 && at == atomic_load_explicit(&p->caller_at, memory_order_relaxed)) weft_leave_processor(at);
}

/* Waits until the gate shows a generation other than `seen`, or the pool stops; returns the gate. */
static uint32_t await_job(pool *p, uint32_t seen) {
    int64_t limit = 0;
    for (uint32_t turn = 0;; turn++) {
        uint32_t gate = atomic_load_explicit(&p->gate, memory_order_acquire);
        if ((gate ^ seen) / GATE_GENERATION || atomic_load_explicit(&p->stop, memory_order_relaxed)) return gate;
        bool tired = !p->spins;
        if (!tired && turn % 64 == 63) {
            int64_t now = weft_nanoseconds();
            if (!limit) limit = now + SPIN_WORKER_NS;
            tired = now >= limit;
            if (!tired) leave_caller(p);
        }
        if (!tired) {
            WEFT_PAUSE();
            continue;
        }
        atomic_fetch_add(&p->sleeping_workers, 1);
        gate = atomic_load(&p->gate);
        if (!((gate ^ seen) / GATE_GENERATION) && !atomic_load(&p->stop)) weft_wait_word(&p->gate, gate, -1);
        atomic_fetch_sub(&p->sleeping_workers, 1);
        if (p->spins) leave_caller(p);
    }
}

static void *worker_main(void *argument) {
    pool *p = argument;
    uint32_t seen = 0;
    for (;;) {
        uint32_t gate = await_job(p, seen);
        if (atomic_load(&p->stop)) return NULL;
        seen = gate;
        while (gate & GATE_OPEN) {
            if (atomic_compare_exchange_weak(&p->gate, &gate, gate + GATE_WORKER)) {
                seen = gate;
                weft_watch_obey(p->watch);
                run_chunks(p);
                weft_watch_obey(NULL); /* the watch ends with the run */
                leave(p);
                break;
            }
        }
    }
}

static void open_gate(pool *p) {
    uint32_t gate = atomic_load_explicit(&p->gate, memory_order_relaxed);
    atomic_store(&p->gate, ((gate & ~(GATE_GENERATION - 1)) + GATE_GENERATION) | GATE_OPEN);
    if (atomic_load(&p->sleeping_workers)) weft_wake_word(&p->gate);
}

/* While it waits for the workers inside, the caller goes on to ask whether to stop: they look at what it finds. */
static void close_gate_and_wait(pool *p) {
    uint32_t gate = atomic_fetch_and(&p->gate, ~GATE_OPEN) & ~GATE_OPEN;
    weft_watch *watch = p->watch;
    int64_t limit = 0;
    for (uint32_t turn = 0; gate & GATE_INSIDE; turn++) {
        if (turn % 64 == 63 || !p->spins) {
            int64_t now = weft_nanoseconds();
            if (!limit) limit = now + (p->spins ? SPIN_CALLER_NS : 0);
            if (watch && weft_watch_check(watch)) watch = NULL; /* told: there is nothing more to ask */
            if (now >= limit) {
                atomic_store(&p->caller_sleeps, 1);
                uint32_t left = atomic_load(&p->left);
                if (atomic_load(&p->gate) & GATE_INSIDE) weft_wait_word(&p->left, left, watch ? LOOK_NS : -1);
                atomic_store(&p->caller_sleeps, 0);
            }
        }
        WEFT_PAUSE();
        gate = atomic_load_explicit(&p->gate, memory_order_acquire);
    }
}

int32_t weft_parallel_for(weft_parallel_body body, int64_t count, int64_t grain, void *closure) {
    pool *p = current;
    if (count <= 0) return 0;
    if (grain < 1) grain = 1;
    weft_watch *const watch = weft_watch_current();
    if (!p || p->started == 0 || count / 2 < grain) {
        pace t = new_pace(watch);
        return run_body(body, 0, count, grain, closure, &t);
    }
    p->job.body = body, p->job.closure = closure;
    if (p->watch != watch) p->watch = watch; /* workers may have the cache line */
    divide(&p->job, count, grain, p->started + 1);
    atomic_store_explicit(&p->result, 0, memory_order_relaxed);
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_store_explicit(&p->caller_at, weft_processor(), memory_order_relaxed);
    current = NULL; /* nested calls run serially */
    open_gate(p);
    run_chunks(p);
    close_gate_and_wait(p);
    current = p;
    return atomic_load_explicit(&p->result, memory_order_relaxed);
}

/* ---- pools ------------------------------------------------------------------------------------------------------- */

static void stop_pool(pool *p) {
    atomic_store(&p->stop, true);
    atomic_fetch_add(&p->gate, GATE_GENERATION);
    weft_wake_word(&p->gate);
    for (int32_t i = 0; i < p->started; i++) pthread_join(p->workers[i], NULL);
    atomic_fetch_sub(&worker_count, p->started);
    free(p);
}

static void before_fork(void) { pthread_mutex_lock(&idle_lock); }
static void after_fork_in_parent(void) { pthread_mutex_unlock(&idle_lock); }
static void after_fork_in_child(void) {
    idle = NULL; /* the workers do not exist in this process; their memory is not freed */
    idle_count = 0;
    era++;
    current = NULL;
    atomic_store(&worker_count, 0);
    pthread_mutex_unlock(&idle_lock);
}

/* `count`: the number of idle pools to begin with from now on. */
static void stop_idle_pools(int32_t count) {
    pthread_mutex_lock(&idle_lock);
    pool *p = idle;
    idle = NULL;
    idle_count = count;
    pthread_mutex_unlock(&idle_lock);
    while (p) {
        pool *next = p->next_idle;
        stop_pool(p);
        p = next;
    }
}

static void stop_for_exit(void) { stop_idle_pools(MAX_IDLE_POOLS); } /* pools released from now on are stopped too */

void weft_trim(void) {
    weft_trim_scratch();
    stop_idle_pools(0);
    (void)weft_free_blocks();
}

/* From the start, not from the first pool on: weft_trim takes the lock where there never was one. */
__attribute__((constructor)) static void guard_forks(void) {
    (void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void stop_at_exit(void) { (void)atexit(stop_for_exit); }

static void start_workers(pool *p) {
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes)) return;
    (void)pthread_attr_setstacksize(&attributes, WORKER_STACK);
    /* The program's own threads handle signals, workers only those of their own faults: a fault whose signal is
     * blocked ends the process without the handlers that report it. */
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    sigset_t blocked, old;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &old);
    while (p->started < p->threads - 1 &&
           pthread_create(&p->workers[p->started], &attributes, worker_main, p) == 0)
        p->started++;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    atomic_fetch_add(&worker_count, p->started);
}

static pool *new_pool(int32_t threads) {
    pthread_once(&exit_once, stop_at_exit);
    size_t size = sizeof(pool) + (size_t)(threads - 1) * sizeof(pthread_t);
    pool *p = aligned_alloc(CACHE_LINE, (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    if (!p) return NULL;
    *p = (pool){.threads = threads, .era = era, .spins = threads <= weft_processors()};
    start_workers(p);
    return p;
}

static pool *take_idle(int32_t threads) {
    pthread_mutex_lock(&idle_lock);
    pool **link = &idle;
    while (*link && (*link)->threads != threads) link = &(*link)->next_idle;
    pool *p = *link;
    if (p) {
        *link = p->next_idle;
        idle_count--;
    }
    pthread_mutex_unlock(&idle_lock);
    return p;
}

void *weft_parallel_begin(int32_t threads) {
    if (threads < 1) threads = 1;
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if (threads == (current ? current->threads : 1)) return NULL; /* as it is */
    pool *p = take_idle(threads);
    if (!p) p = new_pool(threads);
    if (!p) return NULL;
    p->outer = current;
    current = p;
    return p;
}

void weft_parallel_end(void *token) {
    pool *p = token;
    if (!p) return;
    if (p->era != era) {
        current = NULL; /* what was in use before has no workers either */
        return;
    }
    current = p->outer;
    pthread_mutex_lock(&idle_lock);
    bool keep = idle_count < MAX_IDLE_POOLS;
    if (keep) {
        p->next_idle = idle;
        idle = p;
        idle_count++;
    }
    pthread_mutex_unlock(&idle_lock);
    if (!keep) stop_pool(p);
}

int32_t weft_worker_count(void) { return atomic_load(&worker_count); }
