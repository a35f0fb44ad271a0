"""Kernels for normalizations of vectors."""
