"""Kernels for products of vectors and constant matrices."""
