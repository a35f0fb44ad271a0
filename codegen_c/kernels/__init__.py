"""Kernels that compile for every target, one family per folder; kernels of one target are in the target's folder."""
