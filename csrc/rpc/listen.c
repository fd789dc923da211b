/* Listens, and gives each connection a process of its own.
 *
 * A child does the handshake and then claims a place among the sessions, in memory that it shares with its parent; the
 * parent gives the place back when the child has ended, however it ended. The child lets go of the shared memory before
 * it runs code of the client. */
#define _GNU_SOURCE
#include "listen.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "address.h"
#include "registrar.h"

#if defined(__linux__)
#include <sys/prctl.h>
#endif

enum { MAX_HANDSHAKES = 32, MAX_CHILDREN = RPC_MAX_SESSIONS + MAX_HANDSHAKES, SPARE_PLACES = 4 };
enum { GRACE_SECONDS = 3, TICKET_SECONDS = 30, LATE_SECONDS = 15 };

typedef struct child {
    pid_t pid; /* 0: the place is free */
    unsigned long number;
    int64_t ends; /* when it is killed, if it has not ended by itself */
} child;

typedef struct places {
    _Atomic bool taken[MAX_CHILDREN];
} places;

typedef struct server {
    const rpc_options *options;
    int fd;
    child children[MAX_CHILDREN];
    int count, room;
    unsigned long connections;
    places *places; /* shared with the children */
    rpc_tickets *tickets; /* shared with the children; NULL: there is no tracker */
    int port;
    pid_t registrar;
    int64_t registrar_due; /* when it is started again */
} server;

static volatile sig_atomic_t stopping, child_ended;

void rpc_log(const char *format, ...) {
    char line[512] = "weft-rpc-server: ";
    const size_t start = strlen(line);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line + start, sizeof line - start - 1, format, arguments);
    va_end(arguments);
    const size_t bytes = strlen(line);
    line[bytes] = '\n';
    if (write(STDERR_FILENO, line, bytes + 1) < 0) return; /* nobody reads the log */
}

/* ---- a child ----------------------------------------------------------------------------------------------------- */

typedef struct claim {
    places *places;
    int slot, max_sessions;
    char why[64];
} claim;

/* Takes the place first and counts then: of two that come at once for one place, both may be refused, but never both
 * accepted. */
static const char *claim_place(void *context) {
    claim *c = context;
    int taken = 0;
    atomic_store(&c->places->taken[c->slot], true);
    for (int i = 0; i < MAX_CHILDREN; i++) taken += atomic_load(&c->places->taken[i]);
    if (taken <= c->max_sessions) return NULL;
    atomic_store(&c->places->taken[c->slot], false);
    (void)snprintf(c->why, sizeof c->why, "all sessions are in use (%d)", c->max_sessions);
    return c->why;
}

static void restore_signals(void) {
    sigset_t none;
    (void)signal(SIGTERM, SIG_DFL);
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGCHLD, SIG_DFL);
    (void)signal(SIGUSR1, SIG_DFL);
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static int serve_connection(server *v, int fd, int slot, unsigned long number, pid_t parent) {
    rpc_link link;
    const int spare = v->tickets ? SPARE_PLACES : 0; /* for a tracker that looks whether the server answers */
    claim c = {.places = v->places, .slot = slot, .max_sessions = v->options->max_sessions + spare};
    const rpc_options *o = v->options;
    restore_signals();
#if defined(__linux__)
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) return 1; /* it ended before */
#else
    (void)parent;
#endif
    close(v->fd);
    rpc_link_begin(&link, fd, RPC_HANDSHAKE_BYTES);
    const bool accepted = rpc_accept(&link, &o->key, o->frame_bytes, claim_place, &c);
    rpc_wipe((void *)(uintptr_t)&o->key, sizeof o->key);
    (void)munmap(v->places, sizeof *v->places);
    if (!accepted) {
        rpc_log("connection %lu: refused: %s", number, link.why[0] ? link.why : "the other side ended it");
        rpc_link_end(&link);
        return 0;
    }
    rpc_session session = {.link = &link, .options = o, .ends = rpc_session_end(o), .tickets = v->tickets};
    if (v->tickets) session.ends = weft_nanoseconds() + TICKET_SECONDS * RPC_SECOND; /* until a ticket is shown */
    rpc_log("connection %lu: session begins", number);
    if (!rpc_set_limits(&session)) rpc_log("connection %lu: the system does not set all limits", number);
    rpc_serve(&session);
    rpc_log("connection %lu: session ends: %s", number, link.why[0] ? link.why : "the client ended it");
    rpc_link_end(&link);
    return 0;
}

/* ---- the parent -------------------------------------------------------------------------------------------------- */

static void on_stop(int number) {
    (void)number;
    stopping = 1;
}

static void on_child(int number) {
    (void)number;
    child_ended = 1;
}

static void on_news(int number) { (void)number; }

static void start_child(server *v, int fd, const rpc_address *from) {
    int slot = 0;
    while (v->children[slot].pid) slot++;
    const unsigned long number = ++v->connections;
    char who[64];
    rpc_address_text(from, who, sizeof who);
    rpc_log("connection %lu: from %s", number, who);
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        const int status = serve_connection(v, fd, slot, number, parent);
        exit(status);
    }
    close(fd);
    if (pid < 0) {
        rpc_log("connection %lu: no process for it: %s", number, strerror(errno));
        return;
    }
    /* The session ends by itself before that, and can say why. */
    const int64_t limit = v->options->session_seconds, late = LATE_SECONDS + (v->tickets ? TICKET_SECONDS : 0);
    v->children[slot] = (child){pid, number, limit ? weft_nanoseconds() + (limit + late) * RPC_SECOND : INT64_MAX};
    v->count++;
}

