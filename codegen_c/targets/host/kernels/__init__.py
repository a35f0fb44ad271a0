"""Integer kernels with vectors of 8 sums."""
