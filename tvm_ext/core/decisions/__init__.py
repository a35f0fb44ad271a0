"""Decisions that one package writes into the module and another reads, each as a dataclass.

To add a decision, write a dataclass here. Its fields name their attributes by `attribute`, and no other file contains
these names.
"""
