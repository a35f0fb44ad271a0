"""Vectors divided by their length."""
