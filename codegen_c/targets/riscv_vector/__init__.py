"""RISC-V with vectors of integers."""
