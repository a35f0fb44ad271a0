"""Steps from a region to C, and their interface to TVM and the passes."""
