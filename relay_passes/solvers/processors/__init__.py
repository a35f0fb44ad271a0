"""Tasks shared among processors: where each runs, and in which order on each."""
