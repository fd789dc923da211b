"""Measures whole models with Weft and with other engines."""
