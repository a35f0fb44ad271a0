"""C text and numpy that kernels of several families share."""
