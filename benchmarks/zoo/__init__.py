"""Architectures that are in no table of the suite, with seeded weights: ``python -m benchmarks.zoo``."""
