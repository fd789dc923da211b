"""Simplification rules, by subject. Each is named and sound alone; their order changes quality, never meaning."""
