"""Passes of phase 4, which lower the peak of live bytes by order, splits, recomputation and choice of memories."""
