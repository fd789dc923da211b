"""Converters: functions that map a node to its values, in tables by the name of the operator."""
