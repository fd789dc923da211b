"""Kernels → code for machines. Every back end reads programs in kernel form and imports nothing of graphs or models."""
