"""Kernels for softmax, and the exponential that it uses."""
