"""Kernels of Armv6-M."""
