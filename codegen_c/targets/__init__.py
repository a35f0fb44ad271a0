"""Targets: one folder per instruction set, which contains everything particular to it."""
