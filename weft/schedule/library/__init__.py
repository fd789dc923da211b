"""Schedules and hardware instructions that use only the primitives and the public classes of :mod:`weft.schedule`.

Users can write such functions in their own files.
"""
