"""Fourier transforms of real frames: products with constant matrices of windowed cosines and sines."""
