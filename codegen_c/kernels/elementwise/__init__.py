"""Kernels for element-wise operators."""
