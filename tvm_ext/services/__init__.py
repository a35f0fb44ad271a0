"""Compile services: pure functions from bytes to bytes, run on any worker, with results cached by content."""
