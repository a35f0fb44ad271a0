"""Operators as plain data."""
