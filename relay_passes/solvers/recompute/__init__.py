"""Recompute results instead of keeping them, within a budget of live bytes."""
