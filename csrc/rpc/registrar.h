/* The process that registers a server at a tracker, and takes what the tracker says of tickets. */
#ifndef WEFT_RPC_REGISTRAR_H
#define WEFT_RPC_REGISTRAR_H

#include "session.h"
#include "tickets.h"

/* Keeps the server that listens at `port` registered, for ever. `parent` gets SIGUSR1 when sessions must end. */
void rpc_stay_registered(const rpc_options *options, int port, rpc_tickets *tickets, pid_t parent);

#endif
