"""Kernels for products of two activations."""
