"""Evidence about generated code: bound of the stack, coverage of the self-test."""
