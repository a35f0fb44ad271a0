"""Choose among several memories for values, weights and scratch."""
