"""Maxima, means and sums over windows and axes."""
