"""Products of vectors and constant matrices."""
