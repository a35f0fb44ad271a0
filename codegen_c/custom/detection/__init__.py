"""Postprocessing after networks that detect objects."""
