"""Kernels of layers chosen by measured figures: candidates, firmware that runs them, their counts, the choice."""
