"""Read PyTorch's exported programs (.pt2) as static Relax modules."""
