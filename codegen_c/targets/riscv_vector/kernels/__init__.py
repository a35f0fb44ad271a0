"""Kernels of RISC-V with vectors."""
