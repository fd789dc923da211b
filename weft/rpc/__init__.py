"""Remote machines: a protocol, a server in C, and a client that measures and runs code there."""
