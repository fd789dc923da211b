"""Converters of the operators in the domain com.microsoft."""
