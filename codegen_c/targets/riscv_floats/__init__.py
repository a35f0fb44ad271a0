"""Target RV32 with vectors of floats and integers."""
