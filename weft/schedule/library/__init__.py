"""Schedules and hardware instructions written with the primitives and the public classes of :mod:`weft.schedule` alone.

Everything here could stand in a user's own file.
"""
