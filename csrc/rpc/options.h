/* The command line. */
#ifndef WEFT_RPC_OPTIONS_H
#define WEFT_RPC_OPTIONS_H

#include "session.h"

/* Reads the command line and the key. -1: go on; otherwise the exit status, after a message. */
int rpc_read_options(int count, char **words, rpc_options *options);

#endif
