"""Integer kernels with vectors of 128 bits."""
