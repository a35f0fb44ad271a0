"""Kernels that move elements, or interpolate between a few of them."""
