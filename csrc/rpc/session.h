/* A session: one client, what it owns here, and its limits. */
#ifndef WEFT_RPC_SESSION_H
#define WEFT_RPC_SESSION_H

#include "frames.h"
#include "handshake.h"
#include "payload.h"
#include "tickets.h"
#include "weft_runtime.h"

enum { RPC_MAX_SESSIONS = 256 };

/* What the command line says; 0 for limits: none. */
typedef struct rpc_options {
    char address[64], name[RPC_NAME];
    const char *certificate, *certificate_key; /* files; NULL: no TLS */
    const char *tracker_trusted;               /* file of the certificates to trust a tracker by; NULL: no TLS with it */
    bool public_tls;                           /* something in front of this server speaks TLS */
    const char *tracker; /* ADDRESS:PORT; NULL: none */
    char board_key[128], description[256], public_address[128];
    int32_t port, max_sessions, public_port;
    uint32_t frame_bytes;
    int64_t session_bytes, request_seconds, cpu_seconds, session_seconds, idle_seconds;
    bool allow_root, insecure_network;
    rpc_key key;
} rpc_options;

/* A block of memory under the address that the client knows it by. */
typedef struct rpc_block {
    uint64_t address;
    int64_t nbytes;
    char *memory;
    int32_t users; /* executables that keep it */
} rpc_block;

/* Code or an executable under its number. */
typedef struct rpc_object {
    uint32_t number;
    int32_t users;
    void *object;
} rpc_object;

typedef struct rpc_objects {
    rpc_object *items; /* by ascending numbers */
    size_t count, room;
    uint32_t last;
} rpc_objects;

typedef struct rpc_session {
    rpc_link *link;
    const rpc_options *options;
    int64_t ends; /* time of weft_nanoseconds */
    rpc_tickets *tickets; /* until one was shown; NULL: anything may be asked */
    rpc_block *blocks; /* by ascending addresses */
    size_t block_count, block_room;
    uint64_t next_address;
    rpc_objects codes, executables;
    uint32_t request; /* that is being answered */
    weft_error error; /* of a request that failed */
} rpc_session;

/* Answers requests until the client closes or a limit is reached; frees everything. `link->why` says why it ended. */
void rpc_serve(rpc_session *s);
/* When a session that begins now ends. */
int64_t rpc_session_end(const rpc_options *o);

/* Fills in the error of a request, and returns `code`. */
int32_t rpc_refuse(rpc_session *s, rpc_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same from an error of the runtime that is in `s->error`. */
int32_t rpc_failed(rpc_session *s, rpc_code code);
int32_t rpc_malformed(rpc_session *s);

/* ---- what a session owns (table.c) -------------------------------------------------------------------------------- */

/* Makes a block known, and gives its address; 0: out of memory, the block is still the caller's. */
uint64_t rpc_add_block(rpc_session *s, void *memory, int64_t nbytes);
/* The block that an address lies in, NULL if there is none. */
rpc_block *rpc_find_block(const rpc_session *s, uint64_t address);
/* The memory of a range, NULL if it does not lie in one block; a range without bytes may begin at the end of a block. */
char *rpc_find_range(const rpc_session *s, uint64_t address, uint64_t nbytes);
void rpc_remove_block(rpc_session *s, rpc_block *block);

/* A new number, 0: out of memory. */
uint32_t rpc_add_object(rpc_objects *all, void *object);
rpc_object *rpc_find_object(const rpc_objects *all, uint32_t number);
void rpc_remove_object(rpc_objects *all, rpc_object *object);

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* Each reads its request and writes the answer; the result is an rpc_code, with `s->error` filled in. */
typedef int32_t rpc_handler(rpc_session *s, rpc_reader *in, rpc_writer *out);

rpc_handler rpc_info;                                                                /* machine.c */
/* The lines of INFO. */
void rpc_write_info(const rpc_options *o, rpc_writer *out);
rpc_handler rpc_allocate, rpc_free, rpc_copy_in, rpc_copy_out, rpc_copy_across;      /* memory.c */
rpc_handler rpc_load, rpc_unload, rpc_launch, rpc_time, rpc_time_cold, rpc_synchronize; /* kernels.c */
rpc_handler rpc_executable, rpc_discard, rpc_run, rpc_time_run;                      /* models.c */

void rpc_free_executable(rpc_session *s, rpc_object *executable);

/* ---- calls of code that the client sent (limits.c) ---------------------------------------------------------------- */

/* Sets the limits of this process, and tells the client of crashes from now on. */
bool rpc_set_limits(rpc_session *s);
/* Between begin and end, code of the client runs: at the time limit of a request it is asked to stop, then made to. `begin`
 * returns a token for `end`, NULL if memory is exhausted. */
weft_watch *rpc_begin_code(rpc_session *s);
void rpc_end_code(weft_watch *watch);
/* Whether the time of the request is over. */
bool rpc_is_late(void);

/* Threads that a call or an executable may ask for. */
enum { RPC_MAX_THREADS = 1024 };

/* A call that is measured: `repeat` times, each the mean of as many calls as take `least` nanoseconds together; of cold
 * calls one each, before which `least` bytes at `other` are touched. */
typedef struct rpc_timing {
    int32_t (*call)(void *context);
    void *context;
    uint32_t repeat;
    uint64_t least;
    void *other;
    rpc_writer *out; /* takes the nanoseconds */
} rpc_timing;

/* Reads `repeat` and `least`, which end a request. */
int32_t rpc_read_timing(rpc_session *s, rpc_reader *in, rpc_timing *t);
/* Measures an rpc_timing; stops at the first result that is not 0, and returns it. */
int32_t rpc_measure(void *timing);

#endif
