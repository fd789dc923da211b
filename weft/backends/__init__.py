"""Kernels → code for machines. Every back end reads programs in kernel form and knows no other room."""
