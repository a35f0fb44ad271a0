"""Orders of operators whose peak of live bytes is least."""
