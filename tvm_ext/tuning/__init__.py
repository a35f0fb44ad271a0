"""Tuning: choose the kernel of each layer by measurements. Candidates, their firmware, measurements, and the choice."""
