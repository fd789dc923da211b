"""Architectures that no table of the suite lists, with seeded weights: ``python -m benchmarks.zoo``."""
