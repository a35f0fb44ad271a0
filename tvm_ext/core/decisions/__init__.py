"""Decisions that one package writes into the module and another reads: one dataclass each, the only place of its names.

To add one, write a dataclass here: its fields name their attributes by `attribute`. No other file says these names.
"""
