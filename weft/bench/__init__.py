"""Measuring whole models beside other engines."""
