/* Limits of a session, and what happens where code of the client crashes or does not end.
 *
 * The code runs in this process: a crash ends the session. The client is told why before: the handler of the signal sends
 * the answer to the request. It calls only functions that are safe in a handler, with memory that was ready before. What
 * the code has overwritten may make this fail too; then the client only sees that the connection ends. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "session.h"

#if defined(__linux__)
#include <sys/prctl.h>
#endif

enum { GRACE_SECONDS = 1, ALTERNATE_STACK = 1 << 16, ERROR_NUMBERS = 40, LOOK_NANOSECONDS = 200000000 };

static rpc_session *told; /* whom a handler tells */
static _Atomic bool in_code;
static int64_t deadline;
static char alternate_stack[ALTERNATE_STACK];

static const struct {
    int signal;
    rpc_code code;
    const char *why;
} REASONS[] = {
    {SIGSEGV, RPC_CRASHED, "the code crashed: it used an address that is not its own (SIGSEGV)"},
    {SIGBUS, RPC_CRASHED, "the code crashed: it used an address that is not there or not aligned (SIGBUS)"},
    {SIGILL, RPC_CRASHED, "the code crashed: it has an instruction that this processor lacks (SIGILL)"},
    {SIGFPE, RPC_CRASHED, "the code crashed: a division by zero or out of range (SIGFPE)"},
    {SIGTRAP, RPC_CRASHED, "the code crashed: it reached a trap (SIGTRAP)"},
    {SIGABRT, RPC_CRASHED, "the code crashed: the process was aborted (SIGABRT)"},
    {SIGALRM, RPC_LIMIT, "the code ran longer than a request may, and could not be stopped: the session ends"},
    {SIGXCPU, RPC_LIMIT, "the session has used up its processor time"},
};

static void tell(rpc_code code, const char *why) {
    unsigned char payload[ERROR_NUMBERS + 2 + 160];
    const size_t bytes = strlen(why);
    memset(payload, 0, sizeof payload);
    rpc_put(payload, code, 4);
    rpc_put(payload + ERROR_NUMBERS, bytes, 2);
    memcpy(payload + ERROR_NUMBERS + 2, why, bytes);
    (void)rpc_send(told->link, RPC_ERROR, told->request, payload, ERROR_NUMBERS + 2 + bytes, NULL, 0);
}

static void on_signal(int number) {
    if (atomic_exchange(&in_code, false)) {
        /* TLS takes memory, which a handler must not: the client only sees that the connection ends. */
        for (size_t i = 0; !told->link->tls && i < sizeof REASONS / sizeof REASONS[0]; i++)
            if (REASONS[i].signal == number) tell(REASONS[i].code, REASONS[i].why);
    } else if (number == SIGALRM) {
        return; /* the code has just ended */
    }
    (void)signal(number, SIG_DFL);
    (void)raise(number); /* ends the process when the handler returns: its parent logs by which signal */
}

static bool limit(int what, int64_t soft, int64_t hard) {
    struct rlimit old;
    if (getrlimit(what, &old)) return false;
    struct rlimit wanted = {(rlim_t)soft, (rlim_t)hard};
    if (old.rlim_max != RLIM_INFINITY && wanted.rlim_max > old.rlim_max) wanted.rlim_max = old.rlim_max;
    if (wanted.rlim_cur > wanted.rlim_max) wanted.rlim_cur = wanted.rlim_max;
    return setrlimit(what, &wanted) == 0;
}

bool rpc_set_limits(rpc_session *s) {
    const rpc_options *o = s->options;
    const stack_t stack = {.ss_sp = alternate_stack, .ss_size = sizeof alternate_stack};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    told = s;
    bool set = sigaltstack(&stack, NULL) == 0;
    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < sizeof REASONS / sizeof REASONS[0]; i++) set = sigaction(REASONS[i].signal, &action, NULL) == 0 && set;
    set = limit(RLIMIT_CORE, 0, 0) && set;
    if (o->session_bytes) set = limit(RLIMIT_AS, o->session_bytes, o->session_bytes) && set;
    if (o->cpu_seconds) set = limit(RLIMIT_CPU, o->cpu_seconds, o->cpu_seconds + GRACE_SECONDS) && set;
#if defined(__linux__)
    (void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
#endif
    return set;
}

static void set_timer(int64_t nanoseconds) {
    const struct itimerval timer = {.it_value = {(time_t)(nanoseconds / RPC_SECOND),
                                                 (suseconds_t)(nanoseconds % RPC_SECOND / 1000)}};
    (void)setitimer(ITIMER_REAL, &timer, NULL);
}

/* Nobody waits for what the code computes. */
static int32_t client_is_gone(void *context) {
    char byte;
    const rpc_session *s = context;
    return recv(s->link->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

bool rpc_is_late(void) { return weft_nanoseconds() >= deadline; }

weft_watch *rpc_begin_code(rpc_session *s) {
    const int64_t now = weft_nanoseconds();
    const int64_t most = s->options->request_seconds ? now + s->options->request_seconds * RPC_SECOND : INT64_MAX;
    deadline = most < s->ends ? most : s->ends;
    weft_watch *watch = weft_watch_begin(deadline, client_is_gone, s, LOOK_NANOSECONDS);
    if (!watch) return NULL;
    atomic_store(&in_code, true);
    if (deadline != INT64_MAX) set_timer((deadline > now ? deadline - now : 0) + GRACE_SECONDS * RPC_SECOND);
    return watch;
}

void rpc_end_code(weft_watch *watch) {
    while (!atomic_exchange(&in_code, false)) (void)pause(); /* another thread crashed, and tells the client */
    set_timer(0);
    weft_watch_end(watch);
}
