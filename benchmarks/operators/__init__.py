"""Every operator in every shape class beside other engines: ``python -m benchmarks.operators --help``."""
