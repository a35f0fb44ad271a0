"""Cut an order into sequences that run row by row, and into column strips."""
