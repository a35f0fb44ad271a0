"""Target: the machine that compiles."""
