"""Integer kernels of vectors of 8 sums."""
