/* Registering at a tracker: docs/rpc-protocol.md defines REGISTER and REPORT. */
#define _GNU_SOURCE
#include "registrar.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "address.h"
#include "handshake.h"
#include "listen.h"
#include "tls.h"
#include "weft_runtime.h"

enum { ANSWER_SECONDS = 20, LEASE_DIGITS = 16, TICKET_DIGITS = 2 * RPC_TICKET, MAX_LINE = 256 };
#define FIRST_PAUSE (RPC_SECOND / 5)
#define LONGEST_PAUSE (4 * RPC_SECOND)

typedef struct registration {
    const rpc_options *options;
    int port;
    rpc_tickets *tickets;
    pid_t parent;
    rpc_link link;
    uint32_t request;
    double heartbeat; /* seconds */
} registration;

/* ---- texts ------------------------------------------------------------------------------------------------------- */

/* The number that hexadecimal digits make, into bytes with the first digits first; false: others are there. */
static bool read_digits(const char *text, size_t digits, unsigned char *bytes) {
    for (size_t i = 0; i < digits; i++) {
        const char *all = "0123456789abcdef", *found = text[i] ? strchr(all, text[i]) : NULL;
        if (!found) return false;
        const unsigned value = (unsigned)(found - all);
        bytes[i / 2] = (unsigned char)(i % 2 ? bytes[i / 2] << 4 | value : value);
    }
    return true;
}

static bool read_lease(const char *text, uint64_t *lease) {
    unsigned char bytes[LEASE_DIGITS / 2];
    if (!read_digits(text, LEASE_DIGITS, bytes)) return false;
    *lease = 0;
    for (size_t i = 0; i < sizeof bytes; i++) *lease = *lease << 8 | bytes[i];
    return true;
}

/* The next line of a text without its end; false: there is none. Longer lines are cut: no name that is known is long. */
static bool next_line(const char **at, size_t *left, char line[MAX_LINE]) {
    if (!*left) return false;
    const char *end = memchr(*at, '\n', *left);
    const size_t bytes = end ? (size_t)(end - *at) : *left, kept = bytes < MAX_LINE ? bytes : MAX_LINE - 1;
    memcpy(line, *at, kept);
    line[kept] = 0;
    *at += bytes + !!end;
    *left -= bytes + !!end;
    return true;
}

/* ---- orders ------------------------------------------------------------------------------------------------------ */

static void obey_grant(registration *r, const char *line) {
    unsigned char ticket[RPC_TICKET];
    uint64_t lease;
    if (!read_lease(line, &lease) || line[LEASE_DIGITS] != '=') return;
    const char *value = line + LEASE_DIGITS + 1;
    if (!read_digits(value, TICKET_DIGITS, ticket) || value[TICKET_DIGITS] != ' ') return;
    const double seconds = strtod(value + TICKET_DIGITS, NULL);
    if (!(seconds > 0 && seconds < 1e6)) return;
    if (!rpc_tickets_grant(r->tickets, lease, ticket, weft_nanoseconds() + (int64_t)(seconds * 1e9)))
        rpc_log("there are too many tickets");
}

static void obey(registration *r, const rpc_message *message) {
    const char *at = (const char *)message->payload;
    size_t left = message->length;
    char line[MAX_LINE];
    uint64_t lease;
    bool must_end = false;
    while (next_line(&at, &left, line)) {
        if (strncmp(line, "grant.", 6) == 0) obey_grant(r, line + 6);
        else if (strncmp(line, "end.", 4) == 0 && read_lease(line + 4, &lease))
            must_end = rpc_tickets_end(r->tickets, lease) || must_end;
    }
    if (must_end) (void)kill(r->parent, SIGUSR1);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static bool fail(registration *r, const char *why) {
    (void)snprintf(r->link.why, sizeof r->link.why, "%s", why);
    return false;
}

/* Says why the tracker refuses a request. */
static bool refused(registration *r, const rpc_message *message) {
    char said[RPC_NAME];
    rpc_reader in = {.at = message->payload, .left = message->length};
    for (int i = 0; i < 4; i++) (void)rpc_read_u32(&in);
    for (int i = 0; i < 3; i++) (void)rpc_read_u64(&in);
    rpc_read_name(&in, said);
    (void)snprintf(r->link.why, sizeof r->link.why, "the tracker refuses: %.100s", said);
    return false;
}

/* Sends a text and waits for the answer, which the tracker may hold back for `wait` seconds. Frees the text. */
static bool ask(registration *r, uint16_t type, rpc_writer *text, double wait, rpc_message *answer) {
    const int64_t until = weft_nanoseconds() + (int64_t)((wait + ANSWER_SECONDS) * 1e9);
    if (++r->request == 0) r->request = 1;
    const bool sent = !text->failed && rpc_send(&r->link, type, r->request, text->bytes, text->count, NULL, 0);
    const bool failed = text->failed;
    free(text->bytes);
    if (failed) return fail(r, "out of memory");
    if (!sent || !rpc_receive(&r->link, answer, until, until)) return false;
    if (answer->request != r->request) return fail(r, "the tracker answered another request");
    if (answer->type == RPC_ERROR) return refused(r, answer);
    return answer->type == RPC_REPLY || fail(r, "the tracker answered with another message");
}

static void write_held(registration *r, rpc_writer *text) {
    uint64_t leases[RPC_MAX_TICKETS];
    char number[LEASE_DIGITS + 2];
    const size_t count = rpc_tickets_held(r->tickets, leases);
    rpc_write_bytes(text, "held=", 5);
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(number, sizeof number, "%s%016llx", i ? "," : "", (unsigned long long)leases[i]);
        rpc_write_bytes(text, number, strlen(number));
    }
    rpc_write_bytes(text, "\n", 1);
}

