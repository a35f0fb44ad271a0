"""Sweeps: models x platforms x options, one row of figures for each."""
