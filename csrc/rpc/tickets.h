/* The tickets of leases, in memory that all processes of a server share. */
#ifndef WEFT_RPC_TICKETS_H
#define WEFT_RPC_TICKETS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { RPC_TICKET = 16, RPC_MAX_TICKETS = 1024 };

/* What became of a ticket; a number above 0 is the process whose session it opened. */
enum { RPC_TICKET_FREE = 0, RPC_TICKET_MADE = -1, RPC_TICKET_GRANTED = -2 };

typedef struct rpc_ticket {
    _Atomic int64_t state;
    _Atomic bool ending; /* the session must end */
    uint64_t lease;
    int64_t expires; /* time of weft_nanoseconds */
    unsigned char bytes[RPC_TICKET];
} rpc_ticket;

/* One process grants and ends; each session uses one ticket; the process that listens frees those of sessions that are
 * gone. */
typedef struct rpc_tickets {
    rpc_ticket items[RPC_MAX_TICKETS];
} rpc_tickets;

/* Shared memory without tickets; NULL: out of memory. */
rpc_tickets *rpc_tickets_new(void);
void rpc_tickets_free(rpc_tickets *t);

/* Makes a ticket known. False: there are too many. */
bool rpc_tickets_grant(rpc_tickets *t, uint64_t lease, const unsigned char bytes[RPC_TICKET], int64_t expires);
/* A lease is over: its ticket works no more, its session must end. Whether there is a session. */
bool rpc_tickets_end(rpc_tickets *t, uint64_t lease);
/* Whether a ticket works, which it does once. It is that of `process` from then on. */
bool rpc_tickets_use(rpc_tickets *t, const unsigned char bytes[RPC_TICKET], pid_t process);
/* The session of a process is gone. */
void rpc_tickets_finished(rpc_tickets *t, pid_t process);
/* Whether the session of a process must end. */
bool rpc_tickets_must_end(const rpc_tickets *t, pid_t process);
/* The leases whose tickets work or whose sessions run; their number. Tickets that are too old are given up. */
size_t rpc_tickets_held(rpc_tickets *t, uint64_t leases[RPC_MAX_TICKETS]);

#endif
