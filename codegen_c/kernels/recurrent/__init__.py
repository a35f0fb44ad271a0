"""Layers that run a step for each element of a sequence."""
