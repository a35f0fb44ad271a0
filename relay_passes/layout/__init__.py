"""Passes of phase 3, which keep channels last inside the model and its own layout at inputs and outputs."""
