"""Kernels as text in the languages of the C family: what all of them share. A language is a :class:`Spelling`."""
