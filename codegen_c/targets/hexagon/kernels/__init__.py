"""Kernels of Hexagon's HVX."""
