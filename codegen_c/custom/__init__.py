"""Operators that a model names and its format does not define: what a user brings, and TensorFlow Lite Micro's own."""
