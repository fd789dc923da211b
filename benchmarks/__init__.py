"""Measurements. Each module has ``run(quick) -> list[Row]``; ``python -m benchmarks`` runs all. They decide no test."""
