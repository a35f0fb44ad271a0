"""Kernels of 128-bit vectors."""
