"""Kernels as values: what is to be built, its key, its machine code, the cache and the processes that build."""
