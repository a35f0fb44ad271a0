"""Passes of phase 3: channels last inside, the model's own layout at its borders."""
