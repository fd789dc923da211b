"""Default schedule rules, one package for each kind of machine."""
