"""Softmax, and the exponential it is made of."""
