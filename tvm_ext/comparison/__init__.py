"""Comparison of a package with another runtime, layer by layer."""
