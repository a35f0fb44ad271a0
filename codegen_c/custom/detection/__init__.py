"""Postprocessing behind networks that detect objects."""
