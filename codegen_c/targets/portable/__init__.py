"""Target for processors without an instruction set of their own here: plain C11."""
