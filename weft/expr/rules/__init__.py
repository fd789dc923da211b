"""Simplification rules, by subject. Each rule has a name and is correct by itself; the order of rules only affects how
far expressions are simplified."""