static bool register_once(registration *r) {
    const rpc_options *o = r->options;
    rpc_writer text = {0};
    rpc_message answer;
    char line[MAX_LINE];
    rpc_write_info(o, &text);
    rpc_write_line(&text, "key", o->board_key);
    rpc_write_line(&text, "address", o->public_address);
    rpc_write_number(&text, "port", o->public_port ? o->public_port : r->port);
    rpc_write_line(&text, "description", o->description);
    rpc_write_line(&text, "tickets", "1");
    rpc_write_line(&text, "tls", o->certificate || o->public_tls ? "1" : "0");
    write_held(r, &text);
    if (!ask(r, RPC_REGISTER, &text, 0, &answer)) return false;
    const char *at = (const char *)answer.payload;
    size_t left = answer.length;
    r->heartbeat = 0;
    while (next_line(&at, &left, line))
        if (strncmp(line, "heartbeat_seconds=", 18) == 0) r->heartbeat = strtod(line + 18, NULL);
    return (r->heartbeat > 0 && r->heartbeat < 1e6) ||
           fail(r, "the tracker does not say how often it wants to hear of this machine");
}

static bool report(registration *r) {
    rpc_writer text = {0};
    rpc_message answer;
    write_held(r, &text);
    if (!ask(r, RPC_REPORT, &text, r->heartbeat, &answer)) return false;
    obey(r, &answer);
    return true;
}

/* ---- for ever ---------------------------------------------------------------------------------------------------- */

/* Whether it was registered; `link.why` says why it is not any more. */
static bool stay(registration *r) {
    const rpc_options *o = r->options;
    bool registered = false;
    const char *why;
    const int fd = rpc_connect_socket(o->tracker, ANSWER_SECONDS, &why);
    rpc_link_begin(&r->link, fd, RPC_HANDSHAKE_BYTES);
    if (fd < 0) return fail(r, why);
    char host[RPC_HOST];
    int port;
    const int64_t end = weft_nanoseconds() + ANSWER_SECONDS * RPC_SECOND;
    if (!rpc_split_address(o->tracker, host, &port) || !rpc_tls_connect(&r->link, host, end)) return false;
    if (rpc_connect(&r->link, &o->key, RPC_DEFAULT_LIMIT) && register_once(r)) {
        registered = true;
        rpc_log("registered at the tracker %s", o->tracker);
        while (report(r)) {}
    }
    return registered;
}

/* A pause of three to four quarters of `nanoseconds`: many machines that lost a tracker do not come back at once. */
static void pause_for(int64_t nanoseconds) {
    unsigned char random = 0;
    (void)rpc_random(&random, sizeof random);
    nanoseconds -= nanoseconds / 4 * random / 255;
    (void)nanosleep(&(struct timespec){(time_t)(nanoseconds / RPC_SECOND), (long)(nanoseconds % RPC_SECOND)}, NULL);
}

void rpc_stay_registered(const rpc_options *options, int port, rpc_tickets *tickets, pid_t parent) {
    registration r = {.options = options, .port = port, .tickets = tickets, .parent = parent};
    int64_t wait = FIRST_PAUSE;
    char last[sizeof r.link.why] = "";
    for (;;) {
        if (stay(&r)) {
            wait = FIRST_PAUSE;
            last[0] = 0;
        }
        const char *why = r.link.why[0] ? r.link.why : "the tracker ended the connection";
        if (strcmp(why, last) != 0) rpc_log("not registered at the tracker %s: %s", options->tracker, why);
        (void)snprintf(last, sizeof last, "%s", why);
        rpc_link_end(&r.link);
        pause_for(wait);
        wait = 2 * wait < LONGEST_PAUSE ? 2 * wait : LONGEST_PAUSE;
    }
}
