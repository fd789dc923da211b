"""Hand-written architectures in PyTorch, each a function that returns a module."""
