"""Converters of ATen operators, by family."""
