"""Passes between scheduled and kernel form that CPUs need."""
