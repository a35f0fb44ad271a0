"""Fit a model into its memory limits: the methods, the choice of the next method, and parallel compilation."""
