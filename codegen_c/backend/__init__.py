"""The steps from a region to C in order, and their face toward TVM and the passes."""
