"""Kernels for maxima, means and sums over windows and axes."""
