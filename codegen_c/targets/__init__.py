"""One folder per instruction set: all that is particular to it."""
