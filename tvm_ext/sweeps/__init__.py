"""Sweeps: models x platforms x options, with a row of results for each combination."""
