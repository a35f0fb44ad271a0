"""Passes of phase 1, which simplify the graph: they fold constants and turn movements of elements into gathers."""
