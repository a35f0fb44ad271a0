"""Places of values, weights and scratch in several memories."""
