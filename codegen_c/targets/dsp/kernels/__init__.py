"""Kernels of 16-bit pairs."""
