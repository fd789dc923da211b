/* Answers the requests of one session. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "session.h"

/* ---- errors ------------------------------------------------------------------------------------------------------ */

int32_t rpc_refuse(rpc_session *s, rpc_code code, const char *format, ...) {
    s->error = (weft_error){.index = -1, .axis = -1, .instruction = -1};
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(s->error.message, sizeof s->error.message, format, arguments);
    va_end(arguments);
    return code;
}

int32_t rpc_failed(rpc_session *s, rpc_code code) {
    s->error.message[sizeof s->error.message - 1] = 0;
    return code;
}

int32_t rpc_malformed(rpc_session *s) { return rpc_refuse(s, RPC_MALFORMED, "the content of the request is malformed"); }

static bool send_error(rpc_session *s, int32_t code) {
    const weft_error *e = &s->error;
    const size_t bytes = strlen(e->message);
    unsigned char payload[42 + sizeof e->message];
    rpc_put(payload, (uint32_t)code, 4);
    rpc_put(payload + 4, (uint32_t)e->status, 4);
    rpc_put(payload + 8, (uint32_t)e->index, 4);
    rpc_put(payload + 12, (uint32_t)e->axis, 4);
    rpc_put(payload + 16, (uint64_t)e->instruction, 8);
    rpc_put(payload + 24, (uint64_t)e->expected, 8);
    rpc_put(payload + 32, (uint64_t)e->given, 8);
    rpc_put(payload + 40, bytes, 2);
    memcpy(payload + 42, e->message, bytes);
    return rpc_send(s->link, RPC_ERROR, s->request, payload, 42 + bytes, NULL, 0);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static int32_t ping(rpc_session *s, rpc_reader *in, rpc_writer *out) {
    (void)out;
    return rpc_read_all(in) ? RPC_FINE : rpc_malformed(s);
}

/* Opens the session to everything. The memory of tickets is given up before code of the client runs. */
static int32_t show_ticket(rpc_session *s, rpc_reader *in, rpc_writer *out) {
    (void)out;
    if (!s->options->tracker) return rpc_refuse(s, RPC_UNKNOWN, "tickets are not checked here");
    if (in->left != RPC_TICKET) return rpc_malformed(s);
    if (!s->tickets || !rpc_tickets_use(s->tickets, in->at, getpid()))
        return rpc_refuse(s, RPC_NOT_THERE, "the ticket is not known here, was used, or is too old");
    rpc_tickets_free(s->tickets);
    s->tickets = NULL;
    s->ends = rpc_session_end(s->options);
    return RPC_FINE;
}

static rpc_handler *const HANDLERS[] = {
    [RPC_PING] = ping,
    [RPC_CLOSE] = ping,
    [RPC_INFO] = rpc_info,
    [RPC_ALLOCATE] = rpc_allocate,
    [RPC_FREE] = rpc_free,
    [RPC_COPY_IN] = rpc_copy_in,
    [RPC_COPY_OUT] = rpc_copy_out,
    [RPC_COPY_ACROSS] = rpc_copy_across,
    [RPC_LOAD] = rpc_load,
    [RPC_UNLOAD] = rpc_unload,
    [RPC_LAUNCH] = rpc_launch,
    [RPC_TIME] = rpc_time,
    [RPC_SYNCHRONIZE] = rpc_synchronize,
    [RPC_EXECUTABLE] = rpc_executable,
    [RPC_DISCARD] = rpc_discard,
    [RPC_RUN] = rpc_run,
    [RPC_TIME_RUN] = rpc_time_run,
    [RPC_TIME_COLD] = rpc_time_cold,
    [RPC_SHOW_TICKET] = show_ticket,
};

static int32_t answer(rpc_session *s, const rpc_message *message, rpc_writer *out) {
    rpc_reader in = {.at = message->payload, .left = message->length};
    rpc_handler *handler = message->type < sizeof HANDLERS / sizeof HANDLERS[0] ? HANDLERS[message->type] : NULL;
    if (!handler) return rpc_refuse(s, RPC_UNKNOWN, "requests of type %u are not known here", (unsigned)message->type);
    if (s->tickets && handler != ping && handler != rpc_info && handler != show_ticket)
        return rpc_refuse(s, RPC_NOT_THERE, "a tracker lends this machine: show the ticket of a lease first");
    int32_t code = handler(s, &in, out);
    if (!code && out->failed) code = rpc_refuse(s, RPC_NO_MEMORY, "there is no memory for an answer");
    if (!code && out->count + out->body_bytes > s->link->out.limit)
        code = rpc_refuse(s, RPC_MALFORMED, "the answer is larger than the client takes");
    return code;
}

/* False: the session ends. */
static bool serve_one(rpc_session *s, rpc_writer *out) {
    const int64_t idle = s->options->idle_seconds, now = weft_nanoseconds();
    const int64_t waits = idle ? now + idle * RPC_SECOND : INT64_MAX;
    const bool is_last_wait = s->ends < waits;
    rpc_message message;
    if (!rpc_receive(s->link, &message, is_last_wait ? s->ends : waits, s->ends)) {
        const int64_t ended = weft_nanoseconds();
        const char *why = ended >= s->ends ? "the time of the session is over"
                          : ended >= waits ? "the session was idle for too long" : NULL;
        if (why) { /* the answer to whatever the client asks next */
            s->request = 0;
            (void)rpc_refuse(s, RPC_LIMIT, "%s", why);
            (void)send_error(s, RPC_LIMIT);
            (void)snprintf(s->link->why, sizeof s->link->why, "%s", why);
        }
        return false;
    }
    if (!message.request) return (void)snprintf(s->link->why, sizeof s->link->why, "a request has the number 0"), false;
    s->request = message.request;
    out->count = out->body_bytes = 0;
    out->body = NULL;
    out->failed = false;
    const int32_t code = answer(s, &message, out);
    if (code) return send_error(s, code);
    if (!rpc_send(s->link, RPC_REPLY, s->request, out->bytes, out->count, out->body, out->body_bytes)) return false;
    return message.type != RPC_CLOSE;
}

int64_t rpc_session_end(const rpc_options *o) {
    return o->session_seconds ? weft_nanoseconds() + o->session_seconds * RPC_SECOND : INT64_MAX;
}

void rpc_serve(rpc_session *s) {
    rpc_writer out = {0};
    while (serve_one(s, &out)) {}
    free(out.bytes);
    while (s->executables.count) rpc_free_executable(s, &s->executables.items[s->executables.count - 1]);
    for (size_t i = 0; i < s->codes.count; i++) weft_code_free(s->codes.items[i].object);
    for (size_t i = 0; i < s->block_count; i++) weft_free(s->blocks[i].memory);
    free(s->executables.items);
    free(s->codes.items);
    free(s->blocks);
    weft_trim();
}
