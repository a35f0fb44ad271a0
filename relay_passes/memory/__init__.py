"""Passes of phase 4: order, splits, recomputation and places that need fewer bytes."""
