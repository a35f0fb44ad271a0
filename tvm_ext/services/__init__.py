"""Compile services: pure functions from bytes to bytes, run by whoever is at hand, their results kept by content."""
