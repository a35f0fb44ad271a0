"""Share tasks among processors: where each task runs, and in which order on each processor."""
