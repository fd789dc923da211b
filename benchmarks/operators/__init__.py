"""Every operator in every shape class, compared with other engines: ``python -m benchmarks.operators --help``."""
