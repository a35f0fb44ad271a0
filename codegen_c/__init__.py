"""Region function in, C sources out: the program, its memory plan, kernels, and the text."""
