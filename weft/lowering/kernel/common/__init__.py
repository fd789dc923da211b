"""Passes between scheduled and kernel form that every machine shares."""
