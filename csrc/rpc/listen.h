/* The process that listens: a child for each connection, so that what happens in a session costs that session alone. */
#ifndef WEFT_RPC_LISTEN_H
#define WEFT_RPC_LISTEN_H

#include "session.h"

/* Writes one line to the standard error, with one call. */
void rpc_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Listens until SIGTERM or SIGINT. Returns the exit status. */
int rpc_listen(const rpc_options *options);

#endif