static void accept_one(server *v) {
    rpc_address from;
    socklen_t bytes = sizeof from;
    const int fd = accept(v->fd, &from.any, &bytes), on = 1;
    if (fd < 0) {
        if (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK || errno == ECONNABORTED) return;
        rpc_log("a connection cannot be accepted: %s", strerror(errno));
        (void)nanosleep(&(struct timespec){0, 100000000}, NULL); /* the reason may last: files or memory are used up */
        return;
    }
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (fcntl(fd, F_SETFL, O_NONBLOCK) || fcntl(fd, F_SETFD, FD_CLOEXEC)) close(fd);
    else start_child(v, fd, &from);
}

static void start_registrar(server *v) {
    const pid_t parent = getpid(), pid = fork();
    if (pid > 0) v->registrar = pid;
    v->registrar_due = weft_nanoseconds() + RPC_SECOND;
    if (pid) return;
    restore_signals();
#if defined(__linux__)
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) exit(1); /* it ended before */
#endif
    close(v->fd);
    rpc_stay_registered(v->options, v->port, v->tickets, parent);
}

static void reap(server *v) {
    int status;
    pid_t pid;
    child_ended = 0;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == v->registrar) v->registrar = 0;
        if (v->tickets) rpc_tickets_finished(v->tickets, pid);
        for (int i = 0; i < MAX_CHILDREN; i++) {
            child *c = &v->children[i];
            if (c->pid != pid) continue;
            if (WIFSIGNALED(status)) rpc_log("connection %lu: its process ended by signal %d", c->number, WTERMSIG(status));
            else if (WEXITSTATUS(status)) rpc_log("connection %lu: its process ended with status %d", c->number, WEXITSTATUS(status));
            c->pid = 0;
            v->count--;
            atomic_store(&v->places->taken[i], false);
        }
    }
}

static void kill_children(const server *v, int number, bool only_late) {
    for (int i = 0; i < MAX_CHILDREN; i++)
        if (v->children[i].pid && (!only_late || weft_nanoseconds() >= v->children[i].ends)) (void)kill(v->children[i].pid, number);
}

/* Sessions whose leases are over. */
static void kill_ended(const server *v) {
    for (int i = 0; v->tickets && i < MAX_CHILDREN; i++)
        if (v->children[i].pid && rpc_tickets_must_end(v->tickets, v->children[i].pid)) {
            rpc_log("connection %lu: its lease is over", v->children[i].number);
            (void)kill(v->children[i].pid, SIGKILL);
        }
}

static void end_children(server *v) {
    if (v->registrar) (void)kill(v->registrar, SIGKILL);
    const int64_t until = weft_nanoseconds() + GRACE_SECONDS * RPC_SECOND;
    kill_children(v, SIGTERM, false);
    for (reap(v); v->count && weft_nanoseconds() < until; reap(v)) (void)nanosleep(&(struct timespec){0, 10000000}, NULL);
    kill_children(v, SIGKILL, false);
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) {} /* the process that registers is one of them */
}

/* Waits for connections and for children, with the signals let through only while it waits. */
static void listen_until_stopped(server *v) {
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGCHLD);
    sigaddset(&blocked, SIGUSR1);
    (void)sigprocmask(SIG_BLOCK, &blocked, &before);
    while (!stopping) {
        if (child_ended) reap(v);
        kill_children(v, SIGKILL, true);
        kill_ended(v);
        if (v->tickets && !v->registrar && weft_nanoseconds() >= v->registrar_due) start_registrar(v);
        const struct timespec wait = {1, 0};
        fd_set reads;
        FD_ZERO(&reads);
        const bool has_room = v->count < v->room;
        if (has_room) FD_SET(v->fd, &reads);
        const int found = pselect(has_room ? v->fd + 1 : 0, &reads, NULL, NULL, &wait, &before);
        if (found > 0) accept_one(v);
    }
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
}

int rpc_listen(const rpc_options *options) {
    static server v;
    struct sigaction stop = {.sa_handler = on_stop}, ended = {.sa_handler = on_child}, woken = {.sa_handler = on_news};
    v.options = options;
    v.room = options->max_sessions + MAX_HANDSHAKES;
    v.places = mmap(NULL, sizeof *v.places, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (v.places == MAP_FAILED) return rpc_log("out of memory"), 1;
    if (options->tracker && !(v.tickets = rpc_tickets_new())) return rpc_log("out of memory"), 1;
    if ((v.fd = rpc_open_socket(options, &v.port)) < 0) return 1;
    (void)sigaction(SIGTERM, &stop, NULL);
    (void)sigaction(SIGINT, &stop, NULL);
    (void)sigaction(SIGCHLD, &ended, NULL);
    (void)sigaction(SIGUSR1, &woken, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    const bool brackets = strchr(options->address, ':') != NULL;
    printf("listening on %s%s%s:%d\n", brackets ? "[" : "", options->address, brackets ? "]" : "", v.port);
    if (fflush(stdout)) rpc_log("the port cannot be printed: %s", strerror(errno));
    listen_until_stopped(&v);
    close(v.fd);
    end_children(&v);
    (void)munmap(v.places, sizeof *v.places);
    rpc_log("stopped");
    return 0;
}
