"""Kernels that compile for every target, one per file; a target's own are in its folder."""
