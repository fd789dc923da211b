"""Measuring: what the machine can do, and what a kernel takes beside it."""
