"""Evidence about generated code: an upper bound of its stack, and the coverage of its self-test."""
